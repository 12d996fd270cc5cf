"""Spreads work over turns of the event loop: what exceeds a turn waits for the next turns, in order.

A single call does little in a turn. Two hundred calls with work at the same moment would do all of it
in one turn, and everything else would wait that long. So work is weighed in bytes
before it is done. While there is room in a turn, work is done at once.

Neighbour: `checks` does the same for the requests of clients, and gives large work to threads.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """Bounds the work in one turn. All methods run on the event loop."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max`: of work done in one turn; a single piece of work may be more."""
        self._loop = asyncio.get_running_loop()
        self._bytes_max = bytes_max
        self._done = 0
        """Of the work that was let through in this turn."""
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._scheduled = False

    def __repr__(self) -> str:
        return f"<Turns done={self._done} of {self._bytes_max} waiting={len(self._waiting)}>"

    async def turn(self, work_bytes: int) -> None:
        """Returns when the caller may do work of so many bytes."""
        if not self._waiting and self._has_room(work_bytes):
            self._count(work_bytes)
            return
        mine: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((mine, work_bytes))
        self._schedule()
        await mine

    def _has_room(self, work_bytes: int) -> bool:
        return not self._done or self._done + work_bytes <= self._bytes_max

    def _count(self, work_bytes: int) -> None:
        self._done += work_bytes
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._scheduled = False
        self._done = 0
        while self._waiting:
            waiter, work_bytes = self._waiting[0]
            # It is done already if its caller was cancelled.
            if not waiter.done():
                if not self._has_room(work_bytes):
                    return
                self._count(work_bytes)
                waiter.set_result(None)
            self._waiting.popleft()

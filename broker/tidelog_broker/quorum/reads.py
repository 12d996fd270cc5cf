"""Keeps reads that wait for a ReadIndex: first for a majority, then for entries to be applied.

Neighbours: `core.raft.reading` has the rule, `driver` performs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tidelog_broker.core.raft.ready import Read


class WaitingReads:
    """The reads that wait. Belongs to one event loop."""

    def __init__(self) -> None:
        self._tokens = 0
        self._asked: dict[int, asyncio.Future[None]] = {}
        """By token."""
        self._safe: list[tuple[int, asyncio.Future[None]]] = []
        """Answered once the entry at the index was applied."""

    def __repr__(self) -> str:
        return f"<WaitingReads asked={len(self._asked)} safe={len(self._safe)}>"

    def next_token(self) -> int:
        self._tokens += 1
        return self._tokens

    async def wait(self, token: int) -> None:
        """Raises ConnectionError if leadership ends before the answer."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked[token] = done
        await done

    def answered(self, reads: Iterable[Read], failed: Iterable[int], applied: int) -> None:
        """Takes the reads of a `Ready`; everything up to `applied` is in the image."""
        for read in reads:
            done = self._asked.pop(read.token, None)
            if done is not None:
                self._safe.append((read.index, done))
        for token in failed:
            done = self._asked.pop(token, None)
            if done is not None:
                _refuse(done)
        for index, done in self._safe:
            if index <= applied and not done.done():
                done.set_result(None)
        self._safe = [one for one in self._safe if not one[1].done()]

    def end(self) -> None:
        """Refuses all reads that wait."""
        waiting = [*self._asked.values(), *(done for _, done in self._safe)]
        self._asked, self._safe = {}, []
        for done in waiting:
            _refuse(done)


def _refuse(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_exception(ConnectionError("this broker no longer leads the metadata quorum"))
        done.exception()

"""Bounds the answers that clients have not taken yet: of all clients together, and of each client.

A Fetch call that sends batches as they lie holds an answer until its client has taken it, and maybe the
next answer, which is read ahead. A client that stops reading keeps both indefinitely. So a call takes room
before it reads. Without room it sends small answers, for which every call has room
(`SMALL_ANSWER_BYTES`), and waits only where a single batch is larger.

Each client has only a share, so a client that takes no answers leaves room for the others. A single batch
beyond every bound is granted when nothing else is held.

All methods run on the event loop. Neighbours: `byte_budget` bounds decoded bytes, `api.fetch` takes room.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

SMALL_ANSWER_BYTES: Final = 64 << 10
"""An answer of so many bytes needs no room."""

CLIENT_SHARES: Final = 4
"""A client may hold at most one of so many shares."""


class AnswerRoom:
    """The bytes that answers may hold, and the queue for them."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.client_bytes_max = bytes_max // CLIENT_SHARES
        self.used = 0
        """All bytes that are held."""
        self._of_client: dict[str, int] = {}
        self._waiting: deque[Held] = deque()
        self._full = False
        """The first call in the queue waits for bytes that other clients hold."""

    def __repr__(self) -> str:
        return f"<AnswerRoom used={self.used} of {self.bytes_max} waiting={self.waiting}>"

    @property
    def waiting(self) -> int:
        """Calls that wait for room for one large batch."""
        return len(self._waiting)

    def used_by(self, client: str) -> int:
        """Bytes that a client's calls hold."""
        return self._of_client.get(client, 0)

    def take(self, client: str, size: int) -> Held | None:
        """Room for `size` bytes, which must be released; None: there is none now."""
        if self._full or not self._fits(client, size):
            return None
        held = Held(self, client, size)
        self._count(held, size)
        return held

    def request(self, client: str, size: int) -> Held:
        """As `take`, in its turn: see `Held.granted`."""
        held = Held(self, client, size)
        held.turn = asyncio.get_running_loop().create_future()
        self._waiting.append(held)
        self._grant()
        return held

    def _fits(self, client: str, size: int) -> bool:
        own = self.used_by(client)
        return (not self.used or self.used + size <= self.bytes_max) and (
            not own or own + size <= self.client_bytes_max
        )

    def _count(self, held: Held, size: int) -> None:
        self.used += size
        own = self.used_by(held.client) + size
        if own:
            self._of_client[held.client] = own
        else:
            self._of_client.pop(held.client, None)

    def _grant(self) -> None:
        """Grants in the order of the requests, but skips calls whose client has its share."""
        still: deque[Held] = deque()
        self._full = False
        while self._waiting:
            held = self._waiting.popleft()
            assert held.turn is not None, "it was requested"
            if self._fits(held.client, held.bytes):
                self._count(held, held.bytes)
                held.turn.set_result(None)
                continue
            still.append(held)
            own = self.used_by(held.client)
            if not own or own + held.bytes <= self.client_bytes_max:
                # Nobody else may take what becomes free.
                self._full = True
                break
        self._waiting.extendleft(reversed(still))


class Held:
    """Some bytes of the room, or a place in the queue for them, until its release."""

    __slots__ = ("_over", "_room", "bytes", "client", "turn")

    def __init__(self, room: AnswerRoom, client: str, size: int) -> None:
        self._room = room
        self._over = False
        self.client = client
        self.bytes = size
        self.turn: asyncio.Future[None] | None = None
        """Done when its turn has come; None: the room was there at once."""

    def __repr__(self) -> str:
        state = "over" if self._over else "held" if self._there else "waits"
        return f"<Held {state} bytes={self.bytes} client={self.client}>"

    @property
    def _there(self) -> bool:
        return self.turn is None or self.turn.done()

    async def granted(self, seconds_max: float) -> bool:
        """Waits for its turn, at most `seconds_max`; returns whether it has come. It keeps its place."""
        if self.turn is not None and not self.turn.done():
            await asyncio.wait((self.turn,), timeout=seconds_max)
        return self._there

    def shrink(self, size: int) -> None:
        """Gives back all held bytes but `size`."""
        assert size <= self.bytes, f"{self!r} cannot become {size} bytes"
        self._room._count(self, size - self.bytes)
        self.bytes = size
        self._room._grant()

    def release(self) -> None:
        """Gives back the bytes, or the place in the queue. A second call does nothing."""
        if self._over:
            return
        there, self._over = self._there, True
        if there:
            self._room._count(self, -self.bytes)
        else:
            self._room._waiting.remove(self)
        self._room._grant()

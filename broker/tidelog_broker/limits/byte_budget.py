"""Bounds the bytes that many calls hold together: calls wait for their turn, in order.

A call asks for a `Lease` before it allocates, and gives it back on every way out. Turns come strictly in the
order of the requests, so that small requests do not pass a large one for ever. A holder that waits for its
client, for example for a reader that does not read, marks its lease as idle and says how to drop it: an idle
lease is taken back when another call waits, or after a while. So the queue moves as long as threads do,
whatever clients do. It is taken back only after a moment: a client that reads returns within that time, and
its records must not be decoded again for each answer.

All methods run on the event loop. Neighbour: `decoding` uses two budgets.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class ByteBudget:
    """The bytes of the bound, and the queue of leases."""

    def __init__(self, bytes_max: int, *, idle_seconds_min: float, idle_seconds_max: float) -> None:
        """How long an idle lease keeps its bytes: `idle_seconds_min` while a call waits for them,
        `idle_seconds_max` if no call waits.
        """
        self.bytes_max = bytes_max
        self.used = 0
        """The bytes of all leases that are held, never above `bytes_max`."""
        self._loop = asyncio.get_running_loop()
        self._idle_seconds_min = idle_seconds_min
        self._idle_seconds_max = idle_seconds_max
        self._waiting: deque[Lease] = deque()
        self._idle: dict[Lease, Callable[[], None]] = {}
        """Leases that are held and not in use, the longest idle first."""
        self._sweep: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        """When the next idle lease may be taken back for calls that wait."""

    def __repr__(self) -> str:
        return f"<ByteBudget used={self.used} of {self.bytes_max} waiting={self.waiting}>"

    @property
    def waiting(self) -> int:
        """Leases that wait for their turn."""
        return len(self._waiting)

    def fits(self, size: int) -> bool:
        """Whether a lease of this size can ever be granted."""
        return size <= self.bytes_max

    def request(self, size: int) -> Lease:
        """A lease of `size` bytes, held at once or in its turn (`Lease.granted`); it must be released."""
        assert self.fits(size), f"{size} bytes never fit into {self!r}"
        lease = Lease(self, size, self._loop.create_future())
        self._waiting.append(lease)
        self._grant()
        return lease

    def _grant(self) -> None:
        """Serves the queue from its head, as far as there is room; idle leases make room."""
        while self._waiting:
            lease = self._waiting[0]
            if not self._make_room(lease.bytes):
                return
            self._waiting.popleft()
            self.used += lease.bytes
            lease.turn.set_result(None)
            if lease.drop is not None:
                self._count_idle(lease, lease.drop)

    def _make_room(self, size: int) -> bool:
        while self.used + size > self.bytes_max and self._idle:
            lease = next(iter(self._idle))
            due = lease.idle_since + self._idle_seconds_min
            if due > self._loop.time():
                if self._look is None:
                    self._look = self._loop.call_at(due, self._look_again)
                break
            self._take_back(lease)
        return self.used + size <= self.bytes_max

    def _look_again(self) -> None:
        self._look = None
        self._grant()

    def _take_back(self, lease: Lease) -> None:
        drop = self._idle.pop(lease)
        lease.over = True
        drop()
        self.used -= lease.bytes

    def _grow(self, lease: Lease, size: int) -> bool:
        more = size - lease.bytes
        if more > 0 and (self._waiting or not self._make_room(more)):
            return False
        self.used += more
        lease.bytes = size
        if more < 0:
            self._grant()
        return True

    def _now_idle(self, lease: Lease, drop: Callable[[], None]) -> None:
        lease.drop = drop
        if lease.turn.done():
            self._count_idle(lease, drop)
            self._grant()

    def _count_idle(self, lease: Lease, drop: Callable[[], None]) -> None:
        self._idle[lease] = drop
        lease.idle_since = self._loop.time()
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._idle_seconds_max, self._drop_old)

    def _drop_old(self) -> None:
        self._sweep = None
        latest = self._loop.time() - self._idle_seconds_max
        while self._idle:
            lease = next(iter(self._idle))
            if lease.idle_since > latest:
                due = lease.idle_since + self._idle_seconds_max
                self._sweep = self._loop.call_at(due, self._drop_old)
                return
            self._take_back(lease)

    def _released(self, lease: Lease) -> None:
        if lease.over:
            return
        lease.over = True
        if lease.turn.done():
            self._idle.pop(lease, None)
            self.used -= lease.bytes
        else:
            self._waiting.remove(lease)
            lease.turn.cancel()
        self._grant()


class Lease:
    """Some bytes of a budget. It waits for its turn, is held, is idle, or is over."""

    __slots__ = ("_budget", "_job", "bytes", "drop", "idle_since", "over", "turn")

    def __init__(self, budget: ByteBudget, size: int, turn: asyncio.Future[None]) -> None:
        self._budget = budget
        self._job: Future[Any] | None = None
        self.bytes = size
        self.turn = turn
        """Done when its turn has come."""
        self.idle_since = 0.0
        """On the event loop's clock."""
        self.drop: Callable[[], None] | None = None
        """Drops what the lease stands for; set while the lease is idle, or will be when its turn comes."""
        self.over = False
        """It was released, or taken back."""

    def __repr__(self) -> str:
        state = "over" if self.over else "held" if self.turn.done() else "waits"
        return f"<Lease {state} bytes={self.bytes}>"

    def ended(self) -> bool:
        """Whether it was released or taken back: then the memory must be gone."""
        return self.over

    async def granted(self, seconds_max: float | None = None) -> bool:
        """Waits for its turn, at most `seconds_max`; returns whether it has come. It keeps its place."""
        if not self.turn.done():
            await asyncio.wait((self.turn,), timeout=seconds_max)
        return self.turn.done()

    def grow(self, size: int) -> bool:
        """Changes it to `size` bytes; to more only if no call waits and there is room. False: it did not."""
        return self._budget._grow(self, size)

    def idle(self, drop: Callable[[], None]) -> None:
        """Nothing uses what it stands for: it may be taken back at any time, which `drop` is told.

        Of a lease that still waits this holds from its turn on.
        """
        self._budget._now_idle(self, drop)

    def busy(self) -> bool:
        """Ends `idle`: the lease is in use again. False: it was taken back meanwhile."""
        self.drop = None
        self._budget._idle.pop(self, None)
        return not self.over

    def covers(self, job: Future[Any]) -> None:
        """A thread uses its bytes: a release before the thread is done waits for the thread."""
        self._job = job

    def release(self) -> None:
        """Gives back the bytes, or the place in the queue. A second call does nothing."""
        job, self._job = self._job, None
        if job is None or job.done():
            self._budget._released(self)
            return
        loop = self._budget._loop

        def done(_: Future[Any]) -> None:
            # A loop that has ended does not need the bytes.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._budget._released, self)

        job.add_done_callback(done)

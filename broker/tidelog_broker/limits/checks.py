"""Checks what clients send: small work on the event loop, large work in threads, in turns.

The cost of a request is known before the work begins (F1: a batch says how much it decodes to). Small
work is done at once, because passing it to a thread costs more; but the work done so within one
turn of the event loop is bounded, too, because many clients may come at once. The threads serve one owner
after the other. An owner is a call: a call with a thousand large batches does not delay a call with
a single batch.

Neighbours: `api.produce` and `api.log_service` use it, `hosting.threads` has the threads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, NamedTuple

from tidelog.errors import ResourceExhausted, Stopping, TidelogError

INLINE_BYTES_MAX = 2 << 20
"""Work on more bytes is done in a thread. An uncompressed batch of the usual limit has less."""

TURN_BYTES_MAX = 8 << 20
"""Work done in one turn of the event loop, in bytes; it takes some milliseconds."""

QUEUED_BYTES_MAX = 256 << 20
"""Bytes of requests that wait for a thread or are in one; above it requests are refused (retriable)."""


class _Job(NamedTuple):
    work: Callable[[], Any]
    done: Callable[[Any], None]
    bytes: int


class Checks:
    """Does work on requests at once or in threads. All methods run on the event loop."""

    def __init__(self, threads: Executor, threads_max: int) -> None:
        """`threads_max`: jobs that `threads` has at a time; the others wait here, where owners take turns."""
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        self._threads_max = threads_max
        self._running = 0
        self._waiting: dict[object, deque[_Job]] = {}
        """By owner; the owner at the head is next, and goes to the end."""
        self._turn_bytes = 0
        """Of the work that was done in this turn of the event loop."""
        self.queued_bytes = 0

    def here(self, work_bytes: int) -> bool:
        """Whether the caller should do work of so many bytes at once, on the event loop."""
        if work_bytes > INLINE_BYTES_MAX or self._turn_bytes + work_bytes > TURN_BYTES_MAX:
            return False
        if not self._turn_bytes:
            self._loop.call_soon(self._next_turn)
        self._turn_bytes += work_bytes
        return True

    def _next_turn(self) -> None:
        self._turn_bytes = 0

    def submit(self, owner: object, size: int, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Has `work` done in a thread; `done` is given its result or the `TidelogError` that it raised.

        `size` is what the request keeps in memory meanwhile. Raises `ResourceExhausted`. Other
        exceptions of `work` are given to `done` as well: they are bugs.
        """
        if self.queued_bytes and self.queued_bytes + size > QUEUED_BYTES_MAX:
            raise ResourceExhausted(
                f"{self.queued_bytes} bytes of batches wait to be checked on this broker, and at most "
                f"{QUEUED_BYTES_MAX} may wait; try again",
                retry_after_ms=100,
            )
        self.queued_bytes += size
        self._waiting.setdefault(owner, deque()).append(_Job(work, done, size))
        self._start()

    async def run(self, owner: object, size: int, work: Callable[[], Any]) -> Any:
        """As `submit`, for a caller that waits; raises what `work` raises."""
        found: asyncio.Future[Any] = self._loop.create_future()

        def done(outcome: Any) -> None:
            if found.done():
                return
            if isinstance(outcome, BaseException):
                found.set_exception(outcome)
            else:
                found.set_result(outcome)

        self.submit(owner, size, work, done)
        return await found

    def _start(self) -> None:
        while self._waiting and self._running < self._threads_max:
            owner, jobs = next(iter(self._waiting.items()))
            del self._waiting[owner]
            job = jobs.popleft()
            if jobs:
                self._waiting[owner] = jobs
            self._running += 1
            try:
                future = self._loop.run_in_executor(self._threads, job.work)
            except RuntimeError:
                # The threads were shut down.
                self._loop.call_soon(self._end, job, _stopping())
                continue
            future.add_done_callback(lambda done, job=job: self._end(job, _outcome(done)))  # type: ignore[misc]

    def _end(self, job: _Job, outcome: Any) -> None:
        self._running -= 1
        self.queued_bytes -= job.bytes
        self._start()
        job.done(outcome)


def _outcome(future: asyncio.Future[Any]) -> Any:
    if future.cancelled():
        return _stopping()
    error = future.exception()
    return future.result() if error is None else error


def _stopping() -> TidelogError:
    return Stopping("the broker is stopping", retry_after_ms=500)

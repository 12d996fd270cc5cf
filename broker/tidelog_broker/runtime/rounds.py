"""Write rounds and flush rounds: when partitions write, and when that becomes durable.

Everything that is submitted while the event loop is busy with other things is written in
one round; small rounds are written where they stand, because handing a few kilobytes
to a thread costs more than writing them, larger ones in the write thread. What was
written then waits for a flush round. One flush round runs at a time, over all logs with
new bytes, and what is written meanwhile piles up for the next: group commit (DESIGN 4.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from time import perf_counter
from typing import TypeVar

from tidelog_broker.errors import StorageFailure
from tidelog_broker.runtime.appends import Append, Outcome
from tidelog_broker.runtime.clock import Clock
from tidelog_broker.runtime.partition import Partition
from tidelog_broker.storage.store import LogStore

INLINE_WRITE_BYTES_MAX = 32 << 10
"""A round of at most this many bytes is written on the event loop."""

T = TypeVar("T")

Fail = Callable[[BaseException], None]
"""Ends the broker: what is on disk is unknown."""


class WriteRounds:
    """One lane for all writes to logs: a round, or one exclusive piece of work, at a time."""

    def __init__(self, threads: Executor, flushes: FlushRounds, clock: Clock, fail: Fail) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        self._flushes = flushes
        self._clock = clock
        self._fail = fail
        self._waiting: dict[Partition, None] = {}
        self._scheduled = False
        self._busy = False
        self._idle: list[asyncio.Future[None]] = []
        self._drained: list[asyncio.Future[None]] = []
        self.rounds = 0

    @property
    def waiting(self) -> int:
        """Partitions with something to write."""
        return len(self._waiting)

    def request(self, partition: Partition) -> None:
        """Has the partition's queue written in the next round."""
        self._waiting[partition] = None
        if not self._scheduled and not self._busy:
            self._scheduled = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._scheduled = False
        if self._busy or not self._waiting:
            return
        partitions, self._waiting = list(self._waiting), {}
        size = sum(partition.queued_bytes for partition in partitions)
        work = [(partition, partition.take_queue()) for partition in partitions]
        now_us = self._clock()
        self._busy = True
        self.rounds += 1
        if size <= INLINE_WRITE_BYTES_MAX:
            try:
                done = _write(work, now_us)
            except BaseException as error:
                self._broken(error)
                return
            self._end(done)
        else:
            future = self._loop.run_in_executor(self._threads, _write, work, now_us)
            future.add_done_callback(self._written)

    def _written(self, future: asyncio.Future[list[tuple[Partition, list[Outcome]]]]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._broken(error)
        else:
            self._end(future.result())

    def _broken(self, error: BaseException) -> None:
        """The lane stays busy for ever: nothing is written any more."""
        self._fail(error)

    def _end(self, done: list[tuple[Partition, list[Outcome]]]) -> None:
        self._busy = False
        for partition, outcomes in done:
            partition.written(outcomes)
            self._flushes.wrote(partition)
        self._wake()

    def _wake(self) -> None:
        if self._idle:
            self._idle.pop(0).set_result(None)
        elif self._waiting:
            if not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._begin)
        else:
            while self._drained:
                self._drained.pop().set_result(None)

    async def drained(self) -> None:
        """Waits until nothing is queued and nothing is being written."""
        while self._busy or self._waiting:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._drained.append(turn)
            await turn

    async def exclusively(self, work: Callable[[], T]) -> T:
        """Runs `work` in the write thread while no round writes; raises what it raises."""
        while self._busy:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._idle.append(turn)
            await turn
        self._busy = True
        try:
            return await self._loop.run_in_executor(self._threads, work)
        finally:
            self._busy = False
            self._wake()


def _write(work: list[tuple[Partition, list[Append]]], now_us: int) -> list[tuple[Partition, list[Outcome]]]:
    return [(partition, partition.write_round(appends, now_us)) for partition, appends in work]


class FlushRounds:
    """Makes written logs durable, round after round."""

    def __init__(
        self,
        store: LogStore,
        lead: Executor,
        threads: Executor,
        fail: Fail,
        observe: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._lead = lead
        self._threads = threads
        self._fail = fail
        self._observe = observe
        self._dirty: dict[Partition, None] = {}
        self._running: asyncio.Future[None] | None = None
        self.unsaved: dict[Partition, None] = {}
        """Partitions whose recovery point moved since it was last saved."""
        self.rounds = 0
        self.failed = False

    @property
    def waiting(self) -> int:
        """Partitions that wait for the next round."""
        return len(self._dirty)

    def wrote(self, partition: Partition) -> None:
        """Takes note of new bytes: an `fsync` stream is flushed at once, others in the background."""
        self.unsaved[partition] = None
        if partition.fsync:
            self._flush((partition,))
        elif partition.dirty_since is None:
            partition.dirty_since = self._loop.time()

    def request(self, partition: Partition) -> None:
        """Has the partition flushed in the next round."""
        self._flush((partition,))

    def _flush(self, partitions: Iterable[Partition]) -> None:
        self._dirty.update(dict.fromkeys(partitions))
        if self._running is None and self._dirty and not self.failed:
            self._begin()

    def _begin(self) -> None:
        partitions, self._dirty = list(self._dirty), {}
        began = perf_counter()
        logs = [partition.log for partition in partitions]
        future = self._loop.run_in_executor(self._lead, self._store.sync, logs, self._threads)
        self._running = future

        def ended(done: asyncio.Future[None]) -> None:
            self._running = None
            if done.cancelled():
                return
            error = done.exception()
            if error is not None:
                self.failed = True
                self._fail(error)
                return
            self.rounds += 1
            self._observe(perf_counter() - began)
            if self._dirty:
                self._begin()
            for partition in partitions:
                partition.dirty_since = None
                self.unsaved[partition] = None
                partition.advance()

        future.add_done_callback(ended)

    async def flush(self, partitions: Iterable[Partition]) -> None:
        """Has everything durable that was written to `partitions` before the call."""
        wanted = [partition for partition in partitions if partition.log.unsynced]
        self._flush(wanted)
        while self._running is not None or any(partition in self._dirty for partition in wanted):
            if self.failed:
                raise StorageFailure("an earlier flush failed")
            running = self._running
            if running is not None:
                await asyncio.wait([running])
            await asyncio.sleep(0)

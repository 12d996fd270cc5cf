"""Write rounds: when partitions write.

All appends that are submitted while the event loop is busy with other work are written in one round.
Small rounds are written on the event loop while the disk is fast (`inline_writes`), because handing a
few kilobytes to a thread costs more than writing them; larger rounds are written in the write thread.
`round_work` does the work of a round. Written bytes then wait for a flush round (`flush_rounds`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar

import structlog

from tidelog.errors import ResourceExhausted, Stopping, StorageFailed
from tidelog_broker.clock import Clock
from tidelog_broker.errors import StorageFailure
from tidelog_broker.writing.append_requests import Outcome
from tidelog_broker.writing.flush_rounds import Fail, FlushRounds, Isolate
from tidelog_broker.writing.inline_writes import InlineWrites
from tidelog_broker.writing.partition import Partition
from tidelog_broker.writing.round_work import Task, Work, Written, write

log = structlog.get_logger(__name__)

ROUND_BYTES_MAX = 8 << 20
"""About how many bytes of one partition a round writes: a long queue must not delay other partitions."""

QUEUED_BYTES_MAX = 256 << 20
"""Bytes of all partitions that wait to be written; above this limit appends are refused (retriable)."""

TASK_BYTES_MAX = 32 << 20
"""About how many bytes a round with followers' writes has."""

P = ParamSpec("P")
T = TypeVar("T")


class WriteRounds:
    """One lane for all writes to logs: a round, or one exclusive piece of work, at a time."""

    def __init__(
        self,
        threads: Executor,
        flushes: FlushRounds,
        clock: Clock,
        elapsed: Clock,
        fail: Fail,
        isolate: Isolate,
        observe: Callable[[Partition, list[Outcome]], None] = lambda partition, outcomes: None,
        *,
        inline: InlineWrites | None = None,
    ) -> None:
        """`clock` gives the append time of batches, `elapsed` measures how long a round took. `observe` is
        called with the outcomes of the appends of each partition and round. `inline` decides which rounds
        are written on the event loop; None: by the default limits."""
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        self._flushes = flushes
        self._clock = clock
        self._elapsed = elapsed
        self._fail = fail
        self._isolate = isolate
        self._observe = observe
        self._waiting: dict[Partition, None] = {}
        self._tasks: deque[Task] = deque()
        self._queued_bytes = 0
        self._scheduled = False
        self._busy = False
        self._inline = inline or InlineWrites()
        self._idle: list[asyncio.Future[None]] = []
        self._drained: list[asyncio.Future[None]] = []
        self.rounds = 0
        self.inline_rounds = 0
        """How many of `rounds` were written on the event loop."""
        self.broken = False
        """A write could not be undone, or a round failed for an unknown reason: all writing has ended."""

    @property
    def waiting(self) -> int:
        """Number of partitions with appends to write."""
        return len(self._waiting)

    def check_room(self, size: int) -> None:
        """Raises `ResourceExhausted` if `size` more bytes may not wait to be written."""
        if self._queued_bytes and self._queued_bytes + size > QUEUED_BYTES_MAX:
            raise ResourceExhausted(
                f"{self._queued_bytes} bytes wait to be written on this broker, and at most "
                f"{QUEUED_BYTES_MAX} may wait; try again",
                retry_after_ms=100,
            )

    def request(self, partition: Partition, size: int = 0) -> None:
        """Writes the queue of `partition`, which has grown by `size` bytes, in the next round."""
        self._waiting[partition] = None
        self._queued_bytes += size
        self._schedule()

    def do(self, task: Task) -> None:
        """Does `task` in the next round, after earlier tasks."""
        self._tasks.append(task)
        self._schedule()

    def _schedule(self) -> None:
        if (self._waiting or self._tasks) and not self._scheduled and not self._busy:
            self._scheduled = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._scheduled = False
        if self._busy or not (self._waiting or self._tasks):
            return
        partitions, self._waiting = list(self._waiting), {}
        size = 0
        inline = True
        work: Work = []
        for partition in partitions:
            before = partition.queued_bytes
            work.append((partition, partition.take_queue(ROUND_BYTES_MAX)))
            size += before - partition.queued_bytes
            # The first write since the start may have to read the log for the append guard.
            inline = inline and partition.replica.warm
            if partition.queued:
                self._waiting[partition] = None
        # Counted again, because a partition that was given up emptied its queue without a round.
        self._queued_bytes = sum(partition.queued_bytes for partition in self._waiting)
        tasks: list[Task] = []
        while self._tasks and size < TASK_BYTES_MAX:
            tasks.append(self._tasks.popleft())
            size += tasks[-1].bytes
        now_us = self._clock()
        self._busy = True
        self.rounds += 1
        if inline and self._inline.may(size, flushing=self._flushes.running):
            try:
                done = write(work, tasks, now_us, self._elapsed)
            except BaseException as error:
                self._broken(work, error)
                return
            self.inline_rounds += 1
            self._end(tasks, done)
            if self._inline.slow:
                log.warning("a write held up the event loop; the write thread writes until it is fast again",
                            seconds=done.seconds, bytes=size)  # fmt: skip
            return
        future = self._loop.run_in_executor(self._threads, write, work, tasks, now_us, self._elapsed)
        future.add_done_callback(lambda written: self._written(work, tasks, written))

    def _written(self, work: Work, tasks: list[Task], future: asyncio.Future[Written]) -> None:
        if future.cancelled():
            self._broken(work, StorageFailure("the write thread ended"))
            return
        error = future.exception()
        if isinstance(error, Stopping):
            self._not_begun(work, tasks, error)
        elif error is not None:
            self._broken(work, error)
        else:
            self._end(tasks, future.result())

    def _not_begun(self, work: Work, tasks: list[Task], error: Stopping) -> None:
        """The threads stopped before the round: nothing of it was written."""
        self._busy = False
        for partition, appends in work:
            partition.written([(append, error) for append in appends])
        for task in tasks:
            task.done(error)
        self._wake()

    def _broken(self, work: Work, error: BaseException) -> None:
        """The lane stays busy forever: nothing more is written, and all waiting callers get an error."""
        self.broken = True
        self._fail(error)
        answer = StorageFailed(f"the broker's storage failed: {error}")
        for partition, appends in work:
            partition.written([(append, answer) for append in appends])
        for waiter in (*self._idle, *self._drained):
            if not waiter.done():
                waiter.set_exception(StorageFailure(f"a write round failed ({error})"))
                waiter.exception()  # marks the error as retrieved, even if no caller still waits
        self._idle, self._drained = [], []

    def _end(self, tasks: list[Task], done: Written) -> None:
        self._busy = False
        self._inline.took(done.seconds)
        for partition, unforeseen in done.unforeseen.items():
            self._isolate(partition, unforeseen)
        for partition, outcomes in done.appends:
            self._tell(partition, self._answer, partition, outcomes)
        # Also after a task that failed: it may have written a part.
        self._flushes.wrote(*(partition for partition, _ in done.appends), *(one.partition for one in tasks))
        for task, error in zip(tasks, done.tasks, strict=True):
            self._tell(task.partition, task.done, error)
        self._wake()

    def _answer(self, partition: Partition, outcomes: list[Outcome]) -> None:
        partition.written(outcomes)
        self._observe(partition, outcomes)

    def _tell(self, partition: Partition, tell: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """An error while one partition handles its outcomes must not prevent the answers of the others."""
        try:
            tell(*args, **kwargs)
        except Exception as error:
            self._isolate(partition, error)

    def _wake(self) -> None:
        """Gives the lane to the next piece of work; exclusive work runs before rounds."""
        while self._idle:
            waiter = self._idle.pop(0)
            if not waiter.done():
                waiter.set_result(None)
                return
        self._schedule()
        if not self._waiting and not self._tasks:
            drained, self._drained = self._drained, []
            for waiter in drained:
                if not waiter.done():
                    waiter.set_result(None)

    def _refuse_broken(self) -> None:
        if self.broken:
            raise StorageFailure("an earlier write failed")

    async def drained(self) -> None:
        """Waits until nothing is queued and nothing is being written; raises `StorageFailure`."""
        while self._busy or self._waiting or self._tasks:
            self._refuse_broken()
            turn: asyncio.Future[None] = self._loop.create_future()
            self._drained.append(turn)
            await turn

    async def drained_of(self, partitions: Iterable[Partition]) -> None:
        """Waits until no write of these partitions runs or waits; they must not ask for more writes."""
        gone = frozenset(partitions)
        waiting = True
        while waiting:
            self._refuse_broken()
            # Exclusive work waits for the round that is being written, and runs before the waiting rounds.
            waiting = any(task.partition in gone for task in self._tasks)
            await self.exclusively(lambda: None)
            await asyncio.sleep(0)

    async def exclusively(self, work: Callable[[], T]) -> T:
        """Runs `work` in the write thread while no round writes; raises the same errors as `work`.

        Once begun, the work runs to its end and holds the lane until then, even if the caller is
        cancelled. Raises `StorageFailure` if an earlier round failed.
        """
        while self._busy:
            self._refuse_broken()
            turn: asyncio.Future[None] = self._loop.create_future()
            self._idle.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake()
                raise
        self._busy = True
        running = self._loop.run_in_executor(self._threads, work)
        running.add_done_callback(self._released)
        return await asyncio.shield(running)

    def _released(self, done: asyncio.Future[T]) -> None:
        if not done.cancelled():
            done.exception()  # the caller gets the error, unless it was cancelled
        self._busy = False
        self._wake()

"""Write rounds: when partitions write.

Everything that is submitted while the event loop is busy with other things is written in one round.
Small rounds are written on the event loop while the disk is quick (`inline_writes`), because handing a
few kilobytes to a thread costs more than writing them; larger ones are written in the write thread.
`round_work` is what a round does. What was written then waits for a flush round (`flush_rounds`).
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
"""Of one partition in one round, about: a long queue must not hold up the others."""

QUEUED_BYTES_MAX = 256 << 20
"""Bytes that wait to be written, all partitions together; over it appends are refused (retriable)."""

TASK_BYTES_MAX = 32 << 20
"""Of followers' writes in one round, about."""

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
        """`clock` says when a batch is appended, `elapsed` how long a round took. `observe` sees what became
        of the appends of each partition and round. `inline` says which rounds are written on the event loop;
        None: the usual ones."""
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
        """Those of `rounds` that were written on the event loop."""
        self.broken = False
        """A write could not be undone, or a round failed for no known reason: nothing is written any more."""

    @property
    def waiting(self) -> int:
        """Partitions with something to write."""
        return len(self._waiting)

    def check_room(self, size: int) -> None:
        """Raises `ResourceExhausted` if `size` more bytes may not wait to be written."""
        if self._queued_bytes and self._queued_bytes + size > QUEUED_BYTES_MAX:
            raise ResourceExhausted(
                f"{self._queued_bytes} bytes wait to be written on this broker; {QUEUED_BYTES_MAX} may "
                f"(broker_queue_bytes_max)",
                retry_after_ms=100,
            )

    def request(self, partition: Partition, size: int = 0) -> None:
        """Has the partition's queue, which has grown by `size` bytes, written in the next round."""
        self._waiting[partition] = None
        self._queued_bytes += size
        self._schedule()

    def do(self, task: Task) -> None:
        """Has `task` done in the next round, after those that came before it."""
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
        # Counted again, because a partition that was given up has emptied its queue by itself.
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
        """The threads stopped before it: nothing of the round was written."""
        self._busy = False
        for partition, appends in work:
            partition.written([(append, error) for append in appends])
        for task in tasks:
            task.done(error)
        self._wake()

    def _broken(self, work: Work, error: BaseException) -> None:
        """The lane stays busy for ever: nothing is written any more, and nobody waits for it."""
        self.broken = True
        self._fail(error)
        answer = StorageFailed(f"the broker's storage failed: {error}")
        for partition, appends in work:
            partition.written([(append, answer) for append in appends])
        for waiter in (*self._idle, *self._drained):
            if not waiter.done():
                waiter.set_exception(StorageFailure(f"a write round failed ({error})"))
                waiter.exception()  # it counts as seen, whether or not somebody still waits
        self._idle, self._drained = [], []

    def _end(self, tasks: list[Task], done: Written) -> None:
        self._busy = False
        self._inline.took(done.seconds)
        for partition, unforeseen in done.unforeseen.items():
            self._isolate(partition, unforeseen)
        for partition, outcomes in done.appends:
            self._tell(partition, self._answer, partition, outcomes)
        # Of a task that failed, too: it may have written a part.
        self._flushes.wrote(*(partition for partition, _ in done.appends), *(one.partition for one in tasks))
        for task, error in zip(tasks, done.tasks, strict=True):
            self._tell(task.partition, task.done, error)
        self._wake()

    def _answer(self, partition: Partition, outcomes: list[Outcome]) -> None:
        partition.written(outcomes)
        self._observe(partition, outcomes)

    def _tell(self, partition: Partition, tell: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """What one partition makes of a round must not keep the others of it from their answers."""
        try:
            tell(*args, **kwargs)
        except Exception as error:
            self._isolate(partition, error)

    def _wake(self) -> None:
        """Lets the next piece of work have the lane: exclusive work goes before rounds."""
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
        """Waits until nothing of these is being written or on its way there; they want nothing more."""
        gone = frozenset(partitions)
        waiting = True
        while waiting:
            self._refuse_broken()
            # Exclusive work waits for what is being written, and goes before what is not yet.
            waiting = any(task.partition in gone for task in self._tasks)
            await self.exclusively(lambda: None)
            await asyncio.sleep(0)

    async def exclusively(self, work: Callable[[], T]) -> T:
        """Runs `work` in the write thread while no round writes; raises what it raises.

        Once begun it runs to its end, and holds the lane until then, even if the caller is
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
            done.exception()  # the caller meets it, unless it was cancelled
        self._busy = False
        self._wake()

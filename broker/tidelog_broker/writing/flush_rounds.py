"""Flush rounds make written bytes durable.

Only one round runs at a time, and it flushes all logs with new bytes. Bytes written meanwhile wait for the
next round: this is group commit (DESIGN 4.3). Where that is safe (`storage.files.volume_flush`), a round over
many logs is one flush of the whole file system. Neighbour: `write_rounds` writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor

from tidelog.errors import Stopping
from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.volume_flush import VOLUME_FLUSH_LOGS_MIN
from tidelog_broker.writing.partition import Partition

Fail = Callable[[BaseException], None]
"""Ends the broker, because the contents of the disk are unknown."""

Isolate = Callable[[Partition, Exception], None]
"""Ends the service of one partition in this run, because it raised an unexpected exception."""


class FlushRounds:
    """Makes written logs durable, round after round."""

    def __init__(
        self,
        store: LogStore,
        lead: Executor,
        threads: Executor,
        fail: Fail,
        isolate: Isolate,
        observe: Callable[[float], None] = lambda seconds: None,
        *,
        syncfs_dirty_bytes_max: int = 4 << 20,
    ) -> None:
        """`observe` is called with the duration of each round. `syncfs_dirty_bytes_max`: the whole file
        system is flushed only if other logs have at most this many unflushed bytes."""
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._syncfs_dirty_bytes_max = syncfs_dirty_bytes_max
        self._lead = lead
        self._threads = threads
        self._fail = fail
        self._isolate = isolate
        self._observe = observe
        self._dirty: dict[Partition, None] = {}
        self._running = False
        self._begun = 0
        """Number of rounds that began. A ticket is the number of the first round that begins after a call."""
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        """Round number, and the future that completes at its end; the earliest round first."""
        self.unsaved: dict[Partition, None] = {}
        """Partitions with a recovery point that moved since it was last saved."""
        self.rounds = 0
        self.whole_rounds = 0
        """How many of `rounds` flushed the file system as a whole."""
        self._over: StorageFailure | Stopping | None = None
        """The reason why no further round begins; None: rounds can begin."""

    @property
    def failed(self) -> bool:
        """No further round begins: a flush failed, or the threads stopped."""
        return self._over is not None

    @property
    def running(self) -> bool:
        """A flush round is running."""
        return self._running

    @property
    def waiting(self) -> int:
        """Partitions that wait for the next round."""
        return len(self._dirty)

    def wrote(self, *partitions: Partition) -> None:
        """New bytes were written: `fsync` streams are flushed at once, others in the background."""
        flushed: list[Partition] = []
        for partition in partitions:
            if partition.removed:
                continue
            self.unsaved[partition] = None
            if partition.replica.fsync:
                flushed.append(partition)
            elif partition.dirty_since is None:
                partition.dirty_since = self._loop.time()
        self._flush(flushed)

    def request(self, partition: Partition) -> None:
        """Adds the partition to the next flush round."""
        self._flush((partition,))

    def _flush(self, partitions: Iterable[Partition]) -> None:
        self._dirty.update(dict.fromkeys(partitions))
        if not self._running and self._dirty and not self.failed:
            self._begin()

    def _begin(self) -> None:
        partitions, self._dirty = list(self._dirty), {}
        self._running = True
        self._begun += 1
        began = self._loop.time()
        beside = self._beside(partitions) if self._store.volume is not None else None
        whole = beside is not None
        if beside:
            # This round brings them to the disk too, so they need no flush of their own.
            partitions += beside
        logs = [partition.log for partition in partitions]
        # Bytes written from here on are not in this round, so their time starts again.
        for partition in partitions:
            partition.dirty_since = None
        future = self._loop.run_in_executor(
            self._lead, lambda: self._store.sync(logs, self._threads, whole=whole)
        )
        future.add_done_callback(lambda done: self._ended(partitions, began, whole, done))

    def _beside(self, partitions: list[Partition]) -> list[Partition] | None:
        """The other partitions with unflushed bytes, if the whole file system is flushed; None: it is not."""
        if len(partitions) < VOLUME_FLUSH_LOGS_MIN:
            return None
        asked = dict.fromkeys(partitions)
        beside = [one for one in self.unsaved if one.dirty_since is not None and one not in asked]
        unflushed = sum(one.log.flusher.unsynced_bytes for one in beside)
        return beside if unflushed <= self._syncfs_dirty_bytes_max else None

    def _ended(
        self, partitions: list[Partition], began: float, whole: bool, done: asyncio.Future[None]
    ) -> None:
        self._running = False
        error = StorageFailure("the flush thread ended") if done.cancelled() else done.exception()
        if isinstance(error, Stopping):
            # The threads stopped before the flush began: no flush failed, and no flush follows.
            self._release(error)
            return
        if error is not None:
            self._over = self._over or StorageFailure("an earlier flush failed")
            self._fail(error)
            self._release(StorageFailure(f"a flush failed ({error})"))
            return
        self.rounds += 1
        self.whole_rounds += whole
        self._observe(self._loop.time() - began)
        ended = self._begun
        if self._dirty and not self.failed:
            self._begin()
        for partition in partitions:
            if not partition.removed:
                self.unsaved[partition] = None
            try:
                partition.flushed()
            except Exception as unforeseen:
                # The other partitions of the round must still be notified.
                self._isolate(partition, unforeseen)
        while self._waiters and self._waiters[0][0] <= ended:
            waiter = self._waiters.pop(0)[1]
            if not waiter.done():
                waiter.set_result(None)

    def end(self, error: BaseException) -> None:
        """The broker failed: no further round begins, because its threads are about to end."""
        self._release(StorageFailure(f"the broker's storage failed ({error})"))

    def _release(self, error: StorageFailure | Stopping) -> None:
        self._over = self._over or error
        waiters, self._waiters = self._waiters, []
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
                waiter.exception()  # marks the error as retrieved, even if no caller still waits

    async def flush(self, partitions: Iterable[Partition]) -> None:
        """Makes all bytes durable that were written to `partitions` before the call.

        Waits for one round, or for two if a round is running, however much is written meanwhile.
        Raises `StorageFailure`, and `Stopping` once the threads stopped.
        """
        ticket = self._begun + 1
        self._flush([partition for partition in partitions if partition.log.flusher.unsynced])
        await self._round(ticket if self._dirty else self._begun)

    async def forget(self, partitions: Iterable[Partition]) -> None:
        """Ends the flushing of these partitions; after it returns no round touches them.

        Raises the same errors as `flush`.
        """
        for partition in partitions:
            self._dirty.pop(partition, None)
            self.unsaved.pop(partition, None)
        await self._round(self._begun)

    async def _round(self, number: int) -> None:
        if self._over is not None:
            raise self._over
        if number < self._begun or (number == self._begun and not self._running):
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((number, waiter))
        await waiter

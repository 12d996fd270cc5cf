"""The periodic work of a broker: checkpoints, background flushes, retention, rolls by age, deletion.

One task serves the whole broker, no matter how many partitions it has (DESIGN section 7). It
looks only at partitions that changed, except in the sweep, which is rare. File work runs
in the housekeeping thread; changes of the active segment run in the write lane.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Executor
from typing import NamedTuple, TypeVar

import structlog

from tidelog.errors import TidelogError
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.errors import StorageFailure
from tidelog_broker.membership.cluster_clock import ClusterClock
from tidelog_broker.storage.directory.folders import deleted_stream
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.reserve import Reserve
from tidelog_broker.storage.guard.sink_batches import KnownSinks
from tidelog_broker.upkeep.age_retention import AgeRetention, bounds_of
from tidelog_broker.writing.flush_rounds import Fail, FlushRounds
from tidelog_broker.writing.partition import Partition
from tidelog_broker.writing.write_rounds import WriteRounds

log = structlog.get_logger(__name__)

T = TypeVar("T")

START_RETRY_SECONDS = 1.0
"""Pause after log start offsets could not be saved."""

TICK_SECONDS = 0.1
"""Interval between two checks of deadlines and background flushes, while there is work to do."""


class MaintenanceLimits(NamedTuple):
    """The intervals and limits of maintenance; `config` explains the settings."""

    checkpoint_interval: float = 1.0
    """Seconds."""
    page_cache_flush_interval: float = 30.0
    """Seconds."""
    page_cache_dirty_bytes_max: int = 256 << 20
    sweep_interval: float = 10.0
    """Seconds."""
    deleted_delay: float = 60.0
    """Seconds."""


class _WantedStart(NamedTuple):
    """A log start offset that a role asked for. A later role may have another log, so it asks again."""

    offset: int
    role_number: int


class Maintenance:
    """The periodic task of one broker."""

    def __init__(
        self,
        store: LogStore,
        partitions: Mapping[tuple[bytes, int], Partition],
        rounds: WriteRounds,
        flushes: FlushRounds,
        housekeeping: Executor,
        clock: ClusterClock,
        fail: Fail,
        limits: MaintenanceLimits,
        *,
        image: Callable[[], ClusterImage],
        newest: Callable[[], Awaitable[ClusterImage]],
        reserve: Reserve | None = None,
        retry: Callable[[], None] = lambda: None,
    ) -> None:
        """`partitions` are the broker's partitions, shared with it.

        `image` returns the image of this broker, and `newest` the image with all entries that are committed
        by now (M5). `reserve` allows checkpoints on a full disk. `retry` is called periodically to repeat
        work that failed because the disk was full.
        """
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._rounds = rounds
        self._flushes = flushes
        self._housekeeping = housekeeping
        self._clock = clock
        self.retention = AgeRetention(store, clock)
        self._fail = fail
        self._limits = limits
        self._image = image
        self._newest = newest
        self._reserve = reserve
        self._retry = retry
        self._deleted: list[tuple[float, str]] = [(0.0, path) for path in store.folders.deleted()]
        self._partitions = partitions
        self._starts: dict[Partition, _WantedStart] = {}
        """Log start offsets that roles asked for and that are not saved yet."""
        self._moving: asyncio.Task[None] | None = None
        self._removing: asyncio.Task[None] | None = None
        self.writing: dict[Partition, None] = {}
        """Partitions with appends that wait for their commit and may pass their deadline."""

    async def run(self) -> None:
        """Runs until cancelled."""
        next_checkpoint = next_sweep = self._loop.time()
        while True:
            await asyncio.sleep(TICK_SECONDS if self.busy else self._limits.checkpoint_interval)
            now = self._loop.time()
            await self._guarded("deadlines", self._tick)
            if now >= next_checkpoint:
                next_checkpoint = now + self._limits.checkpoint_interval
                if self._flushes.unsaved:
                    await self._guarded("checkpoint", self.checkpoint)
                await self._guarded("reserve", self._keep_reserve)
            if now >= next_sweep:
                next_sweep = now + self._limits.sweep_interval
                await self._guarded("sweep", self.sweep)

    async def _tick(self) -> None:
        self._expire()
        self._flush_old()

    async def _keep_reserve(self) -> None:
        """Fills the reserve again once there is space, and repeats work that failed on the full disk."""
        if self._reserve is not None and not self._reserve.held:
            await self._in_thread(self._reserve.restore)
        self._retry()

    @property
    def busy(self) -> bool:
        return bool(self.writing or self._flushes.unsaved)

    async def _guarded(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Runs work that is tried again later after a full disk or a bug. A failed flush ends the broker."""
        try:
            await work()
        except StorageFailure as error:
            self._fail(error)
        except (OSError, TidelogError) as error:
            log.warning("maintenance failed; the broker tries again", what=what, error=str(error))
        except Exception:
            log.exception("maintenance failed unexpectedly; the broker tries again", what=what)

    def deleted(self, path: str | None) -> None:
        """Schedules the removal of a deleted stream's folder after the delay."""
        if path is not None:
            self._deleted.append((self._loop.time() + self._limits.deleted_delay, path))

    def _expire(self) -> None:
        now = self._loop.time()
        for partition in list(self.writing):
            partition.expire(now)
            if not partition.waiting:
                del self.writing[partition]

    def _flush_old(self) -> None:
        """Flushes page-cache streams whose unsynced bytes are too old or too many (DESIGN 4, 2b)."""
        now = self._loop.time()
        dirty = [p for p in self._flushes.unsaved if p.dirty_since is not None]
        held = sum(p.log.flusher.unsynced_bytes for p in dirty)
        for partition in dirty:
            assert partition.dirty_since is not None
            if (
                held > self._limits.page_cache_dirty_bytes_max
                or now - partition.dirty_since > self._limits.page_cache_flush_interval
            ):
                self._flushes.request(partition)

    async def checkpoint(self) -> None:
        """Saves recovery points, high watermarks and log start offsets that moved."""
        unsaved = list(self._flushes.unsaved)
        for partition in unsaved:
            # A partition that is still dirty stays listed until it is flushed.
            if partition.dirty_since is None:
                del self._flushes.unsaved[partition]
        changed = [partition for partition in unsaved if not partition.removed]
        try:
            await self._save(changed)
        except OSError:
            self._flushes.unsaved.update(dict.fromkeys(p for p in changed if not p.removed))
            raise

    async def _save(self, partitions: Iterable[Partition]) -> None:
        entries = [(partition.log, partition.high_watermark) for partition in partitions]
        await self._saved(lambda: self._store.saved.save(entries))

    async def _saved(self, save: Callable[[], None]) -> None:
        """Saves in the housekeeping thread, with the reserve's space if the disk is full. Raises OSError."""
        reserve = self._reserve
        await self._in_thread(save if reserve is None else lambda: reserve.run(save))

    async def sweep(self) -> None:
        """Rolls segments by age, applies retention, drops the state of sinks that have ended, and starts the
        removal of deleted streams' files."""
        now_us = self._clock.append_us()
        old = await self._in_thread(self._due_actives, list(self._partitions.values()), now_us)
        for partition in old:
            if not partition.removed:
                await self._rounds.exclusively(partition.log.writer.roll)
                self._flushes.wrote(partition)
        await self._forget(
            # Only a leader moves the log start (R11).
            [p for p in self._partitions.values() if p.leads and not bounds_of(p.config.retention).unlimited]
        )
        # Files that could not be removed earlier, also on followers.
        await self._free([p for p in self._partitions.values() if p.log.start.has_files_below])
        await self._in_thread(self._keep_sinks, list(self._partitions.values()))
        if self._removing is None or self._removing.done():
            # In a task of its own: without a controller it waits, but deadlines and checkpoints must not.
            self._removing = asyncio.create_task(self._guarded("deleted files", self.remove_deleted))

    async def remove_deleted(self) -> None:
        """Removes the folders of deleted streams for good, after a majority confirmed the deletion (M5)."""
        due = [entry for entry in self._deleted if entry[0] <= self._loop.time()]
        if not due:
            return
        image = await self._newest()
        for entry in due:
            self._deleted.remove(entry)
            stream_id = deleted_stream(entry[1])
            if stream_id in image.streams:
                # The metadata was recovered by force and lost the deletion: the broker cannot decide.
                log.error(
                    "a folder is marked as deleted, but its stream exists; the folder is kept",
                    folder=entry[1],
                )
                continue
            try:
                await self._in_thread(self._store.folders.remove_deleted, entry[1])
            except OSError:
                self._deleted.append(entry)
                raise

    def _keep_sinks(self, partitions: Iterable[Partition]) -> None:
        """On followers too: a follower may lead later, and its memory has the same limit."""
        image = self._image()
        known = KnownSinks(image.next_sink_number, image.sink_names)
        for partition in partitions:
            if not partition.removed:
                partition.log.guarding.keep_sinks(known)

    @staticmethod
    def _due_actives(partitions: Iterable[Partition], now_us: int) -> list[Partition]:
        return [p for p in partitions if _or_warn(p, lambda p: p.log.writer.is_due(now_us), False)]

    async def _forget(self, partitions: list[Partition]) -> None:
        roles = {partition: partition.replica.role_number for partition in partitions}
        starts = await self._in_thread(self.retention.look, partitions, self._clock.retention_us())
        # If the role ended meanwhile, another leader decides.
        moved = [
            (p, start)
            for p, start in starts
            if p.replica.role_number == roles[p] and start > p.log.start_offset
        ]
        if moved:
            await self.advance_starts(moved)

    def request_start(self, partition: Partition, offset: int) -> None:
        """Schedules a move of a log start offset, together with others; calls `start_moved` afterwards."""
        self._starts[partition] = _WantedStart(offset, partition.replica.role_number)
        if self._moving is None:
            self._moving = self._loop.create_task(self._move_starts(), name="log start offsets")

    async def _move_starts(self) -> None:
        """Repeats until all offsets are saved: a role waits for its move and asks for no other meanwhile."""
        try:
            while self._starts:
                starts, self._starts = self._starts, {}
                try:
                    await self.advance_starts(
                        [
                            (p, want.offset)
                            for p, want in starts.items()
                            if want.role_number == p.replica.role_number
                        ]
                    )
                except OSError as error:
                    log.warning(
                        "log start offsets could not be saved; the broker tries again", error=str(error)
                    )
                    self._starts = {**starts, **self._starts}
                    await asyncio.sleep(START_RETRY_SECONDS)
        except Exception as error:
            self._fail(error)
        finally:
            self._moving = None

    async def stop(self) -> None:
        """Stops moving log start offsets and removing files."""
        for task in (self._moving, self._removing):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def advance_starts(self, starts: list[tuple[Partition, int]]) -> None:
        """Moves log start offsets, first on disk (R11), and then removes the segments below them.

        Raises OSError if the offsets could not be saved. Then none has moved, also not in memory, so
        that the next sweep asks for the same offsets again. A later sweep removes files that
        cannot be removed now.
        """
        starts = [(partition, start) for partition, start in starts if not partition.removed]
        entries = [(partition.log, partition.high_watermark, start) for partition, start in starts]
        await self._saved(lambda: self._store.saved.advance_starts(entries))
        for partition, _ in starts:
            partition.replica.start_moved()
        await self._free([partition for partition, _ in starts])

    async def _free(self, partitions: Iterable[Partition]) -> None:
        """Removes segments below log start offsets; a failure in one partition does not affect the others."""
        for partition in partitions:
            if partition.removed:
                continue
            try:
                freed = await self._in_thread(partition.log.start.remove_files_below)
            except OSError as error:
                log.warning(
                    "segments below the log start could not be removed; the broker tries again",
                    stream=partition.name, partition=partition.partition, error=str(error),
                )  # fmt: skip
                continue
            except StorageFailure as error:
                self._fail(error)
                return
            if freed:
                log.info(
                    "retention freed segments",
                    stream=partition.name, partition=partition.partition, bytes=freed,
                    log_start_offset=partition.log.start_offset,
                )  # fmt: skip

    def _in_thread(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        return self._loop.run_in_executor(self._housekeeping, function, *args)


def _or_warn(partition: Partition, look: Callable[[Partition], T], otherwise: T) -> T:
    """Calls `look`; if the log cannot be read, warns and returns `otherwise`, so that other logs go on."""
    try:
        return look(partition)
    except (OSError, TidelogError) as error:
        if not partition.removed:
            log.warning(
                "maintenance could not read a log and skips it until its next pass",
                stream=partition.name, partition=partition.partition, error=str(error),
            )  # fmt: skip
        return otherwise

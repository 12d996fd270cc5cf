"""One broker: its partitions, kept as the image says, and the parts that serve them.

A list of parts, started in order and stopped in reverse (DESIGN section 7). What the
parts do stands in their own modules; what doors need of them goes through here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog

from tidelog.errors import (
    DataCorrupt,
    NotLeader,
    PartitionNotFound,
    Stopping,
    StorageFailed,
    StreamNotFound,
    TidelogError,
    TimedOut,
    Unavailable,
)
from tidelog.model import StreamConfig, id_text
from tidelog_broker.core.metadata.delta import delta_between
from tidelog_broker.core.metadata.image import ClusterImage, StreamImage
from tidelog_broker.errors import StorageFailure
from tidelog_broker.metrics import Metrics, Sample
from tidelog_broker.runtime.appends import Append
from tidelog_broker.runtime.clock import Clock
from tidelog_broker.runtime.controller import Controller
from tidelog_broker.runtime.counting import count_appends
from tidelog_broker.runtime.maintenance import Maintenance
from tidelog_broker.runtime.partition import Partition
from tidelog_broker.runtime.rounds import FlushRounds, WriteRounds
from tidelog_broker.storage.append_guard import GuardLimits
from tidelog_broker.storage.log import LogConfig, PartitionLog
from tidelog_broker.storage.reserve import Reserve
from tidelog_broker.storage.store import LogStore, Wanted

log = structlog.get_logger(__name__)

STOP_COMMIT_SECONDS_MAX = 10.0
"""How long a stop waits for appends that are in flight."""

CREATIONS_MAX = 8
"""Partitions made at a time: each waits for its folder to be on disk."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """Times in seconds, sizes in bytes; see `config` for what they mean."""

    produce_timeout: float = 30.0
    checkpoint_interval: float = 1.0
    page_cache_flush_interval: float = 30.0
    page_cache_dirty_bytes_max: int = 256 << 20
    sweep_interval: float = 10.0
    deleted_delay: float = 60.0
    flush_threads: int = 4
    catch_up_threads: int = 2


class PartitionListener(Protocol):
    """Somebody who follows which partitions this broker leads (the NATS recorder)."""

    def partition_added(self, partition: Partition) -> None: ...

    def partition_changed(self, partition: Partition) -> None: ...

    def partition_removed(self, partition: Partition) -> None: ...

    async def settled(self) -> None:
        """Waits until what was said by the calls before has taken effect."""


class Broker:
    """See the module."""

    def __init__(
        self,
        broker_id: int,
        store: LogStore,
        controller: Controller,
        clock: Clock,
        limits: BrokerLimits,
        reserve: Reserve | None = None,
    ) -> None:
        """`reserve`: what keeps checkpoints alive on a full disk; None: nothing does."""
        self._loop = asyncio.get_running_loop()
        self.broker_id = broker_id
        self.controller = controller
        self.clock = clock
        self.limits = limits
        self.metrics = Metrics(self._samples)
        self.failed: asyncio.Future[BaseException] = self._loop.create_future()
        """Done when storage can no longer be trusted: the process must end."""
        self.partitions: dict[tuple[bytes, int], Partition] = {}
        self.lost: dict[tuple[bytes, int], str] = {}
        """Partitions of ours without a usable log, and why."""
        self.strays: list[str] = []
        self.ready_reason: str | None = "starting"
        """Why the broker is not ready; None: it is."""
        self._store = store
        self._write_thread = ThreadPoolExecutor(1, "tidelog-write")
        self._flush_lead = ThreadPoolExecutor(1, "tidelog-flush")
        self._flush_threads = ThreadPoolExecutor(limits.flush_threads, "tidelog-flush-file")
        self._catch_up = ThreadPoolExecutor(limits.catch_up_threads, "tidelog-catch-up")
        self._housekeeping = ThreadPoolExecutor(1, "tidelog-housekeeping")
        self._creation = ThreadPoolExecutor(CREATIONS_MAX, "tidelog-create")
        self._flushes = FlushRounds(
            store, self._flush_lead, self._flush_threads, self.fail, self.metrics.flush_seconds.observe
        )
        self._rounds = WriteRounds(
            self._write_thread, self._flushes, clock, self.fail, partial(count_appends, self.metrics)
        )
        self._maintenance = Maintenance(
            store,
            self._rounds,
            self._flushes,
            self._housekeeping,
            clock,
            self.fail,
            checkpoint_interval=limits.checkpoint_interval,
            page_cache_flush_interval=limits.page_cache_flush_interval,
            page_cache_dirty_bytes_max=limits.page_cache_dirty_bytes_max,
            sweep_interval=limits.sweep_interval,
            deleted_delay=limits.deleted_delay,
            reserve=reserve,
            retry=self._retry_missing,
        )
        self._maintenance.partitions = self.partitions
        self._maintaining: asyncio.Task[None] | None = None
        self._listeners: list[PartitionListener] = []
        self._images: asyncio.Queue[tuple[ClusterImage, ClusterImage]] = asyncio.Queue()
        self._following: asyncio.Task[None] | None = None
        self._applied = 0
        self._applied_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._uncreated: set[tuple[bytes, int]] = set()
        """Partitions whose folder could not be made yet; tried again now and then."""
        self._stopping = False
        self._opened: dict[tuple[bytes, int], PartitionLog] = {}

    # --- starting and stopping

    async def open_logs(self, *, same_boot: bool) -> None:
        """Opens the log of every partition that the image places here; everything read is then on disk."""
        image = self.controller.image
        wanted = [want for stream in image.streams.values() for want in self._wanted(stream)]
        opened = await self.in_housekeeping_thread(
            lambda: self._store.open_all(wanted, same_boot=same_boot, threads=self._flush_threads)
        )
        self.strays = opened.strays
        for path in opened.strays:
            log.warning("a folder belongs to no partition of this broker; it is kept", folder=path)
        for lost in opened.lost:
            self.lost[lost.wanted.stream_id, lost.wanted.partition] = lost.reason
            log.error(
                "a partition has no usable log", stream=lost.wanted.name, partition=lost.wanted.partition,
                reason=lost.reason,
            )  # fmt: skip
        self._opened = opened.logs

    def start(self) -> None:
        """Begins to lead what the image says, in the epochs that the image says (R10)."""
        image = self.controller.image
        for (stream_id, number), one in self._opened.items():
            self._add(image.streams[stream_id], number, one)
        self._opened = {}
        self._applied = image.version
        self.controller.watch(lambda old, new: self._images.put_nowait((old, new)))
        self._following = asyncio.create_task(self._follow_image())
        self._maintaining = asyncio.create_task(self._maintenance.run())
        self.ready_reason = None

    async def stop(self) -> None:
        """Commits what is in flight, flushes, and leaves the mark of a clean stop."""
        self._stopping = True
        self.ready_reason = "stopping"
        for partition in self.partitions.values():
            partition.stopped = True
        with contextlib.suppress(TimeoutError, StorageFailure):
            async with asyncio.timeout(STOP_COMMIT_SECONDS_MAX):
                if not self.failed.done():
                    await self._rounds.drained()
                    await self._flushes.flush(p for p in self.partitions.values() if p.fsync)
        for partition in self.partitions.values():
            partition.give_up(
                Stopping("the broker is stopping", retry_after_ms=500),
                TimedOut("the broker stopped before it knew of the commit; the records may be in the log"),
            )
        for task in (self._following, self._maintaining):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._settle_waiters(Stopping("the broker is stopping", retry_after_ms=500))
        if not self.failed.done():
            await self._close_clean()
        for threads in (
            self._write_thread, self._flush_lead, self._flush_threads, self._catch_up, self._housekeeping,
            self._creation,
        ):  # fmt: skip
            threads.shutdown(wait=not self.failed.done(), cancel_futures=True)

    async def _close_clean(self) -> None:
        entries = [(partition.log, partition.high_watermark) for partition in self.partitions.values()]
        try:
            await self._rounds.exclusively(lambda: None)
            await self._loop.run_in_executor(self._flush_lead, self._store.close_clean, entries)
        except StorageFailure as error:
            self.fail(error)
        except OSError as error:
            log.warning("the clean stop could not be marked; the next start recovers", error=str(error))

    def fail(self, error: BaseException) -> None:
        """Storage cannot be trusted any more: nothing is acknowledged from here on (DESIGN 4.3)."""
        if self.failed.done():
            return
        self.metrics.failed.set(1)
        self.ready_reason = f"storage failed: {error}"
        answer = StorageFailed(f"the broker's storage failed: {error}")
        for partition in self.partitions.values():
            partition.give_up(answer, answer)
        self._settle_waiters(answer)
        self.failed.set_result(error)
        log.error("storage failed; the broker stops", error=str(error), exc_info=error)

    # --- for doors

    def listen(self, listener: PartitionListener) -> None:
        """Tells `listener` of every partition led here, now and from now on."""
        self._listeners.append(listener)
        for partition in self.partitions.values():
            listener.partition_added(partition)

    def leading(self, stream_id: bytes, partition: int) -> Partition:
        """The partition, if this broker leads it; raises the typed error that says why not."""
        found = self.partitions.get((stream_id, partition))
        if found is not None and not found.stopped:
            return found
        if found is not None and self.failed.done():
            raise StorageFailed("the broker's storage failed")
        if self._stopping:
            raise Stopping("the broker is stopping", retry_after_ms=500)
        stream = self.controller.image.streams.get(stream_id)
        if stream is None:
            text = id_text(stream_id) if len(stream_id) == 16 else f"of {len(stream_id)} bytes"
            raise StreamNotFound(
                f"there is no stream with id {text}; it was deleted, or belongs to another cluster: resolve "
                f"its name again"
            )
        if partition >= len(stream.partitions):
            raise PartitionNotFound(
                f"stream {stream.name} has partitions 0–{len(stream.partitions) - 1}, not {partition}"
            )
        reason = self.lost.get((stream_id, partition))
        if reason is not None:
            if (stream_id, partition) in self._uncreated:
                raise Unavailable(
                    f"{stream.name}/{partition} is not there yet: {reason}", retry_after_ms=1000
                )
            raise DataCorrupt(f"{stream.name}/{partition} cannot be served: {reason}")
        leader = stream.partitions[partition].leader
        facts: dict[str, Any] = {} if leader is None else {"leader": leader}
        raise NotLeader(f"this broker does not lead {stream.name}/{partition}", retry_after_ms=50, **facts)

    def append(self, partition: Partition, append: Append) -> None:
        """Queues an append; its `done` is called once it is decided. Raises what `check_room` raises."""
        self._rounds.check_room(append.bytes)
        partition.submit(append)
        self._maintenance.writing[partition] = None
        self._rounds.request(partition, append.bytes)

    def check_room(self, partition: Partition, size: int) -> None:
        """Raises `ResourceExhausted` or `Stopping` if an append of `size` bytes would be refused now."""
        self._rounds.check_room(size)
        partition.check_room(size)

    def deadline(self, timeout_ms: int | None) -> float:
        """When an append that comes now stops waiting, on the event loop's clock."""
        return self._loop.time() + (self.limits.produce_timeout if timeout_ms is None else timeout_ms / 1000)

    def in_catch_up_thread(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return self._loop.run_in_executor(self._catch_up, function, *args)

    def in_housekeeping_thread(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return self._loop.run_in_executor(self._housekeeping, function, *args)

    async def delete_records(self, partition: Partition, before: int) -> int:
        """Moves the log start offset forward, durably; the new one (R11)."""
        await self._maintenance.advance_starts([(partition, min(before, partition.high_watermark))])
        return partition.log.start_offset

    async def applied(self, version: int) -> None:
        """Waits until the partitions here are what the image of `version` says."""
        if version > self._applied:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._applied_waiters.append((version, turn))
            await turn
        for listener in self._listeners:
            await listener.settled()

    # --- following the image

    def _wanted(self, stream: StreamImage) -> Iterator[Wanted]:
        for number, partition in enumerate(stream.partitions):
            if self.broker_id in partition.replicas:
                yield Wanted(stream.name, stream.id, number, log_config(stream.config))

    async def _follow_image(self) -> None:
        while True:
            old, new = await self._images.get()
            try:
                await self._apply(old, new)
            except Exception as error:
                self.fail(error)
                return
            self._applied = new.version
            for version, turn in self._applied_waiters:
                if version <= new.version and not turn.done():
                    turn.set_result(None)
            self._applied_waiters = [entry for entry in self._applied_waiters if not entry[1].done()]

    def _settle_waiters(self, answer: TidelogError) -> None:
        """Nothing is followed any more: nobody waits for it."""
        waiters, self._applied_waiters = self._applied_waiters, []
        for _, turn in waiters:
            if not turn.done():
                turn.set_exception(answer)

    async def _apply(self, old: ClusterImage, new: ClusterImage) -> None:
        delta = delta_between(old, new)
        for stream in delta.deleted:
            await self._remove(stream)
        for stream in delta.streams:
            for want in self._wanted(stream):
                partition = self.partitions.get((want.stream_id, want.partition))
                if partition is not None:
                    self._configure(partition, stream)
        changed = {stream.id: stream for stream in delta.streams}
        again = {key[0]: new.streams[key[0]] for key in self._uncreated if key[0] in new.streams}
        await self._create({**again, **changed}.values())

    async def _create(self, streams: Iterable[StreamImage]) -> None:
        """Makes the partitions of `streams` that are not there yet, several at a time."""
        new = [
            (stream, want)
            for stream in streams
            for want in self._wanted(stream)
            if (want.stream_id, want.partition) not in self.partitions and self._may_be_made(want)
        ]
        for start in range(0, len(new), CREATIONS_MAX):
            part = new[start : start + CREATIONS_MAX]
            made = await asyncio.gather(
                *(self._loop.run_in_executor(self._creation, self._store.create, want) for _, want in part),
                return_exceptions=True,
            )
            for (stream, want), one in zip(part, made, strict=True):
                self._created(stream, want, one)

    def _may_be_made(self, want: Wanted) -> bool:
        """A log that was there and is lost must not be replaced by an empty one."""
        key = (want.stream_id, want.partition)
        return key not in self.lost or key in self._uncreated

    def _created(self, stream: StreamImage, want: Wanted, one: PartitionLog | BaseException) -> None:
        if isinstance(one, OSError):
            # A full disk, most likely. The stream is there all the same, and its partition comes later.
            key = (want.stream_id, want.partition)
            self.lost[key] = f"its folder could not be made: {one}"
            self._uncreated.add(key)
            log.warning(
                "a partition could not be made; it is tried again",
                stream=want.name, partition=want.partition, error=str(one),
            )  # fmt: skip
        elif isinstance(one, BaseException):
            raise one
        else:
            self._uncreated.discard((want.stream_id, want.partition))
            self.lost.pop((want.stream_id, want.partition), None)
            self._add(stream, want.partition, one)

    def _retry_missing(self) -> None:
        """Has partitions tried again that could not be made; maintenance calls it now and then."""
        if self._uncreated:
            image = self.controller.image
            self._images.put_nowait((image, image))

    def _add(self, stream: StreamImage, number: int, one: PartitionLog) -> None:
        placed = stream.partitions[number]
        partition = Partition(stream.name, stream.id, number, stream.config, one, placed.leader_epoch)
        partition.isr_size = len(placed.isr)
        self.partitions[stream.id, number] = partition
        for listener in self._listeners:
            listener.partition_added(partition)

    def _configure(self, partition: Partition, stream: StreamImage) -> None:
        placed = stream.partitions[partition.partition]
        partition.leader_epoch = placed.leader_epoch
        partition.isr_size = len(placed.isr)
        if partition.config != stream.config:
            partition.configure(stream.config)
            partition.log.configure(log_config(stream.config))
            for listener in self._listeners:
                listener.partition_changed(partition)

    async def _remove(self, stream: StreamImage) -> None:
        gone = [p for key, p in self.partitions.items() if key[0] == stream.id]
        answer = StreamNotFound(f"stream {stream.name} was deleted")
        for partition in gone:
            for listener in self._listeners:
                listener.partition_removed(partition)
            partition.removed = True
            del self.partitions[partition.stream_id, partition.partition]
            partition.give_up(answer, answer)
        for key in [key for key in self.lost if key[0] == stream.id]:
            del self.lost[key]
            self._uncreated.discard(key)

        def remove() -> str | None:
            return self._store.delete_stream(stream.name, stream.id, [partition.log for partition in gone])

        # A round that writes now may still want a flush; after it nobody touches the files any more.
        await self._rounds.exclusively(lambda: None)
        await self._flushes.forget(gone)
        try:
            path = await self._rounds.exclusively(remove)
        except OSError as error:
            log.error(
                "a deleted stream's folder could not be set aside", stream=stream.name, error=str(error)
            )
        else:
            self._maintenance.deleted(path)

    # --- what it shows

    def _samples(self) -> Iterator[Sample]:
        yield "tidelog_partitions", "Partitions on this broker.", (), len(self.partitions)
        yield "tidelog_lost_partitions", "Partitions without a usable log.", (), len(self.lost)
        yield "tidelog_stray_folders", "Folders that belong to no partition.", (), len(self.strays)
        yield "tidelog_write_rounds", "Write rounds since the start.", (), self._rounds.rounds
        yield "tidelog_flush_rounds", "Flush rounds since the start.", (), self._flushes.rounds
        yield "tidelog_flush_waiting", "Partitions that wait for a flush round.", (), self._flushes.waiting
        yield "tidelog_tail_cache_bytes", "Recent batches in memory.", (), self._store.cache.bytes
        yield "tidelog_open_files", "Log files kept open.", (), len(self._store.files)
        yield "tidelog_metadata_version", "Version of the image.", (), self.controller.image.version
        for partition in list(self.partitions.values()):
            labels = (("stream", partition.name), ("partition", str(partition.partition)))
            one = partition.log
            yield "tidelog_log_end_offset", "LEO.", labels, one.end_offset
            yield "tidelog_high_watermark", "HW.", labels, partition.high_watermark
            yield "tidelog_log_start_offset", "LSO.", labels, one.start_offset
            yield "tidelog_durable_offset", "Everything below is on disk.", labels, one.durable_offset
            yield "tidelog_log_bytes", "Bytes on disk.", labels, one.bytes
            yield "tidelog_isr_size", "In-sync replicas.", labels, partition.isr_size
            yield "tidelog_queued_bytes", "Bytes that wait to be written.", labels, partition.queued_bytes
            yield "tidelog_uncommitted", "Appends that wait for their commit.", labels, partition.uncommitted
            yield "tidelog_damaged_ranges", "Offset ranges that cannot be read.", labels, len(one.damaged)
            yield "tidelog_suspect", "1 if recovery cut a valid batch.", labels, int(one.suspect)

    def state(self) -> dict[str, Any]:
        """What the broker believes, for /debug/state."""
        image = self.controller.image
        return {
            "broker_id": self.broker_id,
            "cluster_id": id_text(image.cluster_id),
            "metadata_version": image.version,
            "ready": self.ready_reason or "yes",
            "write_rounds": self._rounds.rounds,
            "flush_rounds": self._flushes.rounds,
            "partitions": [repr(partition) for partition in self.partitions.values()],
            "lost": {f"{id_text(key[0])}/{key[1]}": reason for key, reason in self.lost.items()},
            "strays": self.strays,
        }


def log_config(config: StreamConfig) -> LogConfig:
    """What the logs of a stream need of its configuration."""
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_age_us=config.segment_age_ms * 1000,
        guard=GuardLimits(
            dedupe_window_us=config.dedupe_window_ms * 1000, dedupe_count_max=config.dedupe_count_max
        ),
    )

"""The log of one partition: batches in segments, with what guards and describes them.

Neighbours: `segment` (one file), `recovery` (how a log is opened after a crash),
`store` (all logs of a data directory), `append_guard`, `epochs`. Blocking; at most one
thread appends at a time, another may sync, and any number may read.

A log knows its end (LEO), its start (LSO) and what is durable. What is committed (HW)
is the runtime's, which passes it as a limit to reads.
"""

from __future__ import annotations

import errno
import itertools
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.errors import DataCorrupt, DiskFull, OffsetOutOfRange, TidelogError
from tidelog.errors import StorageFailed as StorageFailedAnswer
from tidelog.records import HEADER_BYTES, BatchHeader, decode_batch, header_crc, stamp, verify_batch
from tidelog.records.layout import check_framing
from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.append_guard import AppendGuard, GuardLimits, Undo
from tidelog_broker.storage.checkpoint import RecoveryPoint
from tidelog_broker.storage.epochs import FILE_NAME as EPOCHS_FILE
from tidelog_broker.storage.epochs import LeaderEpochs, append_epoch, save_epochs
from tidelog_broker.storage.files import Bytes, OpenFiles
from tidelog_broker.storage.guard_snapshots import load_guard_snapshot, remove_guard_snapshots, save_guard_snapshot
from tidelog_broker.storage.scan import DamagedRange, scan_segment
from tidelog_broker.storage.segment import Segment
from tidelog_broker.storage.tail_cache import CachedBatch, TailCache

GUARD_SNAPSHOT_BATCHES = 20_000
"""After this many batches without one the append guard is snapshotted, so that recovery replays few."""

FULL_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_log_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of a stream that its logs need."""

    segment_bytes: int = 1 << 30
    segment_age_us: int | None = None
    guard: GuardLimits = GuardLimits()


class AppendItem(NamedTuple):
    """A validated batch that waits to be appended."""

    batch: bytes
    """As the client sent it: the leader's fields are zero."""
    header: BatchHeader
    expected_offset: int | None = None
    message_ids: tuple[tuple[int, str], ...] = ()
    """(index of the record, id) of those records that are to be deduplicated."""


class Appended(NamedTuple):
    """Where a batch stands in the log."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    append_time_us: int
    duplicate: bool


class Chunk(NamedTuple):
    """Whole batches, read and verified."""

    parts: Sequence[Bytes]
    bytes: int
    next_offset: int
    leader_epoch: int
    """Of the last record."""
    place: tuple[int, int]
    """Segment base and position behind the chunk: where the next read may begin."""


@dataclass(slots=True)
class _Staged:
    """Batches of one write."""

    buffers: list[Bytes]
    headers: list[BatchHeader]
    undos: list[Undo]
    places: list[int]
    """Index into the outcomes, for each batch."""
    bytes: int = 0


class PartitionLog:
    """See the module. Offsets are of records; sizes are bytes."""

    __slots__ = (
        "_cache",
        "_cache_key",
        "_dirty",
        "_epochs_dirty",
        "_files",
        "_folder_dirty",
        "_guard",
        "_guard_batches",
        "_lock",
        "config",
        "cut_bytes",
        "damaged",
        "epochs",
        "folder",
        "last_append_us",
        "partition",
        "recovery_point",
        "segments",
        "start_offset",
        "stream_id",
        "suspect",
    )

    def __init__(
        self,
        files: OpenFiles,
        cache: TailCache,
        folder: str,
        stream_id: bytes,
        partition: int,
        config: LogConfig,
        *,
        epochs: LeaderEpochs,
        segments: list[Segment],
        start_offset: int = 0,
    ) -> None:
        self._files = files
        self._cache = cache
        self._cache_key = next(_log_numbers)
        self._lock = threading.Lock()
        self.folder = folder
        self.stream_id = stream_id
        self.partition = partition
        self.config = config
        self.epochs = epochs
        self.segments = segments
        """Oldest first; the last is the active one; never empty."""
        self.start_offset = start_offset
        """LSO."""
        self.last_append_us = 0
        """Append time of the last batch; append time never goes back (F7). µs."""
        self._guard: AppendGuard | None = None
        self._guard_batches = 0
        self._dirty: list[Segment] = []
        self._folder_dirty = False
        self._epochs_dirty = False
        active = segments[-1]
        self.recovery_point = RecoveryPoint(active.next_offset, active.base_offset, active.size)
        """Everything below is on disk."""
        self.damaged: list[DamagedRange] = []
        self.suspect = False
        """Recovery cut a tail in which a valid batch stood behind an invalid one (2b)."""
        self.cut_bytes = 0
        """Bytes that the last recovery cut off and kept. """

    def __repr__(self) -> str:
        return (
            f"<PartitionLog {self.folder.rsplit('/', 2)[-2]}/{self.partition} lso={self.start_offset} "
            f"leo={self.end_offset} durable={self.durable_offset} segments={len(self.segments)}>"
        )

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def end_offset(self) -> int:
        """LEO: the offset that the next record gets."""
        return self.segments[-1].next_offset

    @property
    def durable_offset(self) -> int:
        """Everything below is on disk."""
        return self.recovery_point.offset

    @property
    def bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def unsynced(self) -> bool:
        return bool(self._dirty or self._epochs_dirty)

    @property
    def guard(self) -> AppendGuard:
        """The append guard, brought up to the log's end when first asked for."""
        if self._guard is None:
            self._guard = self._rebuild_guard()
        return self._guard

    # --- appending

    def append(
        self, items: Sequence[AppendItem], *, leader_epoch: int, now_us: int
    ) -> list[Appended | TidelogError]:
        """Appends batches as the leader of `leader_epoch`; an outcome for each, in order.

        An outcome is where the batch (or, for a repeat, its first copy) stands, or the
        definite error that refused it. Raises `StorageFailure` when a failed write could
        not be taken back: the log must not be used any more.
        """
        outcomes: list[Appended | TidelogError] = []
        guard = self.guard
        staged = _Staged([], [], [], [])
        if not self.last_append_us:
            self._load_last_append()
        append_time = max(now_us, self.last_append_us)
        refusal: TidelogError | None = None
        for item in items:
            if refusal is not None:
                outcomes.append(refusal)
                continue
            try:
                repeat = guard.check(item.header, item.expected_offset)
            except TidelogError as error:
                outcomes.append(error)
                continue
            if repeat is not None:
                epoch = self.epochs.epoch_at(repeat.base_offset)
                last = repeat.base_offset + repeat.count - 1
                outcomes.append(
                    Appended(repeat.base_offset, last, epoch or 0, repeat.append_time_us, duplicate=True)
                )
                continue
            if self._must_roll(staged.bytes + item.header.length, append_time):
                refusal = self._write(staged, outcomes, leader_epoch) or self._roll_or_refusal()
                staged = _Staged([], [], [], [])
                if refusal is not None:
                    outcomes.append(refusal)
                    continue
            outcomes.append(self._stage(staged, item, leader_epoch, append_time, len(outcomes)))
        self._write(staged, outcomes, leader_epoch)
        return outcomes

    def _load_last_append(self) -> None:
        """After a start that read no log: append time must not go back behind the last batch's (F7)."""
        for segment in reversed(self.segments):
            if segment.size:
                segment.load_times()
                self.last_append_us = segment.last_append_us or 0
                return

    def _stage(
        self, staged: _Staged, item: AppendItem, leader_epoch: int, append_time: int, place: int
    ) -> Appended:
        base = self.guard.offset
        raw = stamp(
            item.batch,
            stream_id=self.stream_id,
            partition=self.partition,
            base_offset=base,
            append_time_us=append_time,
            leader_epoch=leader_epoch,
        )
        header = BatchHeader.unpack(raw)
        ids = [(base + index, message_id) for index, message_id in item.message_ids]
        staged.undos.append(self.guard.record(header, ids))
        staged.buffers += (raw, memoryview(item.batch)[HEADER_BYTES:])
        staged.headers.append(header)
        staged.places.append(place)
        staged.bytes += header.length
        return Appended(base, header.last_offset, leader_epoch, append_time, duplicate=False)

    def _write(
        self, staged: _Staged, outcomes: list[Appended | TidelogError], leader_epoch: int
    ) -> TidelogError | None:
        """Writes what is staged; on failure takes all of it back and turns its outcomes into the error."""
        if not staged.headers:
            return None
        try:
            self._begin_epoch(leader_epoch, staged.headers[0].base_offset)
            self._mark_dirty()
            self.active.write(staged.buffers, staged.headers)
        except OSError as error:
            return self._take_back(staged, outcomes, error)
        self.last_append_us = staged.headers[-1].append_time_us
        self._guard_batches += len(staged.headers)
        for number, header in enumerate(staged.headers):
            parts = tuple(staged.buffers[2 * number : 2 * number + 2])
            cached = CachedBatch(header.next_offset, header.leader_epoch, header.length, parts)
            self._cache.put(self._cache_key, header.base_offset, cached)
        if self._guard_batches >= GUARD_SNAPSHOT_BATCHES:
            self.save_guard(durable=False)
        return None

    def _begin_epoch(self, leader_epoch: int, base_offset: int) -> None:
        """The epoch's entry is written, and so synced, no later than its first batch (R5)."""
        entry = self.epochs.begin(leader_epoch, base_offset)
        if entry is not None:
            self._epochs_dirty = True
            try:
                append_epoch(self._files, self.folder, self.epochs, entry)
            except OSError:
                self.epochs.withdraw()
                raise

    def _take_back(
        self, staged: _Staged, outcomes: list[Appended | TidelogError], error: OSError
    ) -> TidelogError:
        try:
            if self._files.files.exists(self.active.path):
                self.active.cut_back()
        except OSError as worse:
            raise StorageFailure(
                f"{self.folder}: a write failed ({error}) and what it left could not be cut off ({worse})"
            ) from error
        for undo in reversed(staged.undos):
            self.guard.take_back(undo)
        refusal: TidelogError
        if error.errno in FULL_DISK_ERRNOS:
            refusal = DiskFull(f"the broker's disk is full: {error.strerror}", retry_after_ms=1000)
        else:
            refusal = StorageFailedAnswer(f"the broker could not write: {error.strerror or error}")
        for place in staged.places:
            outcomes[place] = refusal
        return refusal

    def _mark_dirty(self) -> None:
        active = self.active
        with self._lock:
            if not self._dirty or self._dirty[-1] is not active:
                if active.size == 0:
                    self._folder_dirty = True
                active.pin()
                self._dirty.append(active)

    # --- rolling

    def _must_roll(self, coming: int, now_us: int) -> bool:
        return self.active.size > 0 and self.active.size + coming > self.config.segment_bytes

    def is_old(self, now_us: int) -> bool:
        """Whether the active segment should be rolled for its age."""
        age, active = self.config.segment_age_us, self.active
        if age is None or active.size == 0:
            return False
        active.load_times()
        return active.first_append_us is not None and now_us - active.first_append_us >= age

    def _roll_or_refusal(self) -> TidelogError | None:
        try:
            self.roll()
        except OSError as error:
            return DiskFull(f"the broker cannot begin a segment: {error.strerror}", retry_after_ms=1000)
        return None

    def roll(self) -> None:
        """Closes the active segment and begins the next; raises OSError and changes nothing if it cannot."""
        old = self.active
        if old.size == 0:
            return
        old.load_times()
        self.save_guard(durable=True)
        old.close()
        fresh = Segment(self._files, self.folder, old.next_offset)
        with self._lock:
            self.segments = [*self.segments, fresh]

    def save_guard(self, *, durable: bool) -> None:
        """Snapshots the append guard, if it holds anything."""
        if self._guard is None:
            return
        self._guard_batches = 0
        save_guard_snapshot(self._files.files, self.folder, self._guard, durable=durable)

    # --- making durable

    def sync(self) -> RecoveryPoint:
        """Makes everything durable that was appended before the call; returns the new recovery point.

        Raises OSError; after that nothing about the unsynced part is known, and the
        broker must stop (DESIGN 4.3).
        """
        with self._lock:
            dirty, self._dirty = self._dirty, []
            folder_dirty, self._folder_dirty = self._folder_dirty, False
            epochs_dirty, self._epochs_dirty = self._epochs_dirty, False
            active = self.segments[-1]
            point = RecoveryPoint(active.next_offset, active.base_offset, active.size)
        if epochs_dirty:
            with self._files.use(f"{self.folder}/{EPOCHS_FILE}") as file:
                file.datasync()
        for segment in dirty:
            segment.sync()
        if folder_dirty:
            self._files.files.sync_dir(self.folder)
        self.recovery_point = point
        return point

    # --- reading

    def read_cached(self, offset: int, bytes_max: int, limit: int) -> Chunk | None:
        """Batches from memory, from one that begins at `offset` on; None: not cached."""
        parts: list[Bytes] = []
        size, epoch = 0, 0
        while offset < limit:
            batch = self._cache.get(self._cache_key, offset)
            if batch is None or batch.next_offset > limit or (size and size + batch.length > bytes_max):
                break
            parts += batch.parts
            size += batch.length
            offset, epoch = batch.next_offset, batch.leader_epoch
        return Chunk(parts, size, offset, epoch, (-1, -1)) if parts else None

    def read(
        self, offset: int, bytes_max: int, limit: int, place: tuple[int, int] | None = None
    ) -> Chunk | None:
        """Verified whole batches from the one that holds `offset` on, below `limit`; None: nothing there.

        About `bytes_max` bytes, but at least one batch. `place` is an earlier chunk's
        hint. Raises `OffsetOutOfRange` below the LSO and `DataCorrupt` for a range whose
        bytes fail their checks.
        """
        if offset < self.start_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is below the log start offset {self.start_offset}",
                log_start_offset=self.start_offset,
                log_end_offset=self.end_offset,
            )
        if offset >= limit:
            return None
        segments = self.segments
        at = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
        if at < 0:
            raise DataCorrupt(f"no segment holds offset {offset}", offset=offset)
        self._refuse_damaged(offset)
        segment = segments[at]
        try:
            return self._read_segment(segment, offset, bytes_max, limit, place)
        except DataCorrupt:
            # The file is looked through once, so that what is readable behind the damage is found.
            self._map_damage(segment)
            self._refuse_damaged(offset)
            return self._read_segment(segment, offset, bytes_max, limit, None)

    def _read_segment(
        self, segment: Segment, offset: int, bytes_max: int, limit: int, place: tuple[int, int] | None
    ) -> Chunk | None:
        if place is not None and place[0] == segment.base_offset and self._begins_at(segment, place[1], offset):
            position = place[1]
        else:
            position = segment.locate(offset, self.stream_id, self.partition)
        data = segment.pread(max(bytes_max, HEADER_BYTES), position)
        chunk = self._verified(data, segment, position, offset, limit)
        if chunk is None and len(data) >= HEADER_BYTES:
            length = BatchHeader.unpack(data).length
            if length > len(data):
                data = segment.pread(length, position)
                chunk = self._verified(data, segment, position, offset, limit)
        if chunk is None and segment.next_offset <= min(limit, self.end_offset) and offset < segment.next_offset:
            raise DataCorrupt(f"{segment.path} ends before offset {segment.next_offset}", offset=offset)
        return chunk

    def _begins_at(self, segment: Segment, position: int, offset: int) -> bool:
        raw = segment.pread(HEADER_BYTES, position) if 0 <= position < segment.size else b""
        if len(raw) < HEADER_BYTES or BatchHeader.unpack(raw).base_offset != offset:
            return False
        return header_crc(self.stream_id, self.partition, raw) == BatchHeader.unpack(raw).header_crc

    def _verified(
        self, data: bytes, segment: Segment, position: int, offset: int, limit: int
    ) -> Chunk | None:
        """The whole, sound batches at the start of `data`; DataCorrupt if the first is not sound."""
        view = memoryview(data)
        at, epoch, wanted = 0, 0, offset
        while len(data) - at >= HEADER_BYTES:
            header = BatchHeader.unpack(data, at)
            try:
                check_framing(header, segment.size - position - at)
                if at + header.length > len(data):
                    break
                batch = view[at : at + header.length]
                verify_batch(batch, header, self.stream_id, self.partition)
                if header.base_offset > wanted and not header.compacted:
                    raise DataCorrupt(f"offset {wanted} is missing before {header.base_offset}", offset=wanted)
            except TidelogError as error:
                if at:
                    break
                raise DataCorrupt(f"{segment.path} at {position}: {error}", offset=wanted) from None
            if header.next_offset > limit:
                break
            at += header.length
            wanted, epoch = header.next_offset, header.leader_epoch
        if at == 0:
            return None
        return Chunk([view[:at]], at, wanted, epoch, (segment.base_offset, position + at))

    def _refuse_damaged(self, offset: int) -> None:
        for damage in self.damaged:
            if damage.start <= offset < damage.end:
                raise DataCorrupt(
                    f"offsets {damage.start}–{damage.end - 1} are damaged on this broker's disk; "
                    f"offset {damage.end} can be read",
                    damaged_start=damage.start,
                    damaged_end=damage.end,
                )

    def _map_damage(self, segment: Segment) -> None:
        found = scan_segment(segment, self.stream_id, self.partition)
        with self._lock:
            others = [
                d for d in self.damaged if not segment.base_offset <= d.start < segment.next_offset
            ]
            self.damaged = sorted([*others, *found.damaged])
        segment.adopt_index(found.index)

    def find_time(self, timestamp_us: int, limit: int) -> int | None:
        """The offset of the first record at or after a time, below `limit`; None: none yet (F7)."""
        for segment in self.segments:
            if segment.next_offset <= self.start_offset or segment.size == 0:
                continue
            segment.load_times()
            if segment.timestamp_max_us is None or segment.timestamp_max_us < timestamp_us:
                continue
            found = segment.locate_time(timestamp_us, self.start_offset)
            if found is None:
                continue
            position, header = found
            if header.base_offset >= limit:
                return None
            batch = segment.pread(header.length, position)
            verify_batch(batch, header, self.stream_id, self.partition)
            return max(self.start_offset, self._first_record_at(batch, header, timestamp_us))
        return None

    @staticmethod
    def _first_record_at(batch: bytes, header: BatchHeader, timestamp_us: int) -> int:
        columns = decode_batch(batch, header)
        for index, value in enumerate(columns.column("timestamp").cast("int64").to_pylist()):
            if value >= timestamp_us:
                delta = columns.column("offset_delta")[index].as_py() if header.compacted else index
                return header.base_offset + int(delta)
        return header.next_offset

    # --- the start and the end

    def advance_start(self, offset: int) -> None:
        """Moves the LSO forward; the files stay until `remove_below_start`."""
        self.start_offset = max(self.start_offset, min(offset, self.end_offset))

    def remove_below_start(self) -> int:
        """Unlinks segments wholly below the LSO, oldest first; their bytes.

        The LSO must be durable before (DESIGN 4, 2b).
        """
        freed = 0
        while len(self.segments) > 1 and self.segments[0].next_offset <= self.start_offset:
            oldest = self.segments[0]
            with self._lock:
                self.segments = self.segments[1:]
            freed += oldest.size
            oldest.remove()
        if freed:
            self.damaged = [d for d in self.damaged if d.end > self.start_offset]
            if self.epochs.forget_below(self.start_offset):
                save_epochs(self._files, self.folder, self.stream_id, self.partition, self.epochs)
        return freed

    def truncate(self, offset: int, save_recovery_point: Callable[[RecoveryPoint], None]) -> int:
        """Cuts the log back to `offset`, or to the start of the batch that holds it; the new end.

        Durable when it returns: log, epochs, append guard and cache (R1). The lower
        recovery point is saved first, so that a crash in between is not taken for loss.
        """
        if offset >= self.end_offset:
            return self.end_offset
        at = bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1
        keep = self.segments[max(at, 0)]
        position = keep.locate(offset, self.stream_id, self.partition) if offset > keep.base_offset else 0
        header = keep.header_at(position)
        new_end = header.base_offset if header is not None else keep.next_offset
        point = RecoveryPoint(new_end, keep.base_offset, position)
        if point.offset < self.recovery_point.offset:
            save_recovery_point(point)
        for segment in reversed(self.segments[max(at, 0) + 1 :]):
            self._drop_dirty(segment)
            if self._files.files.exists(segment.path):
                segment.remove()
        self._drop_dirty(keep)
        if self._files.files.exists(keep.path):
            keep.truncate(position, new_end)
        with self._lock:
            self.segments = self.segments[: max(at, 0) + 1]
        self._files.files.sync_dir(self.folder)
        self._after_cut(new_end)
        self.recovery_point = point
        return new_end

    def _drop_dirty(self, segment: Segment) -> None:
        with self._lock:
            if segment in self._dirty:
                self._dirty.remove(segment)
                self._files.unpin(segment.path)

    def _after_cut(self, new_end: int) -> None:
        """Brings epochs, guard, damage and cache back to a shorter log."""
        if self.epochs.cut(new_end):
            save_epochs(self._files, self.folder, self.stream_id, self.partition, self.epochs)
            self._epochs_dirty = False
        remove_guard_snapshots(self._files.files, self.folder, above=new_end)
        self._guard = None
        self._cache_key = next(_log_numbers)
        self.damaged = [d for d in self.damaged if d.start < new_end]
        self.start_offset = min(self.start_offset, new_end)

    def _rebuild_guard(self) -> AppendGuard:
        """The newest snapshot that fits, plus the batches behind it (DESIGN 4.9)."""
        end = self.end_offset
        guard = load_guard_snapshot(self._files.files, self.folder, self.config.guard, at_most=end)
        first = self.segments[0].base_offset
        if guard is None or guard.offset < first:
            guard = guard or AppendGuard(self.config.guard, first)
            guard.offset = max(guard.offset, first)
        for segment in self.segments:
            if segment.next_offset <= guard.offset:
                continue
            position = segment.locate(guard.offset, self.stream_id, self.partition) if segment.size else 0
            for place, header in segment.walk(position):
                if header.base_offset < guard.offset:
                    continue
                ids = None
                if header.has_message_ids:
                    ids = message_ids_of(segment.pread(header.length, place), header)
                guard.record(header, ids)
        guard.offset = end
        return guard

    def close(self) -> None:
        """Lets go of the files; what is unsynced stays so."""
        for segment in self.segments:
            self._files.forget(segment.path)
            self._files.forget(segment.index_path)
            self._files.forget(segment.timeindex_path)
        self._files.forget(f"{self.folder}/{EPOCHS_FILE}")


def message_ids_of(batch: bytes, header: BatchHeader) -> list[tuple[int, str]]:
    """(offset, message id) of the records of a batch with attribute bit 7."""
    columns = decode_batch(batch, header)
    found = []
    for index, headers in enumerate(columns.column("headers").to_pylist()):
        for entry in headers:
            if entry["key"] == MESSAGE_ID_HEADER and entry["value"] is not None:
                found.append((header.base_offset + index, entry["value"].decode("utf-8", "surrogateescape")))
                break
    return found


MESSAGE_ID_HEADER = "Nats-Msg-Id"

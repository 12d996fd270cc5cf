"""The log of one partition: batches in segments, with what guards and describes them.

Neighbours: `appending` (what goes in and comes out of an append), `segment` (one file),
`reading` (verified batches out of it), `recovery` (how a log is opened after a crash),
`store` (all logs of a data directory), `append_guard`, `epochs`. Blocking.

For many threads: appends, rolls and truncations take turns, one flush runs at a time
beside them, and any number of readers. A log knows its end (LEO), its start (LSO) and
what is durable. What is committed (HW) is the runtime's, which passes it as a limit to
reads.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence

from tidelog.errors import DataCorrupt, OffsetOutOfRange, Stopping, TidelogError
from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.append_guard import AppendGuard
from tidelog_broker.storage.appending import (
    Appended,
    AppendItem,
    LogConfig,
    Sender,
    Staged,
    check_order,
    refusal_of,
)
from tidelog_broker.storage.checkpoint import RecoveryPoint
from tidelog_broker.storage.epochs import LeaderEpochs, append_epoch, save_epochs
from tidelog_broker.storage.files import Bytes, Held, OpenFiles
from tidelog_broker.storage.guard_snapshots import (
    load_guard_snapshot,
    remove_guard_snapshots,
    remove_older_snapshots,
    write_guard_snapshot,
)
from tidelog_broker.storage.index import RELATIVE_OFFSET_MAX
from tidelog_broker.storage.reading import Chunk, first_at_time, message_ids_of, read_chunk, replay
from tidelog_broker.storage.scan import DamagedRange, boundary_at, scan_segment
from tidelog_broker.storage.segment import Segment
from tidelog_broker.storage.suspicion import clear_suspicion
from tidelog_broker.storage.tail_cache import CachedBatch, TailCache

__all__ = [
    "AppendItem",
    "Appended",
    "Chunk",
    "LogConfig",
    "PartitionLog",
    "Sender",
    "message_ids_of",
]

GUARD_SNAPSHOT_BATCHES = 20_000
"""After this many batches without one the append guard is snapshotted, so that recovery replays few."""

GUARD_SNAPSHOT_BYTES = 256 << 20
"""… or after this many bytes."""

_log_numbers = itertools.count()


class PartitionLog:
    """See the module. Offsets are of records; sizes are bytes."""

    __slots__ = (
        "_cache",
        "_cache_key",
        "_closed",
        "_dirty",
        "_epochs_dirty",
        "_failed",
        "_files",
        "_folder_dirty",
        "_guard",
        "_guard_batches",
        "_guard_bytes",
        "_lock",
        "_snapshot_durable",
        "_snapshots",
        "_syncing",
        "_writing",
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
        self._syncing = threading.Lock()
        """Held by a flush, and by what must not run beside one. Taken before `_writing`."""
        self._writing = threading.RLock()
        """Held by what changes the log."""
        self._lock = threading.Lock()
        """Over what a flush takes from the appender; held for moments. Taken last."""
        self.folder = folder
        self.stream_id = stream_id
        self.partition = partition
        self.config = config
        self.epochs = epochs
        self.segments = segments
        """Oldest first; the last is the active one; never empty. Replaced, never changed."""
        self.start_offset = start_offset
        """LSO."""
        self.last_append_us = 0
        """Append time of the last batch; append time never goes back (F7). µs."""
        self._guard: AppendGuard | None = None
        self._guard_batches = 0
        """Appended since the last snapshot of the guard."""
        self._guard_bytes = 0
        self._dirty: list[tuple[Segment, Held]] = []
        """Segments with unsynced bytes, each with the descriptor that was written through."""
        self._epochs_dirty: list[Held] = []
        self._snapshots: list[tuple[int, Held]] = []
        """Snapshots of the guard that are not synced yet, with their offsets."""
        self._snapshot_durable = -1
        """Offset of the newest snapshot known to be on disk."""
        self._folder_dirty = False
        self._failed: BaseException | None = None
        """A flush failed, or a write that could not be undone: what is on disk is unknown."""
        self._closed = False
        active = segments[-1]
        self.recovery_point = RecoveryPoint(active.next_offset, active.base_offset, active.size)
        """Everything below is on disk."""
        self.damaged: list[DamagedRange] = []
        """What is known to be unreadable. Replaced, never changed."""
        self.suspect = False
        """A recovery cut a tail in which a valid batch stood behind an invalid one (2b)."""
        self.cut_bytes = 0
        """Bytes that the last recovery cut off and kept."""

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
    def unsynced_bytes(self) -> int:
        """Bytes that a sync would make durable, about."""
        point = self.recovery_point
        behind = [segment for segment in self.segments if segment.base_offset >= point.segment_base]
        return max(0, sum(segment.size for segment in behind) - point.position)

    @property
    def unsynced(self) -> bool:
        return bool(self._dirty or self._epochs_dirty)

    @property
    def guard(self) -> AppendGuard:
        """The append guard, brought up to the log's end when first asked for."""
        guard = self._guard
        if guard is None:
            with self._writing:
                guard = self._guard = self._guard or self._rebuild_guard()
        return guard

    def configure(self, config: LogConfig) -> None:
        """Takes changed settings; they hold from the next append on."""
        self.config = config
        if self._guard is not None:
            self._guard.set_limits(config.guard)

    # --- appending

    def append(
        self, items: Sequence[AppendItem], *, leader_epoch: int, now_us: int
    ) -> list[Appended | TidelogError]:
        """Appends batches as the leader of `leader_epoch`; an outcome for each, in order.

        An outcome is where the batch (or, for a repeat, its first copy) stands, or the
        definite error that refused it. Raises `StorageFailure` when a failed write could
        not be taken back: the log must not be used any more.
        """
        with self._writing:
            self._refuse_failed()
            if not self.last_append_us:
                self._load_last_append()
            outcomes: list[Appended | TidelogError] = []
            staged = Staged(leader_epoch, max(now_us, self.last_append_us))
            refusal: TidelogError | None = Stopping("the log is closed") if self._closed else None
            for item in items:
                refusal = self._append_one(item, staged, outcomes, refusal)
            self._write(staged, outcomes)
            return outcomes

    def _append_one(
        self,
        item: AppendItem,
        staged: Staged,
        outcomes: list[Appended | TidelogError],
        refusal: TidelogError | None,
    ) -> TidelogError | None:
        """Decides about one batch; an error that refuses all that follow, if there is one."""
        guard, header = self.guard, item.header
        try:
            if refusal is not None:
                raise refusal
            if item.sender is not None:
                check_order(item.sender, reset=item.reset)
            repeat = guard.check(header, item.expected_offset)
            if repeat is None and self._must_roll(staged, header.length, header.last_offset_delta):
                refusal = self._write(staged, outcomes) or self._roll_or_refusal()
                staged.clear()
                if refusal is not None:
                    raise refusal
        except TidelogError as error:
            outcomes.append(error)
            if item.sender is not None:
                item.sender.failed = True
            return refusal
        if repeat is not None:
            outcomes.append(staged.repeat_of(repeat, self.epochs, len(outcomes), item.sender))
            return None
        base = staged.end if staged.headers else self.end_offset
        outcomes.append(staged.add(item, self.stream_id, self.partition, base, len(outcomes)))
        guard.stage(staged.headers[-1])
        return None

    def _load_last_append(self) -> None:
        """After a start that read no log: append time must not go back behind the last batch's (F7)."""
        known = self.guard.last_append_us or 0
        for segment in reversed(self.segments):
            if segment.size:
                segment.load_times()
                known = max(known, segment.last_append_us or 0)
                break
        self.last_append_us = known

    def _write(self, staged: Staged, outcomes: list[Appended | TidelogError]) -> TidelogError | None:
        """Writes what is staged; on failure takes all of it back and turns its outcomes into the error."""
        headers = staged.headers
        if not headers:
            return None
        guard, active = self.guard, self.active
        guard.unstage()
        try:
            active.prepare()
            self._begin_epoch(staged.leader_epoch, headers[0].base_offset)
            held = active.write(staged.buffers)
        except OSError as error:
            return self._take_back(staged, outcomes, error)
        self._wrote(active, held, staged)
        self.last_append_us = staged.append_time_us
        for number, header in enumerate(headers):
            guard.record(header, staged.ids[number])
            parts = (staged.buffers[2 * number], staged.buffers[2 * number + 1])
            cached = CachedBatch(header.next_offset, header.leader_epoch, header.length, parts)
            self._cache.put(self._cache_key, header.base_offset, cached)
        self._guard_batches += len(headers)
        self._guard_bytes += staged.bytes
        if self._guard_batches >= GUARD_SNAPSHOT_BATCHES or self._guard_bytes >= GUARD_SNAPSHOT_BYTES:
            self.save_guard()
        return None

    def _begin_epoch(self, leader_epoch: int, base_offset: int) -> None:
        """The epoch's entry is written, and so synced, no later than its first batch (R5)."""
        if self.epochs.latest == leader_epoch:
            return
        entry = self.epochs.begin(leader_epoch, base_offset)
        assert entry is not None
        try:
            held = append_epoch(self._files, self.folder, self.epochs, entry)
        except OSError:
            self.epochs.withdraw()
            raise
        with self._lock:
            self._epochs_dirty.append(held)

    def _wrote(self, active: Segment, held: Held, staged: Staged) -> None:
        """The batches are in the file: from this moment on they are the log's, and unsynced.

        Both at once under the lock, so that a flush that sees the new end also sees what
        it must sync for it.
        """
        with self._lock:
            if self._dirty and self._dirty[-1][0] is active:
                active.release(held)
            else:
                self._dirty.append((active, held))
                if active.size == 0:
                    self._folder_dirty = True
            active.extend(staged.headers)

    def _take_back(
        self, staged: Staged, outcomes: list[Appended | TidelogError], error: OSError
    ) -> TidelogError:
        active = self.active
        try:
            if self._files.files.exists(active.path):
                active.cut_back()
        except OSError as worse:
            self._failed = worse
            raise StorageFailure(
                f"{self.folder}: a write failed ({error}) and what it left could not be cut off ({worse})"
            ) from error
        refusal = refusal_of(error)
        for place, sender in zip(staged.places, staged.senders, strict=True):
            outcomes[place] = refusal
            if sender is not None:
                sender.failed = True
        return refusal

    def _refuse_failed(self) -> None:
        if self._failed is not None:
            raise StorageFailure(f"{self.folder}: not used any more after a failure ({self._failed})")

    # --- rolling

    def _must_roll(self, staged: Staged, coming: int, last_offset_delta: int) -> bool:
        active = self.active
        size = active.size + staged.bytes
        if size == 0:
            return False
        if size + coming > self.config.segment_bytes:
            return True
        end = staged.end if staged.headers else active.next_offset
        return end + last_offset_delta - active.base_offset > RELATIVE_OFFSET_MAX

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
            return refusal_of(error)
        return None

    def roll(self) -> None:
        """Closes the active segment and begins the next; raises OSError and changes nothing if it cannot."""
        with self._writing:
            old = self.active
            if old.size == 0 or self._closed:
                return
            old.load_times()
            self.save_guard()
            old.close()
            with self._lock:
                self.segments = [*self.segments, old.sibling(old.next_offset)]

    def save_guard(self) -> None:
        """Snapshots the append guard, if it changed and the disk takes it; durable with the next sync."""
        with self._writing:
            if self._guard is not None and self._guard_batches:
                self._guard_batches = self._guard_bytes = 0
                with contextlib.suppress(OSError):
                    held = write_guard_snapshot(self._files, self.folder, self._guard)
                    with self._lock:
                        self._snapshots.append((self._guard.offset, held))
                        self._folder_dirty = True

    # --- making durable

    def sync(self) -> RecoveryPoint:
        """Makes everything durable that was appended before the call; returns the new recovery point.

        Raises OSError; after that nothing about the unsynced part is known, and the
        broker must stop (DESIGN 4.3): every later call raises `StorageFailure`.
        """
        with self._syncing:
            self._refuse_failed()
            with self._lock:
                if self._closed:
                    return self.recovery_point
                dirty, self._dirty = self._dirty, []
                epochs_dirty, self._epochs_dirty = self._epochs_dirty, []
                snapshots, self._snapshots = self._snapshots, []
                folder_dirty, self._folder_dirty = self._folder_dirty, False
                active = self.segments[-1]
                point = RecoveryPoint(active.next_offset, active.base_offset, active.size)
            try:
                # History first: a batch on disk whose epoch is not would be cut after a crash.
                if epochs_dirty:
                    epochs_dirty[-1].file.datasync()
                for _, held in (*dirty, *snapshots):
                    held.file.datasync()
                if folder_dirty:
                    self._files.files.sync_dir(self.folder)
            except OSError as error:
                self._failed = error
                raise
            for held in (*epochs_dirty, *(held for _, held in (*dirty, *snapshots))):
                self._files.release(held)
            self.recovery_point = point
            if snapshots:
                self._snapshot_durable = snapshots[-1][0]
                with contextlib.suppress(OSError):
                    remove_older_snapshots(self._files, self.folder, self._snapshot_durable)
            return point

    # --- reading

    def read_cached(self, offset: int, bytes_max: int, limit: int) -> Chunk | None:
        """Batches from memory, from one that begins at `offset` on; None: not cached."""
        parts: list[Bytes] = []
        size, epoch, key = 0, 0, self._cache_key
        while offset < limit:
            batch = self._cache.get(key, offset)
            if batch is None or batch.next_offset > limit or (size and size + batch.length > bytes_max):
                break
            parts += batch.parts
            size += batch.length
            offset, epoch = batch.next_offset, batch.leader_epoch
        return Chunk(parts, size, offset, epoch, (-1, -1)) if parts else None

    def is_cached(self, offset: int) -> bool:
        """Whether a batch that begins at `offset` is in memory."""
        return self._cache.get(self._cache_key, offset) is not None

    def read(
        self, offset: int, bytes_max: int, limit: int, place: tuple[int, int] | None = None
    ) -> Chunk | None:
        """Verified whole batches from the one that holds `offset` on, below `limit`; None: nothing there.

        About `bytes_max` bytes, but at least one batch. `place` is an earlier chunk's
        hint. Raises `OffsetOutOfRange` below the LSO and `DataCorrupt` for a range whose
        bytes fail their checks.
        """
        self._refuse_below_start(offset)
        if offset >= min(limit, self.end_offset):
            return None
        segments = self.segments
        at = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
        if at < 0:
            raise DataCorrupt(f"no segment holds offset {offset}", offset=offset)
        self._refuse_damaged(offset)
        segment = segments[at]
        try:
            try:
                return read_chunk(segment, offset, bytes_max, limit, place)
            except DataCorrupt:
                # The file is looked through once, so that what is readable behind the damage is found.
                self._map_damage(segment)
                self._refuse_damaged(offset)
                return read_chunk(segment, offset, bytes_max, limit, None)
        except FileNotFoundError:
            self._refuse_below_start(offset)
            raise DataCorrupt(f"{segment.path} is gone", offset=offset) from None

    def _refuse_below_start(self, offset: int) -> None:
        if offset < self.start_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is below the log start offset {self.start_offset}",
                log_start_offset=self.start_offset,
                log_end_offset=self.end_offset,
            )

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
        history = self._cache_key
        found = scan_segment(segment)
        with self._lock:
            if history != self._cache_key:
                return  # The log was cut meanwhile: what was seen is not there any more.
            others = [d for d in self.damaged if not segment.base_offset <= d.start < segment.next_offset]
            self.damaged = sorted([*others, *found.damaged])
            segment.adopt_index(found.index, found.bytes)

    def find_time(self, timestamp_us: int, limit: int) -> int | None:
        """The offset of the first record at or after a time, below `limit`; None: none yet (F7)."""
        for segment in self.segments:
            if segment.next_offset <= self.start_offset or segment.size == 0:
                continue
            with contextlib.suppress(FileNotFoundError):
                segment.load_times()
                if segment.timestamp_max_us is None or segment.timestamp_max_us < timestamp_us:
                    continue
                found = first_at_time(segment, timestamp_us, self.start_offset)
                if found is not None:
                    return found if found < limit else None
        return None

    # --- the start and the end

    def advance_start(self, offset: int) -> None:
        """Moves the LSO forward; the files stay until `remove_below_start`."""
        with self._lock:
            self.start_offset = max(self.start_offset, min(offset, self.end_offset))

    def remove_below_start(self) -> int:
        """Unlinks segments wholly below the LSO, oldest first; their bytes.

        The LSO must be durable before (DESIGN 4, 2b). Raises OSError; what is left then
        goes at the next start.
        """
        end = max(
            (s.next_offset for s in self.segments[:-1] if s.next_offset <= self.start_offset), default=0
        )
        if end and self._snapshot_durable < end:
            # What the guard knows of these segments is kept, unless the disk has no room for it.
            with self._writing:
                assert self.guard is not None
                self._guard_batches = 1
                self.save_guard()
            self.sync()
        gone: list[Segment] = []
        with self._syncing, self._writing:
            with self._lock:
                segments = self.segments
                while len(segments) > 1 and segments[0].next_offset <= self.start_offset:
                    gone.append(segments[0])
                    segments = segments[1:]
                self.segments = segments
            if not gone:
                return 0
            for segment in gone:
                self._drop_dirty(segment)
            self.damaged = [d for d in self.damaged if d.end > self.start_offset]
            kept = self.epochs.forget_below(self.start_offset)
            if kept is not None:
                self._replace_epochs(kept)
        for segment in gone:
            segment.remove()
        return sum(segment.size for segment in gone)

    def _replace_epochs(self, epochs: LeaderEpochs) -> None:
        save_epochs(self._files, self.folder, self.stream_id, self.partition, epochs)
        self.epochs = epochs

    def truncate(self, offset: int, save_recovery_point: Callable[[RecoveryPoint], None]) -> int:
        """Cuts the log back to `offset`, or to the start of the batch that holds it; the new end.

        Durable when it returns: log, epochs, append guard and cache (R1). The lower
        recovery point is saved first, so that a crash in between is not taken for loss.
        A log cut below its start is empty and begins at its start again. Raises
        `StorageFailure` if the disk fails half-way.
        """
        with self._syncing, self._writing:
            self._refuse_failed()
            if offset >= self.end_offset:
                return self.end_offset
            at = max(bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1, 0)
            keep = self.segments[at]
            position, new_end = boundary_at(keep, offset)
            point = RecoveryPoint(new_end, keep.base_offset, position)
            if point.offset < self.recovery_point.offset:
                self.recovery_point = point
                save_recovery_point(point)
            try:
                self._cut(at, position, new_end)
                if new_end < self.start_offset:
                    self._restart_at(self.start_offset)
            except OSError as error:
                self._failed = error
                raise StorageFailure(f"{self.folder}: a truncation failed half-way ({error})") from error
            active = self.active
            self.recovery_point = RecoveryPoint(active.next_offset, active.base_offset, active.size)
            return self.end_offset

    def _cut(self, at: int, position: int, new_end: int) -> None:
        """Ends the log in its segment number `at`: later segments go first, the newest before the others."""
        files, keep, later = self._files.files, self.segments[at], self.segments[at + 1 :]
        with self._lock:
            self._cache_key = next(_log_numbers)
            self.segments = self.segments[: at + 1]
            self._guard = None
        for segment in reversed(later):
            self._drop_dirty(segment)
            segment.remove()
            files.sync_dir(self.folder)
        self._drop_dirty(keep)
        if files.exists(keep.path):
            keep.truncate(position, new_end)
        self._drop_snapshots()
        remove_guard_snapshots(self._files, self.folder, above=new_end)
        files.sync_dir(self.folder)
        self._sync_epochs()
        kept = self.epochs.cut(new_end)
        if kept is not None:
            self._replace_epochs(kept)
        with self._lock:
            self._folder_dirty = False
            self._cache_key = next(_log_numbers)
            self.damaged = [d for d in self.damaged if d.start < new_end]
            self._guard_batches = self._guard_bytes = 0
            self._snapshot_durable = -1

    def _restart_at(self, offset: int) -> None:
        """Begins an empty log at `offset`; what is left lies below the LSO."""
        old = self.segments
        with self._lock:
            self.segments = [old[0].sibling(offset)]
            self.damaged = []
        for segment in old:
            segment.remove()
        remove_guard_snapshots(self._files, self.folder, above=-1)
        self._files.files.sync_dir(self.folder)

    def _drop_dirty(self, segment: Segment) -> None:
        with self._lock:
            for entry in [entry for entry in self._dirty if entry[0] is segment]:
                self._dirty.remove(entry)
                segment.release(entry[1])

    def _drop_snapshots(self) -> None:
        with self._lock:
            snapshots, self._snapshots = self._snapshots, []
        for _, held in snapshots:
            self._files.release(held)

    def _sync_epochs(self) -> None:
        with self._lock:
            dirty, self._epochs_dirty = self._epochs_dirty, []
        for held in dirty:
            held.file.datasync()
            self._files.release(held)

    def _rebuild_guard(self) -> AppendGuard:
        """The newest snapshot that fits, plus the batches behind it (DESIGN 4.9)."""
        end, first = self.end_offset, self.segments[0].base_offset
        guard = load_guard_snapshot(self._files.files, self.folder, self.config.guard, at_most=end)
        if guard is None:
            guard = AppendGuard(self.config.guard, first)
        before = guard.offset = max(guard.offset, first)
        replay(guard, self.segments)
        # A long replay is worth a snapshot, as so many appends would be.
        self._guard_batches = 0 if guard.offset == before else GUARD_SNAPSHOT_BATCHES // 2
        guard.offset = end
        return guard

    def clear_suspect(self) -> None:
        """The replica was compared with its peers, or somebody accepts it as it is."""
        clear_suspicion(self._files.files, self.folder)
        self.suspect = False

    def close(self) -> None:
        """Lets go of the files; what is unsynced stays so. Appends are refused from now on."""
        with self._syncing, self._writing:
            with self._lock:
                self._closed = True
                held = [*self._epochs_dirty, *(held for _, held in (*self._dirty, *self._snapshots))]
                self._dirty, self._epochs_dirty, self._snapshots = [], [], []
            for one in held:
                self._files.release(one)
            for segment in self.segments:
                segment.forget_files()
            self._files.forget_below(self.folder)

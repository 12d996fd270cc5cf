"""The log of one partition: batches in segments, with what guards and describes them.

The parts are neighbours: `appending` (batches of one append and what became of them),
`segment` (one file), `append_guard` and `guard_snapshots`, `epochs`, `unsynced` (what the
next flush must sync), `tail_cache` and `reading` (the ways in which batches come out
again), `truncation`. What happens to them in which order, and what excludes what, is said
here. `recovery` opens a log after a crash, `store` has all of a data directory. Blocking.

For many threads: appends, rolls and truncations take turns, one flush runs at a time
beside them, and any number of readers. A log knows its end (LEO), its start (LSO) and
what is durable. What is committed (HW) is the runtime's, which passes it as a limit to
reads.
"""

from __future__ import annotations

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
from tidelog_broker.storage.files import Held, OpenFiles
from tidelog_broker.storage.guard_snapshots import GuardSnapshots
from tidelog_broker.storage.reading import Chunk, first_at_time, read_chunk
from tidelog_broker.storage.scan import DamagedRange, scan_segment
from tidelog_broker.storage.segment import Segment
from tidelog_broker.storage.suspicion import clear_suspicion
from tidelog_broker.storage.tail_cache import LogTail, TailCache
from tidelog_broker.storage.truncation import Cut, cut_at, cut_files, remove_all
from tidelog_broker.storage.unsynced import Unsynced

__all__ = [
    "AppendItem",
    "Appended",
    "Chunk",
    "LogConfig",
    "PartitionLog",
    "Sender",
]


class PartitionLog:
    """See the module. Offsets are of records; sizes are bytes."""

    __slots__ = (
        "_closed",
        "_failed",
        "_files",
        "_guard",
        "_lock",
        "_snapshots",
        "_syncing",
        "_tail",
        "_unsynced",
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
        self._tail = LogTail(cache)
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
        """None: not asked for yet, or the log was cut."""
        self._snapshots = GuardSnapshots(files, folder)
        self._unsynced = Unsynced(files, folder)
        """Another one with each flush. Changed under `_lock`, or by who holds all before it."""
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
        return self._unsynced.any_records

    @property
    def guard(self) -> AppendGuard:
        """The append guard, brought up to the log's end when first asked for."""
        guard = self._guard
        if guard is None:
            with self._writing:
                if self._guard is None:
                    self._guard = self._snapshots.rebuild(self.segments, self.config.guard)
                guard = self._guard
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
        error that refused it. Raises `StorageFailure` when a failed write could
        not be taken back: the log must not be used any more.
        """
        with self._writing:
            self._refuse_failed()
            if not self.last_append_us:
                self._load_last_append()
            staged = Staged(leader_epoch, max(now_us, self.last_append_us))
            refusal: TidelogError | None = Stopping("the log is closed") if self._closed else None
            for item in items:
                refusal = self._append_one(item, staged, refusal)
            self._write(staged)
            return staged.outcomes

    def _append_one(
        self, item: AppendItem, staged: Staged, refusal: TidelogError | None
    ) -> TidelogError | None:
        """Decides about one batch; an error that refuses all that follow, if there is one."""
        guard, header = self.guard, item.header
        try:
            if refusal is not None:
                raise refusal
            if item.sender is not None:
                check_order(item.sender, reset=item.reset)
            repeat = guard.check(header, item.expected_offset)
            if repeat is None and not staged.fits(header, self.active, self.config.segment_bytes):
                refusal = self._write(staged) or self._roll_or_refusal()
                staged.clear()
                if refusal is not None:
                    raise refusal
        except TidelogError as error:
            staged.refuse(error, item.sender)
            return refusal
        if repeat is not None:
            staged.repeat(repeat, self.epochs, item.sender)
            return None
        base = staged.end if staged.headers else self.end_offset
        staged.add(item, self.stream_id, self.partition, base)
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

    def _write(self, staged: Staged) -> TidelogError | None:
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
            return self._take_back(staged, error)
        self._wrote(active, held, staged)
        self.last_append_us = staged.append_time_us
        for header, ids in zip(headers, staged.ids, strict=True):
            guard.record(header, ids)
        self._tail.put(headers, staged.buffers)
        if self._snapshots.appended(len(headers), staged.bytes):
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
        except StorageFailure as failure:
            self._failed = failure
            raise
        with self._lock:
            self._unsynced.add_epoch(held)

    def _wrote(self, active: Segment, held: Held, staged: Staged) -> None:
        """The batches are in the file: from this moment on they are the log's, and unsynced.

        Both at once under the lock, so that a flush that sees the new end also sees what
        it must sync for it.
        """
        with self._lock:
            self._unsynced.add_segment(active, held)
            active.extend(staged.headers)

    def _take_back(self, staged: Staged, error: OSError) -> TidelogError:
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
        staged.write_failed(refusal)
        return refusal

    def _refuse_failed(self) -> None:
        if self._failed is not None:
            raise StorageFailure(f"{self.folder}: not used any more after a failure ({self._failed})")

    # --- rolling

    def is_due(self, now_us: int) -> bool:
        """Whether the active segment should be rolled: for its age, or because segments are to be smaller."""
        age, active = self.config.segment_age_us, self.active
        if active.size >= self.config.segment_bytes:
            return True
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
            if self._guard is not None and self._snapshots.outdated:
                self._write_snapshot(self._guard)

    def _write_snapshot(self, guard: AppendGuard) -> None:
        held = self._snapshots.write(guard)
        if held is not None:
            with self._lock:
                self._unsynced.add_snapshot(guard.offset, held)

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
                unsynced = self._take_unsynced()
                active = self.segments[-1]
                point = RecoveryPoint(active.next_offset, active.base_offset, active.size)
            try:
                unsynced.sync()
            except OSError as error:
                self._failed = error
                raise
            unsynced.release()
            self.recovery_point = point
            if unsynced.snapshot_offset is not None:
                self._snapshots.synced(unsynced.snapshot_offset)
            return point

    def _take_unsynced(self) -> Unsynced:
        taken, self._unsynced = self._unsynced, Unsynced(self._files, self.folder)
        return taken

    # --- reading

    def read_cached(self, offset: int, bytes_max: int, limit: int) -> Chunk | None:
        """Batches from memory, from one that begins at `offset` on; None: not cached."""
        return self._tail.read(offset, bytes_max, limit)

    def is_cached(self, offset: int) -> bool:
        """Whether a batch that begins at `offset` is in memory."""
        return self._tail.holds(offset)

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
        history = self._tail.history
        found = scan_segment(segment)
        with self._lock:
            if history != self._tail.history:
                return  # The log was cut meanwhile: what was seen is not there any more.
            others = [d for d in self.damaged if not segment.base_offset <= d.start < segment.next_offset]
            self.damaged = sorted([*others, *found.damaged])
            segment.adopt_index(found.index, found.bytes)

    def find_time(self, timestamp_us: int, limit: int) -> int | None:
        """The offset of the first record at or after a time, below `limit`; None: none yet (F7)."""
        found = first_at_time(self.segments, timestamp_us, self.start_offset)
        return found if found is not None and found < limit else None

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
        if end and self._snapshots.durable_offset < end:
            # What the guard knows of these segments is kept, unless the disk has no room for it.
            with self._writing:
                self._write_snapshot(self.guard)
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
                self._unsynced.drop_segment(segment)
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
            cut = cut_at(self.segments, offset)
            if cut.end_offset < self.recovery_point.offset:
                self.recovery_point = cut.recovery_point
                save_recovery_point(cut.recovery_point)
            try:
                self._cut(cut)
                if cut.end_offset < self.start_offset:
                    self._restart_at(self.start_offset)
            except OSError as error:
                self._failed = error
                raise StorageFailure(f"{self.folder}: a truncation failed half-way ({error})") from error
            active = self.active
            self.recovery_point = RecoveryPoint(active.next_offset, active.base_offset, active.size)
            return self.end_offset

    def _cut(self, cut: Cut) -> None:
        with self._lock:
            self._tail.begin_history()
            self.segments = cut.kept
            self._guard = None
        cut_files(self._files, self.folder, cut, self._unsynced)
        kept = self.epochs.cut(cut.end_offset)
        if kept is not None:
            self._replace_epochs(kept)
        with self._lock:
            # Once more, for a look for damage that began while what is cut off was still there.
            self._tail.begin_history()
            self.damaged = [d for d in self.damaged if d.start < cut.end_offset]
            self._snapshots.log_was_cut()

    def _restart_at(self, offset: int) -> None:
        """Begins an empty log at `offset`; what is left lies below the LSO."""
        old = self.segments
        with self._lock:
            self.segments = [old[0].sibling(offset)]
            self.damaged = []
        remove_all(self._files, self.folder, old)

    def clear_suspect(self) -> None:
        """The replica was compared with its peers, or somebody accepts it as it is."""
        clear_suspicion(self._files.files, self.folder)
        self.suspect = False

    def close(self) -> None:
        """Lets go of the files; what is unsynced stays so. Appends are refused from now on."""
        with self._syncing, self._writing:
            with self._lock:
                self._closed = True
                unsynced = self._take_unsynced()
            unsynced.release()
            for segment in self.segments:
                segment.forget_files()
            self._files.forget_below(self.folder)

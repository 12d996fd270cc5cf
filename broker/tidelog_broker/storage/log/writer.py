"""The writing side of a partition's log: appends as a leader and as a follower, rolls, flushes.

Appends and rolls take turns; one flush runs at a time beside them. Neighbours: `write_batch`
and `replicated` (what is written, and what is refused), `append_guard` and
`guard.snapshots`, `leader_epochs`, `unsynced` (what the next flush must sync), `reader` (the
other side), `partition_log` (where the log begins and ends).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

from tidelog.errors import Stopping, TidelogError
from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.files.open_files import Held, OpenFiles
from tidelog_broker.storage.files.protocol import Bytes
from tidelog_broker.storage.folder.leader_epochs import LeaderEpochs, append_epoch, save_epochs
from tidelog_broker.storage.guard.append_guard import AppendGuard
from tidelog_broker.storage.guard.append_time import AHEAD_US_MAX, AppendTime
from tidelog_broker.storage.guard.snapshots import GuardSnapshots
from tidelog_broker.storage.log.reader import ReadableLog
from tidelog_broker.storage.log.replicated import Continuation, check_received
from tidelog_broker.storage.log.tail_cache import TailCache
from tidelog_broker.storage.log.unsynced import Unsynced
from tidelog_broker.storage.log.write_batch import (
    Appended,
    AppendItem,
    LogConfig,
    Staged,
    check_order,
    refusal_of,
)
from tidelog_broker.storage.points import RecoveryPoint
from tidelog_broker.storage.segments.segment import Segment


class WritableLog(ReadableLog):
    """See the module."""

    __slots__ = (
        "_closed",
        "_failed",
        "_guard",
        "_guard_has_gaps",
        "_snapshots",
        "_syncing",
        "_time",
        "_unsynced",
        "_writing",
        "abandoned",
        "assignment",
        "config",
        "cut_bytes",
        "durable_epoch",
        "epochs",
        "page_cache",
        "partition",
        "recovered",
        "recovery_point",
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
        super().__init__(files, cache, folder, segments, start_offset)
        self._syncing = threading.Lock()
        """Held by a flush, and by what must not run beside one. Taken before `_writing`."""
        self._writing = threading.RLock()
        """Held by what changes the log."""
        self.stream_id = stream_id
        self.partition = partition
        self.assignment = 0
        """Of this replica: which of those that its broker has had of the partition it is (R16)."""
        self.page_cache = False
        """A mark on the disk says that it may hold what counted without a flush (R17)."""
        self.config = config
        self.epochs = epochs
        self.durable_epoch = epochs.latest
        """The newest leader epoch whose beginning is on disk (R5)."""
        self._time = AppendTime()
        self._guard: AppendGuard | None = None
        """None: not asked for yet, or the log was cut."""
        self._guard_has_gaps = False
        """It lacks what damaged batches said; it is made again once they are healed."""
        self._snapshots = GuardSnapshots(files, folder)
        self._unsynced = Unsynced(files, folder)
        """Another one with each flush. Changed under `_lock`, or by who holds all before it."""
        self._failed: BaseException | None = None
        """A flush failed, or a write that could not be undone: what is on disk is unknown."""
        self._closed = False
        self.abandoned = False
        """An exception that nobody foresaw came out of a write: what is believed here may be wrong."""
        active = segments[-1]
        self.recovery_point = RecoveryPoint(active.next_offset, active.base_offset, active.size)
        """Everything below is on disk."""
        self.suspect = False
        """A recovery cut a tail in which a valid batch stood behind an invalid one (2b)."""
        self.recovered = False
        """It was opened as something else than a clean stop left it."""
        self.cut_bytes = 0
        """Bytes that the last recovery cut off and kept."""

    def __repr__(self) -> str:
        return (
            f"<PartitionLog {self.folder.rsplit('/', 2)[-2]}/{self.partition} lso={self.start_offset} "
            f"leo={self.end_offset} durable={self.durable_offset} segments={len(self.segments)}>"
        )

    @property
    def durable_offset(self) -> int:
        """Everything below is on disk."""
        return self.recovery_point.offset

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
                    self._guard, whole = self._snapshots.rebuild(self.segments, self.config.guard)
                    self._guard_has_gaps = not whole
                guard = self._guard
        return guard

    def configure(self, config: LogConfig) -> None:
        """Takes changed settings; they hold from the next append on."""
        self.config = config
        if self._guard is not None:
            self._guard.set_limits(config.guard)

    # --- appending

    def append(
        self,
        items: Sequence[AppendItem],
        *,
        leader_epoch: int,
        now_us: int,
        refuse_new: TidelogError | None = None,
    ) -> list[Appended | TidelogError]:
        """Appends batches as the leader of `leader_epoch`; an outcome for each, in order.

        An outcome is where the batch (or, for a repeat, its first copy) stands, or the
        error that refused it. `refuse_new` refuses every batch that is no repeat, last of
        all checks (R7, R8). Raises `StorageFailure` when a failed write could not be taken
        back: the log must not be used any more.
        """
        with self._writing:
            self._refuse_failed()
            staged = Staged(leader_epoch, self.time_at(now_us))
            refusal: TidelogError | None = Stopping("the log is closed") if self._closed else None
            for item in items:
                refusal = self._append_one(item, staged, refusal, refuse_new)
            self._write(staged)
            return staged.outcomes

    def _append_one(
        self,
        item: AppendItem,
        staged: Staged,
        refusal: TidelogError | None,
        refuse_new: TidelogError | None,
    ) -> TidelogError | None:
        """Decides about one batch; an error that refuses all that follow, if there is one."""
        guard, header = self.guard, item.header
        try:
            if refusal is not None:
                raise refusal
            if item.sender is not None:
                check_order(item.sender, reset=item.reset)
            repeat = guard.check(header, item.expected_offset)
            if repeat is None and refuse_new is not None:
                raise refuse_new
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

    def replicate(self, data: Bytes, *, leader_epoch: int, unclean: Sequence[tuple[int, int]] = ()) -> int:
        """Appends whole batches as the leader of `leader_epoch` stores them; the new end.

        `unclean`: (epoch, start offset) of epochs that are marked so where they begin here.
        Raises `DataCorrupt` and `OutOfSequence`, after which nothing is written, `DiskFull`
        and `StorageFailed`, after which a part may be, as `end_offset` tells, and
        `StorageFailure`.
        """
        with self._writing:
            self._refuse_failed()
            if self._closed:
                raise Stopping("the log is closed")
            last = self.epochs.epoch_at(self.end_offset - 1) if self.end_offset > self.start_offset else None
            after = Continuation(self.end_offset, last, leader_epoch)
            staged: Staged | None = None
            for one in check_received(data, (self.stream_id, self.partition), after):
                epoch = one.header.leader_epoch
                if staged is None or staged.leader_epoch != epoch:
                    self._write_received(staged, unclean)
                    staged = Staged(epoch, one.header.append_time_us)
                if not staged.fits(one.header, self.active, self.config.segment_bytes):
                    self._write_received(staged, unclean)
                    staged = Staged(epoch, one.header.append_time_us)
                    refusal = self._roll_or_refusal()
                    if refusal is not None:
                        raise refusal
                staged.take(one)
                staged.append_time_us = max(staged.append_time_us, one.header.append_time_us)
            self._write_received(staged, unclean)
            return self.end_offset

    def _write_received(self, staged: Staged | None, unclean: Sequence[tuple[int, int]]) -> None:
        """Writes batches of one epoch into one segment; history first (R5)."""
        if staged is None or not staged.headers:
            return
        try:
            self._supersede(staged.leader_epoch)
            for epoch, start in unclean:
                if start == self.end_offset and (self.epochs.latest or 0) < epoch <= staged.leader_epoch:
                    self._add_epoch(epoch, start, unclean=True)
        except OSError as error:
            raise refusal_of(error) from error
        refusal = self._write(staged)
        if refusal is not None:
            raise refusal

    def _supersede(self, epoch: int) -> None:
        """Forgets later epochs of which this log holds no record: the leader's history is another one."""
        kept = self.epochs.up_to(epoch)
        if kept is not None:
            self._replace_epochs(kept)

    def begin_unclean_epoch(self, epoch: int) -> None:
        """Begins an epoch without records that is marked unclean (R5); durable with the next sync.

        Raises `DiskFull`, `StorageFailed` and `StorageFailure`.
        """
        with self._writing:
            self._refuse_failed()
            if (self.epochs.latest or 0) < epoch:
                try:
                    self._add_epoch(epoch, self.end_offset, unclean=True)
                except OSError as error:
                    raise refusal_of(error) from error

    @property
    def last_append_us(self) -> int:
        """Append time of the last batch (F7); 0: there is none, or it was not read yet. µs."""
        return self._time.last_us

    def time_at(self, now_us: int) -> int:
        """The append time of a batch that is appended now: it never goes back (F7)."""
        with self._writing:
            if not self._time.last_us:
                self._load_last_append()
            return self._time.at(now_us)

    def _load_last_append(self) -> None:
        """After a start that read no log: append time must not go back behind the last batch's (F7)."""
        known = self.guard.last_append_us or 0
        for segment in reversed(self.segments):
            if segment.size:
                segment.load_times()
                known = max(known, segment.last_append_us or 0)
                break
        self._time.appended(known)

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
        self._time.appended(staged.append_time_us)
        for header, ids in zip(headers, staged.ids, strict=True):
            guard.record(header, ids)
        self._tail.put(headers, staged.buffers)
        if self._snapshots.appended(len(headers), staged.bytes):
            self.save_guard()
        return None

    def _begin_epoch(self, leader_epoch: int, base_offset: int) -> None:
        """The epoch's entry is written, and so synced, no later than its first batch (R5)."""
        if self.epochs.latest != leader_epoch:
            self._add_epoch(leader_epoch, base_offset)

    def _add_epoch(self, epoch: int, base_offset: int, *, unclean: bool = False) -> None:
        entry = self.epochs.begin(epoch, base_offset, unclean=unclean)
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
            self._unsynced.add_epoch(epoch, held)

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

    def abandon(self) -> None:
        """Takes nothing more, and its recovery point stays, until a start opens it again.

        After an exception that nobody foresaw: batches may be in the file of which nothing is known here, or
        the other way round. Recovery knows what the file holds, and nothing may be written before it.
        """
        self.abandoned = self._closed = True

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
        first, last = active.first_append_us, active.last_append_us
        if first is None or last is None:
            return False
        # A log that is dated ahead has a time of its own; asking for it may load the append guard.
        return (now_us if last - now_us <= AHEAD_US_MAX else self.time_at(now_us)) - first >= age

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
        with self.flushing() as unsynced:
            unsynced.sync()
        return self.recovery_point

    @contextlib.contextmanager
    def flushing(self) -> Iterator[Unsynced]:
        """What was appended before the `with` block is durable once it ends: the block makes it so.

        With whatever it likes: `sync` flushes file by file, `LogStore.sync` many logs at once. An
        OSError in the block is a failed flush, see `sync`.
        """
        with self._syncing:
            self._refuse_failed()
            with self._lock:
                # A closed log has let go of what was unsynced, and its recovery point stays.
                unsynced, active = self._take_unsynced(), self.segments[-1]
                point = self.recovery_point
                if not self._closed:
                    point = RecoveryPoint(active.next_offset, active.base_offset, active.size)
            try:
                yield unsynced
            except OSError as error:
                self._failed = error
                raise
            unsynced.release()
            if unsynced.epoch is not None:
                self.durable_epoch = unsynced.epoch
            self.recovery_point = point
            if unsynced.snapshot_offset is not None:
                self._snapshots.synced(unsynced.snapshot_offset)

    def _take_unsynced(self) -> Unsynced:
        taken, self._unsynced = self._unsynced, Unsynced(self._files, self.folder)
        return taken

    def _replace_epochs(self, epochs: LeaderEpochs) -> None:
        save_epochs(self._files, self.folder, self.stream_id, self.partition, epochs)
        with self._lock:
            self._unsynced.drop_epochs()
            self.epochs = epochs
            self.durable_epoch = epochs.latest

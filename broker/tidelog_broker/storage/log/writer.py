"""The writer of a partition's log: appends as a leader and as a follower, and rolls.

Appends, rolls and cuts take turns. Neighbours: `write_batch` and `replicated` (the batches that are written,
and those that are refused), `guarding` (the append guard), `folder.leader_epochs`, `unsynced` (the files that
the next flush must sync).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.errors import Stopping, TidelogError
from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.files.open_files import Held
from tidelog_broker.storage.files.protocol import Bytes
from tidelog_broker.storage.folder.leader_epochs import append_epoch
from tidelog_broker.storage.guard.append_time import AHEAD_US_MAX, AppendTime
from tidelog_broker.storage.log.guarding import LogGuard
from tidelog_broker.storage.log.replicated import Continuation, check_received
from tidelog_broker.storage.log.state import LogState
from tidelog_broker.storage.log.write_batch import Appended, AppendItem, Staged, refusal_of
from tidelog_broker.storage.segments.segment import Segment


class LogWriter:
    """Appends batches to one log, and rolls its segments. Offsets are of records; sizes are bytes."""

    __slots__ = ("_guard", "_state", "_time")

    def __init__(self, state: LogState, guard: LogGuard) -> None:
        self._state = state
        self._guard = guard
        self._time = AppendTime()

    # --- appending

    def append(
        self,
        items: Sequence[AppendItem],
        *,
        leader_epoch: int,
        now_us: int,
        refuse_new: TidelogError | None = None,
    ) -> list[Appended | TidelogError]:
        """Appends batches as the leader of `leader_epoch`; returns an outcome for each, in order.

        An outcome is the place of the batch (for a repeat, the place of its first copy), or the
        error that refused the batch. `refuse_new` refuses every batch that is not a repeat; it is
        the last of all checks (R7, R8). Raises `StorageFailure` if a failed write could not be
        taken back; then the log must not be used again.
        """
        state = self._state
        with state.writing:
            state.refuse_failed()
            staged = Staged(leader_epoch, self.time_at(now_us))
            refusal: TidelogError | None = Stopping("the log is closed") if state.closed else None
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
        """Decides about one batch; returns an error that refuses all later batches, or None."""
        state = self._state
        guard, header = self._guard.current, item.header
        try:
            if refusal is not None:
                raise refusal
            if item.sender is not None:
                item.sender.check(reset=item.reset)
            if header.of_sink:
                self._guard.check_sink_run(header, item.sink_run)
            repeat = guard.check(header, item.expected_offset)
            if repeat is None and refuse_new is not None:
                raise refuse_new
            if repeat is None and not staged.fits(header, state.active, state.config.segment_bytes):
                refusal = self._write(staged) or self._roll_or_refusal()
                staged.clear()
                if refusal is not None:
                    raise refusal
        except TidelogError as error:
            staged.refuse(error, item.sender)
            return refusal
        if repeat is not None:
            staged.repeat(repeat, state.epochs, item.sender)
            return None
        base = staged.end if staged.headers else state.end_offset
        staged.add(item, *state.key, base)
        guard.stage(staged.headers[-1])
        return None

    def replicate(self, data: Bytes, *, leader_epoch: int, unclean: Sequence[tuple[int, int]] = ()) -> int:
        """Appends whole batches as the leader of `leader_epoch` stores them; returns the new end.

        `unclean`: (epoch, start offset) of unclean epochs; an epoch that begins at the log's end is
        marked as unclean. After `DataCorrupt` and `OutOfSequence`, nothing is written. After `DiskFull`
        and `StorageFailed`, a part may be written, up to `end_offset`. Raises `StorageFailure` too.
        """
        state = self._state
        with state.writing:
            state.refuse_failed()
            if state.closed:
                raise Stopping("the log is closed")
            last = (
                state.epochs.epoch_at(state.end_offset - 1) if state.end_offset > state.start_offset else None
            )
            after = Continuation(state.end_offset, last, leader_epoch)
            staged: Staged | None = None
            for one in check_received(data, state.key, after):
                epoch = one.header.leader_epoch
                if staged is None or staged.leader_epoch != epoch:
                    self._write_received(staged, unclean)
                    staged = Staged(epoch, one.header.append_time_us)
                if not staged.fits(one.header, state.active, state.config.segment_bytes):
                    self._write_received(staged, unclean)
                    staged = Staged(epoch, one.header.append_time_us)
                    refusal = self._roll_or_refusal()
                    if refusal is not None:
                        raise refusal
                staged.take(one)
                staged.append_time_us = max(staged.append_time_us, one.header.append_time_us)
            self._write_received(staged, unclean)
            return state.end_offset

    def _write_received(self, staged: Staged | None, unclean: Sequence[tuple[int, int]]) -> None:
        """Writes batches of one epoch into one segment, and their history first (R5)."""
        state = self._state
        if staged is None or not staged.headers:
            return
        try:
            self._supersede(staged.leader_epoch)
            for epoch, start in unclean:
                if start == state.end_offset and (state.epochs.latest or 0) < epoch <= staged.leader_epoch:
                    self._add_epoch(epoch, start, unclean=True)
        except OSError as error:
            raise refusal_of(error) from error
        refusal = self._write(staged)
        if refusal is not None:
            raise refusal

    def _supersede(self, epoch: int) -> None:
        """Removes later epochs, of which this log holds no record: the leader's history lacks them."""
        state = self._state
        kept = state.epochs.up_to(epoch)
        if kept is not None:
            state.replace_epochs(kept)

    def begin_unclean_epoch(self, epoch: int) -> None:
        """Begins an epoch without records that is marked unclean (R5); durable with the next sync.

        Raises `DiskFull`, `StorageFailed` and `StorageFailure`.
        """
        state = self._state
        with state.writing:
            state.refuse_failed()
            if (state.epochs.latest or 0) < epoch:
                try:
                    self._add_epoch(epoch, state.end_offset, unclean=True)
                except OSError as error:
                    raise refusal_of(error) from error

    @property
    def last_append_us(self) -> int:
        """Append time of the last batch (F7), µs; 0: there is no batch, or its time was not read yet."""
        return self._time.last_us

    def time_at(self, now_us: int) -> int:
        """The append time of a batch that is appended now; append time never goes back (F7)."""
        state = self._state
        with state.writing:
            if not self._time.last_us:
                self._load_last_append()
            return self._time.at(now_us)

    def _load_last_append(self) -> None:
        """Loads the append time of the last batch, after a start that read no log.

        The next append time must not be earlier (F7).
        """
        state = self._state
        known = self._guard.current.last_append_us or 0
        for segment in reversed(state.segments):
            if segment.size:
                segment.load_times()
                known = max(known, segment.last_append_us or 0)
                break
        self._time.appended(known)

    def _write(self, staged: Staged) -> TidelogError | None:
        """Writes the staged batches; on failure takes them all back and makes the error their outcome."""
        state = self._state
        headers = staged.headers
        if not headers:
            return None
        guard, active = self._guard.current, state.active
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
        state.tail.put(headers, staged.buffers)
        if self._guard.snapshots.appended(len(headers), staged.bytes):
            self._guard.save()
        return None

    def _begin_epoch(self, leader_epoch: int, base_offset: int) -> None:
        """Writes the epoch's entry if it is missing; so it is synced no later than its first batch (R5)."""
        state = self._state
        if state.epochs.latest != leader_epoch:
            self._add_epoch(leader_epoch, base_offset)

    def _add_epoch(self, epoch: int, base_offset: int, *, unclean: bool = False) -> None:
        state = self._state
        entry = state.epochs.begin(epoch, base_offset, unclean=unclean)
        assert entry is not None
        try:
            held = append_epoch(state.files, state.folder, state.epochs, entry)
        except OSError:
            state.epochs.withdraw()
            raise
        except StorageFailure as failure:
            state.failed = failure
            raise
        with state.lock:
            state.unsynced.add_epoch(epoch, held)

    def _wrote(self, active: Segment, held: Held, staged: Staged) -> None:
        """Adds batches that are in the file to the log, and the file to the unsynced files.

        Both change at once under the lock, so that a flush that sees the new end also sees the
        file that it must sync for it.
        """
        state = self._state
        with state.lock:
            state.unsynced.add_segment(active, held)
            active.extend(staged.headers)

    def _take_back(self, staged: Staged, error: OSError) -> TidelogError:
        state = self._state
        active = state.active
        try:
            if state.files.files.exists(active.path):
                active.cut_back()
        except OSError as worse:
            state.failed = worse
            raise StorageFailure(
                f"{state.folder}: a write failed ({error}) and what it left could not be cut off ({worse})"
            ) from error
        refusal = refusal_of(error)
        staged.write_failed(refusal)
        return refusal

    def abandon(self) -> None:
        """Refuses all further appends until a start opens the log again; the recovery point stays.

        After an unforeseen exception, the file and the state in memory may differ in either direction: the
        file may hold more batches or fewer. Only recovery can read what the file holds, and nothing may be
        written before that.
        """
        state = self._state
        state.abandoned = state.closed = True

    # --- rolling

    def is_due(self, now_us: int) -> bool:
        """Whether the active segment should be rolled, because of its age or a smaller segment size."""
        state = self._state
        age, active = state.config.segment_age_us, state.active
        if active.size >= state.config.segment_bytes:
            return True
        if age is None or active.size == 0:
            return False
        active.load_times()
        first, last = active.first_append_us, active.last_append_us
        if first is None or last is None:
            return False
        # A log that is dated ahead uses its own append time. Reading that time may load the append guard.
        return (now_us if last - now_us <= AHEAD_US_MAX else self.time_at(now_us)) - first >= age

    def _roll_or_refusal(self) -> TidelogError | None:
        try:
            self.roll()
        except OSError as error:
            return refusal_of(error)
        return None

    def roll(self) -> None:
        """Closes the active segment and begins the next; raises OSError, and then changes nothing."""
        state = self._state
        with state.writing:
            old = state.active
            if old.size == 0 or state.closed:
                return
            old.load_times()
            self._guard.save()
            old.close()
            with state.lock:
                state.segments = [*state.segments, old.sibling(old.next_offset)]

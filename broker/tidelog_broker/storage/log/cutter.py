"""The cutter of a partition's log: truncation, and a new beginning at another offset (R1, R11).

No append and no flush runs during a cut, and reads that began before a cut put nothing into the cache.
Neighbours: `truncation` has the steps of a cut, `folder.starting_over` replaces a whole log safely, even if
a crash comes in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.files.protocol import Bytes
from tidelog_broker.storage.folder import starting_over
from tidelog_broker.storage.folder.leader_epochs import LeaderEpochs
from tidelog_broker.storage.log.damage import LogDamage
from tidelog_broker.storage.log.guarding import LogGuard
from tidelog_broker.storage.log.replicated import Continuation, OutOfSequence, base_of_first, check_received
from tidelog_broker.storage.log.state import LogState
from tidelog_broker.storage.log.truncation import Cut, cut_at, cut_files, remove_all
from tidelog_broker.storage.log.write_batch import refusal_of
from tidelog_broker.storage.log.writer import LogWriter
from tidelog_broker.storage.points import RecoveryPoint


class LogCutter:
    """Truncates one log, and begins it again at another offset."""

    __slots__ = ("_damage", "_guard", "_state", "_writer")

    def __init__(self, state: LogState, damage: LogDamage, guard: LogGuard, writer: LogWriter) -> None:
        self._state = state
        self._damage = damage
        self._guard = guard
        self._writer = writer

    def truncate(self, offset: int, save_recovery_point: Callable[[RecoveryPoint], None]) -> int:
        """Cuts the log back to `offset`, or to the start of the batch that holds it; returns the new end.

        When it returns, log, epochs, append guard and cache agree with the cut, durably (R1). The
        lower recovery point is saved first, so that recovery does not take a crash in between for
        loss. A log that is cut below its start is empty and begins at its start again. Raises
        `StorageFailure` if the disk fails half-way.
        """
        state = self._state
        with state.syncing, state.writing:
            state.refuse_failed()
            if offset >= state.end_offset:
                return state.end_offset
            cut = cut_at(state.segments, offset)
            if cut.end_offset < state.recovery_point.offset:
                state.recovery_point = cut.recovery_point
                save_recovery_point(cut.recovery_point)
            try:
                epoch_before = state.epochs.epoch_at(state.start_offset - 1)
                self._cut(cut)
                if cut.end_offset < state.start_offset:
                    self._restart_at(state.start_offset, epoch_before)
                self._sync_rest()
            except OSError as error:
                state.failed = error
                raise StorageFailure(f"{state.folder}: a truncation failed half-way ({error})") from error
            active = state.active
            state.recovery_point = RecoveryPoint(active.next_offset, active.base_offset, active.size)
            return state.end_offset

    def _cut(self, cut: Cut) -> None:
        state = self._state
        self._damage.forget_from(cut.end_offset)
        with state.lock:
            state.tail.begin_history()
            state.segments = cut.kept
            self._guard.forget()
        cut_files(state.files, state.folder, cut, state.unsynced)
        kept = state.epochs.cut(cut.end_offset)
        if kept is not None:
            state.replace_epochs(kept)
        with state.lock:
            # Once more: a scan for damage may have begun before the records were cut off.
            state.tail.begin_history()
            self._guard.snapshots.log_was_cut()

    def _sync_rest(self) -> None:
        """Flushes the records before the cut, because the recovery point will cover them too."""
        state = self._state
        with state.lock:
            rest = state.take_unsynced()
        rest.sync()
        rest.release()
        state.durable_epoch = state.epochs.latest

    def _restart_at(self, offset: int, epoch_before: int | None) -> None:
        """Begins an empty log at `offset`; all records that are left lie below the LSO."""
        state = self._state
        old = state.segments
        self._damage.forget_from(-1)
        with state.lock:
            state.segments = [old[0].sibling(offset)]
        remove_all(state.files, state.folder, old)
        # The rest of the history would describe records that are removed.
        state.replace_epochs(LeaderEpochs.of_empty_log(offset, epoch_before))

    def receive(
        self,
        data: Bytes,
        *,
        leader_epoch: int,
        unclean: Sequence[tuple[int, int]] = (),
        save_recovery_point: Callable[[RecoveryPoint], None],
    ) -> int:
        """Like `replicate`, but an empty log also accepts the whole batch that holds its start (R11).

        A log start may lie inside a batch, and no replica splits a batch. So a replica that begins
        there begins with the whole batch, and the start stays as it is. A crash before the batch is
        durable leaves an empty log. Raises the errors of `replicate` and `truncate`.
        """
        state = self._state
        start = state.start_offset
        base = base_of_first(data) if state.end_offset == start else start
        if base >= start:
            return self._writer.replicate(data, leader_epoch=leader_epoch, unclean=unclean)
        with state.syncing, state.writing:
            state.refuse_failed()
            received = check_received(data, state.key, Continuation(base, None, leader_epoch))
            if received[0].header.next_offset <= start:
                raise OutOfSequence(f"a leader sent offset {base} where {start} is next")
            epoch_before = state.epochs.epoch_at(start - 1)
            self._begin_empty(base, None, save_recovery_point)
            try:
                return self._writer.replicate(data, leader_epoch=leader_epoch, unclean=unclean)
            finally:
                if state.end_offset < start and state.failed is None:
                    self._begin_empty(start, epoch_before, save_recovery_point)

    def _begin_empty(
        self, offset: int, epoch_before: int | None, save_recovery_point: Callable[[RecoveryPoint], None]
    ) -> None:
        """Makes an empty log begin its first batch at `offset`; the LSO stays as it is."""
        state = self._state
        state.recovery_point = RecoveryPoint(offset, offset, 0)
        # Before the files change: a recovery point in a segment that is missing means loss.
        save_recovery_point(state.recovery_point)
        with state.lock:
            unsynced = state.take_unsynced()
            state.tail.begin_history()
            self._guard.forget()
            self._guard.snapshots.log_was_cut()
        unsynced.release()
        try:
            self._restart_at(offset, epoch_before)
        except OSError as error:
            state.failed = error
            raise StorageFailure(f"{state.folder}: beginning again failed half-way ({error})") from error

    def restart_at(
        self, offset: int, save_restart: Callable[[int], None], epoch_before: int | None = None
    ) -> None:
        """Drops the log and begins an empty log at `offset`, durably (R1, R11).

        `epoch_before`: the leader epoch of the last record below `offset`, which the empty log remembers;
        None: it is not known. A crash leaves either the old log or the empty log. `save_restart` saves
        `offset` as recovery point and log start. Raises `DiskFull` if the disk has no room and nothing
        has changed, and `StorageFailure` if the disk fails half-way.
        """
        state = self._state
        with state.syncing, state.writing:
            state.refuse_failed()
            try:
                starting_over.mark(state.files.files, state.folder, offset, epoch_before)
            except OSError as error:
                if not starting_over.is_marked(state.files.files, state.folder):
                    raise refusal_of(error) from error
                state.failed = error
                raise StorageFailure(f"{state.folder}: starting over failed half-way ({error})") from error
            try:
                epochs = LeaderEpochs.of_empty_log(offset, epoch_before)
                self._forget_everything(offset, epochs)
                starting_over.empty(state.files, state.folder, state.key, epochs)
                with state.lock:
                    # Once more: reads may have begun while the old files were still there.
                    state.tail.begin_history()
                save_restart(offset)
                starting_over.unmark(state.files.files, state.folder)
            except OSError as error:
                state.failed = error
                raise StorageFailure(f"{state.folder}: starting over failed half-way ({error})") from error

    def _forget_everything(self, offset: int, epochs: LeaderEpochs) -> None:
        state = self._state
        with self._damage.saving, state.lock:
            old, unsynced = state.segments, state.take_unsynced()
            state.tail.begin_history()
            state.segments = [old[0].sibling(offset)]
            state.start_offset = offset
            state.recovery_point = RecoveryPoint(offset, offset, 0)
            state.epochs = epochs
            state.durable_epoch = epochs.latest
            state.damaged = []
            state.suspect = False
            self._guard.forget()
            self._guard.snapshots.log_was_cut()
        unsynced.release()
        for segment in old:
            segment.forget_files()

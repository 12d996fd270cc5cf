"""The log of one partition: batches in segments, with what guards and describes them.

Its reading side is in `reader`, its writing side in `writer`, the mending of what rotted
in `healer`; here is where it begins and where it ends, and what cuts it: retention,
truncation, starting over. What excludes what is the same for all: appends, rolls and cuts take
turns, one flush runs at a time beside appends, and any number of readers. `recovery` opens a
log after a crash, `store` has all of a data directory. Blocking.

A log knows its end (LEO), its start (LSO) and what is durable. What is committed (HW) is
the runtime's, which passes it as a limit to reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.files.protocol import Bytes
from tidelog_broker.storage.folder import starting_over
from tidelog_broker.storage.folder.leader_epochs import LeaderEpochs
from tidelog_broker.storage.folder.page_cache_mark import clear_page_cache, mark_page_cache
from tidelog_broker.storage.folder.suspicion import clear_suspicion, write_suspicion
from tidelog_broker.storage.log.healer import HealableLog
from tidelog_broker.storage.log.replicated import Continuation, OutOfSequence, base_of_first, check_received
from tidelog_broker.storage.log.truncation import Cut, cut_at, cut_files, remove_all
from tidelog_broker.storage.log.write_batch import refusal_of
from tidelog_broker.storage.points import RecoveryPoint
from tidelog_broker.storage.segments.segment import Segment


class PartitionLog(HealableLog):
    """See the module. Offsets are of records; sizes are bytes."""

    __slots__ = ()

    def advance_start(self, offset: int) -> None:
        """Moves the LSO forward, which is saved by then; the files stay until `remove_below_start`."""
        with self._lock:
            self.start_offset = max(self.start_offset, min(offset, self.end_offset))

    @property
    def keeps_files_below_start(self) -> bool:
        """Whether `remove_below_start` has anything to do."""
        segments = self.segments
        return len(segments) > 1 and segments[0].next_offset <= self.start_offset

    def remove_below_start(self) -> int:
        """Unlinks segments wholly below the LSO, oldest first; their bytes.

        The LSO must be durable before (DESIGN 4, 2b). Raises OSError; what is left then stays
        a part of the log, so that the same call may be repeated. Raises `StorageFailure`.
        """
        end = max(
            (s.next_offset for s in self.segments[:-1] if s.next_offset <= self.start_offset), default=0
        )
        if end and self._snapshots.durable_offset < end:
            # What the guard knows of these segments is kept, unless the disk has no room for it.
            with self._writing:
                self._write_snapshot(self.guard)
            try:
                self.sync()
            except OSError as error:
                raise StorageFailure(f"{self.folder}: a flush failed ({error})") from error
        gone = self._let_go_below_start()
        for number, segment in enumerate(gone):
            try:
                segment.remove()
            except OSError:
                self._keep_again(gone[number:])
                raise
        return sum(segment.size for segment in gone)

    def _let_go_below_start(self) -> list[Segment]:
        """Takes segments wholly below the LSO out of the log. Raises OSError, and then it has all of them."""
        with self._syncing, self._writing:
            segments = self.segments
            gone = [one for one in segments[:-1] if one.next_offset <= self.start_offset]
            if not gone:
                return []
            # Of what the first file still holds the history tells the epoch, below the start as well.
            kept = self.epochs.forget_below(segments[len(gone)].base_offset)
            if kept is not None:
                self._replace_epochs(kept)
            with self._lock:
                self.segments = segments[len(gone) :]
                self.damaged = [d for d in self.damaged if d.end > self.start_offset]
            for segment in gone:
                self._unsynced.drop_segment(segment)
            return gone

    def _keep_again(self, left: list[Segment]) -> None:
        """What could not be unlinked counts as the log's again, unless the log began elsewhere meanwhile."""
        with self._syncing, self._writing, self._lock:
            if self.segments[0].base_offset == left[-1].next_offset:
                self.segments = [*left, *self.segments]

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
                epoch_before = self.epochs.epoch_at(self.start_offset - 1)
                self._cut(cut)
                if cut.end_offset < self.start_offset:
                    self._restart_at(self.start_offset, epoch_before)
                self._sync_rest()
            except OSError as error:
                self._failed = error
                raise StorageFailure(f"{self.folder}: a truncation failed half-way ({error})") from error
            active = self.active
            self.recovery_point = RecoveryPoint(active.next_offset, active.base_offset, active.size)
            return self.end_offset

    def _cut(self, cut: Cut) -> None:
        self._forget_damage(cut.end_offset)
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
            self._snapshots.log_was_cut()

    def _sync_rest(self) -> None:
        """What is kept in front of the cut: the recovery point is going to speak for it, too."""
        with self._lock:
            rest = self._take_unsynced()
        rest.sync()
        rest.release()
        self.durable_epoch = self.epochs.latest

    def _restart_at(self, offset: int, epoch_before: int | None) -> None:
        """Begins an empty log at `offset`; what is left lies below the LSO."""
        old = self.segments
        self._forget_damage(-1)
        with self._lock:
            self.segments = [old[0].sibling(offset)]
        remove_all(self._files, self.folder, old)
        # The rest would speak for records that are gone.
        self._replace_epochs(LeaderEpochs.of_empty_log(offset, epoch_before))

    def receive(
        self,
        data: Bytes,
        *,
        leader_epoch: int,
        unclean: Sequence[tuple[int, int]] = (),
        save_recovery_point: Callable[[RecoveryPoint], None],
    ) -> int:
        """As `replicate`; into an empty log also the whole batch that holds its start (R11).

        A log start may lie inside a batch, which no replica cuts in two: whoever begins there
        begins with all of it. The start stays; a crash before the batch is durable leaves an
        empty log. Raises what `replicate` and `truncate` raise.
        """
        start = self.start_offset
        base = base_of_first(data) if self.end_offset == start else start
        if base >= start:
            return self.replicate(data, leader_epoch=leader_epoch, unclean=unclean)
        with self._syncing, self._writing:
            self._refuse_failed()
            received = check_received(
                data, (self.stream_id, self.partition), Continuation(base, None, leader_epoch)
            )
            if received[0].header.next_offset <= start:
                raise OutOfSequence(f"a leader sent offset {base} where {start} is next")
            epoch_before = self.epochs.epoch_at(start - 1)
            self._begin_anew(base, None, save_recovery_point)
            try:
                return self.replicate(data, leader_epoch=leader_epoch, unclean=unclean)
            finally:
                if self.end_offset < start and self._failed is None:
                    self._begin_anew(start, epoch_before, save_recovery_point)

    def _begin_anew(
        self, offset: int, epoch_before: int | None, save_recovery_point: Callable[[RecoveryPoint], None]
    ) -> None:
        """An empty log's first batch is to begin at `offset`; the LSO stays as it is."""
        self.recovery_point = RecoveryPoint(offset, offset, 0)
        # In front of the files: a recovery point in a segment that is not there tells of loss.
        save_recovery_point(self.recovery_point)
        with self._lock:
            unsynced = self._take_unsynced()
            self._tail.begin_history()
            self._guard = None
            self._snapshots.log_was_cut()
        unsynced.release()
        try:
            self._restart_at(offset, epoch_before)
        except OSError as error:
            self._failed = error
            raise StorageFailure(f"{self.folder}: beginning again failed half-way ({error})") from error

    def restart_at(
        self, offset: int, save_restart: Callable[[int], None], epoch_before: int | None = None
    ) -> None:
        """Drops the log and begins an empty one at `offset`, durably (R1, R11).

        `epoch_before`: the leader epoch of the last record below, which the empty log remembers; None: it is
        not known. A crash leaves the old log or the empty one. `save_restart` saves `offset` as recovery
        point and log start. Raises `DiskFull` if nothing happened for want of room, and
        `StorageFailure` if the disk fails half-way.
        """
        with self._syncing, self._writing:
            self._refuse_failed()
            try:
                starting_over.mark(self._files.files, self.folder, offset, epoch_before)
            except OSError as error:
                if not starting_over.is_marked(self._files.files, self.folder):
                    raise refusal_of(error) from error
                self._failed = error
                raise StorageFailure(f"{self.folder}: starting over failed half-way ({error})") from error
            try:
                epochs = LeaderEpochs.of_empty_log(offset, epoch_before)
                self._forget_everything(offset, epochs)
                starting_over.empty(self._files, self.folder, (self.stream_id, self.partition), epochs)
                with self._lock:
                    # Once more, for what readers began while the old files were still there.
                    self._tail.begin_history()
                save_restart(offset)
                starting_over.unmark(self._files.files, self.folder)
            except OSError as error:
                self._failed = error
                raise StorageFailure(f"{self.folder}: starting over failed half-way ({error})") from error

    def _forget_everything(self, offset: int, epochs: LeaderEpochs) -> None:
        with self._damage_saving, self._lock:
            old, unsynced = self.segments, self._take_unsynced()
            self._tail.begin_history()
            self.segments = [old[0].sibling(offset)]
            self.start_offset = offset
            self.recovery_point = RecoveryPoint(offset, offset, 0)
            self.epochs = epochs
            self.durable_epoch = epochs.latest
            self.damaged = []
            self.suspect = False
            self._guard = None
            self._snapshots.log_was_cut()
        unsynced.release()
        for segment in old:
            segment.forget_files()

    def mark_page_cache(self) -> None:
        """What is written may count from now on, flushed or not (R17). Durable at the end; raises OSError."""
        if not self.page_cache:
            mark_page_cache(self._files.files, self.folder)
            self.page_cache = True

    def clear_page_cache(self) -> None:
        """Everything that counted without a flush is flushed. Raises OSError."""
        if self.page_cache:
            clear_page_cache(self._files.files, self.folder)
            self.page_cache = False

    def mark_suspect(self, reason: str) -> None:
        """It may lack what was acknowledged (R6); durable when it returns. Raises OSError.

        So it is registered as suspect even if this run ends before anybody was told.
        """
        if not self.suspect:
            write_suspicion(self._files.files, self.folder, reason)
            self.suspect = True

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

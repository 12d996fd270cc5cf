"""Bugs in the order of writes to the disk, and in the state of a truncated log (2a, R1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from simulator.mutations.plant import mutation, patched, uncaught
from tidelog_broker.hosting.replica_host import BrokerPartitionHost
from tidelog_broker.storage.directory.checkpoint import Checkpoints
from tidelog_broker.storage.directory.opening import LogOpener
from tidelog_broker.storage.directory.saving import SavedPoints
from tidelog_broker.storage.folder.leader_epochs import LeaderEpochs
from tidelog_broker.storage.log.cutter import LogCutter
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.tail_cache import LogTail
from tidelog_broker.storage.log.writer import LogWriter
from tidelog_broker.storage.points import RecoveryPoint


@mutation("2b", "losses")
def a_recovery_point_is_saved_before_its_flush() -> Iterator[None]:
    def hasty(self: Any, one: PartitionLog, high_watermark: int, start_offset: int) -> None:
        put(self, one, high_watermark, start_offset)
        active = one.active
        point = RecoveryPoint(active.next_offset, active.base_offset, active.size)
        self.checkpoints.put_recovery_point((one.stream_id, one.partition), point, high_watermark)

    put = SavedPoints._put
    with patched((SavedPoints, "_put", hasty)):
        yield


@mutation("2a", "renewals")
def names_of_folders_are_not_synced_after_a_kill() -> Iterator[None]:
    """Seed 145 showed this bug before it became a mutation."""
    with patched((LogOpener, "_sync_names", lambda self, entries: None)):
        yield


@mutation("2b", "starts")
def files_go_before_the_log_start_is_saved() -> Iterator[None]:
    def hasty(self: Any, logs: Any) -> None:
        entries = list(logs)
        for one, _, offset in entries:
            one.start.advance(offset)
            one.remove_below_start()
        advance(self, entries)

    advance = SavedPoints.advance_starts
    with patched((SavedPoints, "advance_starts", hasty)):
        yield


@mutation("R11", "starts")
def log_starts_are_written_once() -> Iterator[None]:
    with mock.patch.object(Checkpoints, "_COPIES", {}):
        yield


@mutation("R11", "rotten files")
def a_rotten_file_of_log_starts_is_not_read_from_its_copy() -> Iterator[None]:
    with patched((Checkpoints, "_read_either", lambda self, kind, copy: self._read(kind, kind))):
        yield


@mutation("R11", "refused starts")
def a_log_start_moves_before_it_is_saved() -> Iterator[None]:
    """In addition, a save that failed is not tried again, because it seems to be done."""

    def hasty(self: Any, logs: Any) -> None:
        entries = list(logs)
        for one, _, offset in entries:
            one.start.advance(offset)
        advance(self, entries)

    advance = SavedPoints.advance_starts
    with patched((SavedPoints, "advance_starts", hasty)):
        yield


@mutation("2a", "losses of power")
def a_closed_segment_is_not_flushed_any_more() -> Iterator[None]:
    def hasty(self: LogWriter) -> None:
        state = self._state
        old = state.active
        roll(self)
        if state.active is not old:
            with state.lock:
                state.unsynced.drop_segment(old)

    roll = LogWriter.roll
    with patched((LogWriter, "roll", hasty)):
        yield


@mutation("R1", "torn cuts")
def a_log_is_cut_below_the_recovery_point_that_is_saved() -> Iterator[None]:
    def hasty(self: BrokerPartitionHost, replica: Any, offset: int) -> None:
        replica.log.cutter.truncate(offset, lambda point: None)

    with patched((BrokerPartitionHost, "truncate", hasty)):
        yield


@mutation("R1", "partings")
def what_was_cut_off_is_still_in_memory() -> Iterator[None]:
    with patched((LogTail, "begin_history", lambda self: None)):
        yield


@mutation("R1, R8", "partings")
def the_append_guard_remembers_what_was_cut_off() -> Iterator[None]:
    def keeping(self: LogCutter, cut: Any) -> None:
        guard = self._guard.loaded
        cut_back(self, cut)
        if guard is not None:
            guard.offset = self._state.end_offset
            self._guard._guard = guard

    cut_back = LogCutter._cut
    with patched((LogCutter, "_cut", keeping)):
        yield


@mutation("R1, R5", "partings")
def epochs_stay_when_their_records_are_cut_off() -> Iterator[None]:
    with patched((LeaderEpochs, "cut", lambda self, end: None)):
        yield


@mutation("R5", "losses")
def recovery_keeps_epochs_beyond_the_end() -> Iterator[None]:
    with patched((LeaderEpochs, "recovered", lambda self, end: None)):
        yield


@mutation("R5, R11", "starts")
def an_emptied_log_forgets_its_last_epoch() -> Iterator[None]:
    with patched((LeaderEpochs, "of_empty_log", classmethod(lambda cls, offset, epoch_before: cls()))):
        yield


@mutation("R6", "losses")
def a_registration_says_nothing_of_suspects() -> Iterator[None]:
    from tidelog_broker.upkeep.suspects import Suspects

    with patched((Suspects, "tell", lambda self, logs: ())):
        yield


@mutation("R6", "losses")
def nothing_is_suspect_after_a_loss_of_power() -> Iterator[None]:
    from tidelog_broker.hosting import image_follower

    with patched((image_follower, "mark_unflushed", lambda image, logs: None)):
        yield


@mutation("R6", "twice lost")
def a_suspects_mark_goes_before_the_cluster_knows() -> Iterator[None]:
    from tidelog_broker.upkeep.suspects import Suspects

    def hasty(self: Suspects, logs: Any) -> Any:
        said = tell(self, logs)
        for one in self.take_told():
            one.clear_suspect()
        return said

    tell = Suspects.tell
    with patched((Suspects, "tell", hasty)):
        yield


@mutation("R8")
def a_repeat_is_answered_with_the_end_of_the_log() -> Iterator[None]:
    from tidelog_broker.storage.log.write_batch import Staged

    def elsewhere(self: Staged, ref: Any, epochs: Any, sender: Any) -> None:
        repeat(self, ref, epochs, sender)
        answer = self.outcomes[-1]
        assert not isinstance(answer, Exception)
        records = answer.last_offset - answer.base_offset
        self.outcomes[-1] = answer._replace(
            base_offset=answer.base_offset + 1, last_offset=answer.base_offset + 1 + records
        )

    repeat = Staged.repeat
    with patched((Staged, "repeat", elsewhere)):
        yield


@mutation("R8", "restarts")
def a_snapshot_of_the_append_guard_speaks_for_the_whole_log() -> Iterator[None]:
    from tidelog_broker.storage.guard import snapshots as guard_snapshots

    with patched((guard_snapshots, "replay", lambda guard, segments: True)):
        yield


@uncaught("M5", "moves and ends")
def what_was_saved_of_a_replica_that_left_stays() -> Iterator[None]:
    with patched((Checkpoints, "remove_partition", lambda self, partition: None)):
        yield


@uncaught("2c", "bad disks")
def a_healer_gives_what_it_has_not_checked() -> Iterator[None]:
    """Harmless alone: the broker that gets a range checks it before it writes it. In a run only one replica
    of a partition rots at a time, so the replicas that are asked have no rot there."""
    from tidelog_broker.storage.log.damage import LogDamage
    from tidelog_broker.storage.log.reader import LogReader

    def unchecked(self: LogReader, *arguments: Any) -> Any:
        with (
            mock.patch("tidelog_broker.storage.segments.reading.verify_batch"),
            patched((LogDamage, "refuse", lambda self, offset: None)),
        ):
            return stored(self, *arguments)

    stored = LogReader.read_stored
    with patched((LogReader, "read_stored", unchecked)):
        yield


@uncaught("R6, R17", "failed page caches")
def recover_goes_on_believing_the_page_cache() -> Iterator[None]:
    """The bug needs a failed flush of records that were committed without a flush, and then a clean election
    of that replica; no seed has had both. `tests/storage/test_rewrite.py` checks that the boot is
    forgotten."""
    from tidelog_broker.storage.directory.data_directory import DataDirectory

    with patched((DataDirectory, "forget_boot", lambda self: None)):
        yield


@mutation("R1", "failed flushes")
def recover_takes_the_end_of_a_log_for_committed() -> Iterator[None]:
    from tidelog_broker.offline import rewrite

    def bold(self: Checkpoints, partition: Any, point: Any, high_watermark: int) -> None:
        put(self, partition, point, point.offset)

    def recovers(files: Any, path: str, **options: Any) -> Iterator[str]:
        with patched((Checkpoints, "put_recovery_point", bold)):
            yield from recover(files, path, **options)

    put, recover = Checkpoints.put_recovery_point, rewrite.recover_data_directory
    with mock.patch("simulator.run.recover_data_directory", recovers):
        yield

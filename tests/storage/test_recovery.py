"""What a start makes of what it finds: rules 2a to 2d of DESIGN section 4, one by one."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from simulator.disk import CrashPoint, FakeDisk, Operation
from storage.batches import STREAM_ID, T0, headers_of, item, read_all, records
from storage.logs import KEY, ROOT, Bench
from tidelog.errors import DataCorrupt
from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.directory.opening import Wanted
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.torn import SECTOR_BYTES
from tidelog_broker.storage.files.whole_files import read_file
from tidelog_broker.storage.folder.leader_epochs import ENTRY_SIZE
from tidelog_broker.storage.folder.leader_epochs import FILE_NAME as EPOCHS_FILE
from tidelog_broker.storage.log.write_batch import LogConfig
from tidelog_broker.storage.points import RecoveryPoint


def crashed(unflushed: int = 4) -> Bench:
    """Ten batches below the recovery point, then some that were flushed but not checkpointed."""
    bench = Bench()
    bench.fill(10)
    bench.sync()
    bench.checkpoint()
    bench.fill(unflushed)
    bench.sync()
    return bench


def place_of(bench: Bench, number: int) -> int:
    """The position of a batch in a log of one segment."""
    return sum(header.length for header in headers_of(read_all(bench.log))[:number])


def cut_files(bench: Bench) -> list[str]:
    return [name for name in bench.disk.list(bench.folder) if ".cut-" in name]


def shorten(bench: Bench, path: str, by: int) -> None:
    file = bench.disk.open(path)
    file.truncate(file.size() - by)
    file.datasync()
    file.close()


def test_what_was_read_past_the_recovery_point_is_on_disk_before_an_end_is_reported() -> None:
    bench = Bench()
    bench.fill(3)
    bench.disk = bench.disk.copy()
    bench.reopen(same_boot=True)

    assert bench.log.durable_offset == 9
    bench.disk = bench.disk.crash()
    assert bench.reopen(same_boot=False).end_offset == 9


def test_a_cut_in_the_page_cache_is_synced_before_an_end_is_reported() -> None:
    bench = crashed()

    def killed(operation: Operation) -> None:
        if operation.name == "datasync" and operation.path == bench.segment_path(0):
            raise CrashPoint

    # The lower recovery point is on the disk, the shorter file is not.
    bench.disk.before = killed
    with pytest.raises(CrashPoint):
        bench.truncate(30)
    bench.disk = bench.disk.copy()

    assert bench.reopen(same_boot=True).durable_offset == 30
    bench.disk = bench.disk.crash()
    assert bench.reopen(same_boot=False).end_offset == 30


def test_what_was_found_and_could_not_be_flushed_is_not_believed() -> None:
    bench = crashed()
    bench.fill(2)
    bench.disk = bench.disk.copy()
    bench.disk.fail("datasync", path=".log")

    with pytest.raises(StorageFailure, match=r"\.log could not be flushed: .*Input/output error"):
        bench.reopen(same_boot=True)


def test_the_scan_past_the_recovery_point_reads_the_disk_not_the_page_cache() -> None:
    bench = crashed()
    bench.disk.flip(bench.segment_path(0), place_of(bench, 12) + 100, cached=True)

    assert bench.reopen(same_boot=False).end_offset == 36


@pytest.mark.parametrize("same_boot", [True, False])
def test_a_log_that_ends_below_the_recovery_point_is_quarantined(
    same_boot: bool,
) -> None:
    bench = crashed(unflushed=0)
    shorten(bench, bench.segment_path(0), headers_of(read_all(bench.log))[-1].length)

    opened = bench.open(same_boot=same_boot)

    assert [lost.wanted for lost in opened.lost] == [bench.wanted]
    assert "were durable" in opened.lost[0].reason
    parent = bench.folder.rpartition("/")[0]
    assert bench.disk.list(parent) == [".quarantine-0"]
    again = bench.open(same_boot=same_boot)
    assert again.lost
    assert not again.logs


def test_damage_below_the_recovery_point_is_left_for_the_reads_to_refuse() -> None:
    bench = crashed()
    bench.disk.flip(bench.segment_path(0), place_of(bench, 5) + 100)
    log = bench.reopen(same_boot=False)

    assert log.end_offset == 42
    with pytest.raises(DataCorrupt):
        log.reader.read(15, 1, 42)
    assert cut_files(bench) == []


def test_on_the_same_boot_only_a_last_batch_inside_which_the_file_ends_is_torn() -> None:
    bench = crashed()
    shorten(bench, bench.segment_path(0), 50)
    log = bench.reopen(same_boot=True)

    assert log.end_offset == 39
    assert not log.suspect
    assert len(cut_files(bench)) == 1


def test_on_the_same_boot_a_bad_batch_is_damage_inside_and_quarantine_at_the_end() -> None:
    bench = crashed()
    bench.disk.flip(bench.segment_path(0), place_of(bench, 11) + 100)
    log = bench.reopen(same_boot=True)
    assert (log.end_offset, [(d.start, d.end) for d in log.damaged]) == (42, [(33, 36)])

    bench = crashed()
    bench.disk.flip(bench.segment_path(0), place_of(bench, 13) + 100)
    assert bench.open(same_boot=True).lost


def test_on_another_boot_the_log_ends_at_the_first_bad_batch_and_what_is_cut_is_kept() -> None:
    bench = crashed()
    place = place_of(bench, 11)
    bench.disk.flip(bench.segment_path(0), place + 100)
    whole = bench.disk.tree()[bench.segment_path(0)]
    log = bench.reopen(same_boot=False)

    assert log.end_offset == 33
    assert log.suspect
    assert log.cut_bytes == len(whole) - place
    assert [read_file(bench.disk, f"{bench.folder}/{name}") for name in cut_files(bench)] == [whole[place:]]


@pytest.mark.parametrize("batches", [1, 3])
def test_on_another_boot_a_last_batch_that_rotted_leaves_the_log_suspect(batches: int) -> None:
    """It was flushed and acknowledged; the recovery point that says so is saved only once a second."""
    bench = crashed(unflushed=0)
    bench.fill(batches, count=20, size=150)
    bench.sync()
    last = headers_of(read_all(bench.log))[-1]
    path, place, disk = bench.segment_path(0), bench.log.active.size - last.length, bench.disk
    for at in (0, 5, 30, 70, 100, last.length // 2, last.length - 200):
        bench.disk = disk.crash()
        bench.disk.flip(path, place + at)
        log = bench.reopen(same_boot=False)

        assert (log.end_offset, log.suspect) == (last.base_offset, True), at
        assert cut_files(bench)
        told = read_file(bench.disk.crash(), f"{bench.folder}/suspect").decode()
        assert "no part is missing" in told


@pytest.mark.parametrize("sector", range(1, 7))
def test_on_another_boot_a_last_batch_that_lacks_a_sector_was_never_acknowledged(sector: int) -> None:
    bench = crashed(unflushed=0)
    place = bench.log.active.size
    bench.fill(1, count=20, size=150)
    bench.sync()
    position = (place // SECTOR_BYTES + sector) * SECTOR_BYTES
    assert position + SECTOR_BYTES < bench.log.active.size
    file = bench.disk.open(bench.segment_path(0))
    file.pwrite([bytes(SECTOR_BYTES)], position)
    file.close()

    log = bench.reopen(same_boot=False)

    assert (log.end_offset, log.suspect) == (30, False)


def test_a_power_cut_in_the_middle_of_a_flush_leaves_no_log_suspect_for_what_it_tore() -> None:
    """However the pages of the last batch came to the disk; several at once may leave a whole one behind."""
    torn = 0
    for seed in range(150):
        bench = crashed(unflushed=0)
        bench.fill(1, count=60, size=random.Random(seed).randrange(20, 400))
        bench.disk = bench.disk.crash(random.Random(seed))
        log = bench.reopen(same_boot=False)

        assert not log.suspect, seed
        torn += log.cut_bytes > 0
    assert torn > 10


def test_cut_bytes_are_never_overwritten() -> None:
    bench = crashed()
    for number in (1, 2):
        bench.disk.flip(bench.segment_path(0), place_of(bench, 12) + 100)
        bench.reopen(same_boot=False)
        bench.fill(3)
        assert len(cut_files(bench)) == number
        # The recovery point of the first recovery is forgotten, so that it happens again.
        bench.store.checkpoints.put_recovery_point(KEY, RecoveryPoint(30, 0, place_of(bench, 10)), 30)
        bench.store.checkpoints.save()


def test_segments_behind_the_end_are_set_aside_whole() -> None:
    bench = Bench(segment_bytes=1500)
    bench.fill(3)
    bench.sync()
    bench.checkpoint()
    bench.fill(12)
    bench.sync()
    bases = [segment.base_offset for segment in bench.log.segments]
    bench.disk.flip(bench.segment_path(2), 100)
    log = bench.reopen(same_boot=False)

    assert log.end_offset == bases[2]
    assert log.suspect
    assert len(cut_files(bench)) == len(bases) - 2


def test_a_suspect_log_stays_suspect_until_somebody_clears_it() -> None:
    bench = crashed()
    bench.disk.flip(bench.segment_path(0), place_of(bench, 11) + 100)
    bench.reopen(same_boot=False)
    bench.stop()
    assert bench.reopen().suspect
    bench.disk = bench.disk.crash()
    assert bench.reopen(same_boot=False).suspect

    bench.log.clear_suspect()
    bench.disk = bench.disk.crash()
    assert not bench.reopen(same_boot=False).suspect


def test_damage_that_recovery_found_is_not_cut_by_the_recovery_after_a_power_cut() -> None:
    bench = crashed()
    bench.disk.flip(bench.segment_path(0), place_of(bench, 11) + 100)
    bench.reopen(same_boot=True)
    bench.disk = bench.disk.crash()

    assert bench.reopen(same_boot=False).end_offset == 42


def test_a_lost_history_is_quarantined() -> None:
    bench = crashed()
    bench.disk.remove(f"{bench.folder}/leader-epochs")

    assert "leader-epochs is missing" in bench.open().lost[0].reason


@pytest.mark.parametrize("missing", [ENTRY_SIZE, 3 * ENTRY_SIZE, 5], ids=["one", "three", "part of one"])
def test_epochs_that_never_came_to_the_disk_are_left_out_for_good(missing: int) -> None:
    bench = Bench()
    bench.fill(2)
    bench.sync()
    bench.checkpoint()
    path = f"{bench.folder}/{EPOCHS_FILE}"
    bench.log.close()
    file = bench.disk.open(path)
    file.pwrite([bytes(missing)], file.size())
    file.datasync()

    log = bench.reopen(same_boot=False)
    assert (log.end_offset, log.epochs.latest) == (6, 1)

    # What is left of them must not pass for damage after a clean stop.
    bench.stop()
    assert bench.reopen().epochs.latest == 1


@pytest.mark.parametrize("same_boot", [True, False])
def test_the_history_knows_the_epochs_of_what_lies_below_the_start_in_the_first_file(same_boot: bool) -> None:
    bench = Bench(segment_bytes=4096)
    bench.fill(30)
    bench.sync()
    bench.checkpoint()
    bench.fill(5)
    bench.epoch, begins = 2, bench.log.end_offset
    bench.fill(20)
    file = max(segment.base_offset for segment in bench.log.segments if segment.base_offset < begins)
    assert file < begins - 3, "the file holds batches of both epochs"
    # As DeleteRecords does: the start is saved, then files go.
    bench.store.saved.advance_starts([(bench.log, bench.log.end_offset, begins + 2)])
    assert bench.log.start.remove_files_below() > 0
    assert bench.log.segments[0].base_offset == file

    log = bench.reopen(same_boot=same_boot)

    assert (log.start_offset, log.end_offset) == (begins + 2, 165)
    assert not log.suspect


def test_a_batch_of_an_unknown_epoch_is_quarantined_or_on_another_boot_cut() -> None:
    for same_boot in (True, False):
        bench = crashed(unflushed=0)
        before = read_file(bench.disk, f"{bench.folder}/leader-epochs")
        bench.epoch = 2
        bench.fill(2)
        bench.sync()
        file = bench.disk.open(f"{bench.folder}/leader-epochs")
        file.truncate(len(before))
        file.close()
        opened = bench.open(same_boot=same_boot)
        if same_boot:
            assert "leader epoch 2" in opened.lost[0].reason
        else:
            assert opened.logs[KEY].end_offset == 30
            assert not opened.logs[KEY].suspect


def test_a_folder_of_another_partition_is_kept_and_reported() -> None:
    bench = crashed()
    other = Wanted("orders", STREAM_ID, 1, LogConfig())
    bench.disk.rename(bench.folder, f"{bench.folder[:-1]}1")
    opened = bench.store.opener.open_all([other], same_boot=True)

    assert [lost.wanted for lost in opened.lost] == [other]
    assert opened.strays == [f"{bench.folder[:-1]}1"]


def test_folders_and_files_that_nobody_claims_are_kept_and_reported() -> None:
    bench = crashed()
    bench.disk.open(f"{ROOT}/streams/notes.txt", create=True).close()
    store = LogStore(bench.disk, ROOT)
    opened = store.opener.open_all([], same_boot=True)

    assert opened.strays == [f"{ROOT}/streams/notes.txt", bench.folder]
    assert bench.disk.exists(bench.folder)


def test_a_partition_whose_folder_is_gone_is_lost_and_not_begun_anew() -> None:
    bench = crashed()
    bench.disk.remove_tree(bench.folder)

    assert "folder is gone" in bench.open().lost[0].reason


def test_no_empty_log_replaces_a_quarantined_one_before_the_first_checkpoint() -> None:
    bench = Bench()
    bench.fill(1)
    bench.disk.remove(f"{bench.folder}/leader-epochs")
    assert bench.open().lost

    again = bench.open()
    assert "quarantined by an earlier start" in again.lost[0].reason
    fresh = bench.store.opener.create(bench.wanted)
    assert fresh.end_offset == 0


def test_a_log_in_place_of_a_lost_log_begins_at_the_log_start_and_opens_again() -> None:
    bench = crashed()
    bench.log.start.advance(20)
    bench.checkpoint()
    bench.disk.remove_tree(bench.folder)
    assert bench.open().lost
    bench.log = bench.store.opener.create(bench.wanted)
    assert (bench.log.start_offset, bench.log.end_offset) == (20, 20)
    bench.disk = bench.disk.crash()

    assert bench.reopen(same_boot=False).end_offset == 20


def test_a_log_that_ends_below_its_start_is_emptied() -> None:
    bench = Bench()
    bench.fill(5)
    bench.sync()
    bench.fill(5)
    bench.log.start.advance(24)
    bench.checkpoint()
    bench.disk = bench.disk.crash()
    log = bench.reopen(same_boot=False)

    assert (log.start_offset, log.end_offset, log.suspect) == (24, 24, False)
    bench.fill(1)
    assert len(headers_of(read_all(log))) == 1


def test_after_a_clean_stop_no_log_is_read() -> None:
    bench = crashed()
    bench.stop()
    bench.disk.fail("pread", errno.EIO, path=".log", times=1000)

    assert bench.reopen().end_offset == 42


def test_a_clean_stop_is_not_believed_when_the_files_say_otherwise() -> None:
    bench = crashed()
    bench.stop()
    shorten(bench, bench.segment_path(0), 8)

    assert bench.open().lost


@pytest.mark.parametrize("missing", ["identity", "leader-epochs"])
def test_a_creation_that_a_crash_cut_short_is_done_again(missing: str) -> None:
    disk = FakeDisk()
    disk.make_dir(ROOT)
    disk.sync_dir("/")
    wanted = Wanted("orders", STREAM_ID, 0, LogConfig())
    points: list[FakeDisk] = []
    store = LogStore(disk, ROOT)
    disk.before = lambda operation: points.extend((disk.copy(), disk.crash(random.Random(len(points)))))
    store.opener.create(wanted)

    assert any(not point.exists(f"{store.folders.of('orders', STREAM_ID, 0)}/{missing}") for point in points)
    for point in points:
        opened = LogStore(point, ROOT).opener.open_all([wanted], same_boot=False)
        assert opened.logs[KEY].end_offset == 0


def test_a_flush_in_a_folder_that_was_just_made_survives_the_process() -> None:
    disk = FakeDisk()
    disk.make_dir(ROOT)
    disk.sync_dir("/")
    wanted = Wanted("orders", STREAM_ID, 0, LogConfig())
    points: list[FakeDisk] = []
    disk.before = lambda operation: points.append(disk.copy())
    LogStore(disk, ROOT).opener.create(wanted)

    for point in points:
        store = LogStore(point, ROOT)
        log = store.opener.open_all([wanted], same_boot=True).logs[KEY]
        log.writer.append([item(records(3))], leader_epoch=1, now_us=T0)
        store.sync([log])
        after = LogStore(point.crash(), ROOT).opener.open_all([wanted], same_boot=False)
        assert after.logs[KEY].end_offset == 3


def test_a_torn_last_batch_is_no_reason_to_stay_down_on_a_full_disk() -> None:
    bench = crashed()
    shorten(bench, bench.segment_path(0), 50)
    bench.disk.capacity = bench.disk._used

    assert bench.reopen(same_boot=True).end_offset == 39


def test_leftovers_of_interrupted_work_go_at_the_next_start() -> None:
    bench = crashed()
    for name in ("leader-epochs.tmp", f"{7:020d}.index", f"{7:020d}.timeindex"):
        bench.disk.open(f"{bench.folder}/{name}", create=True).close()
    bench.reopen()

    assert [n for n in bench.disk.list(bench.folder) if n.endswith((".tmp", "7.index", "7.timeindex"))] == []


def test_a_deleted_stream_is_out_of_the_way_at_once_and_its_name_is_free() -> None:
    bench = crashed()
    first = bench.store.delete_stream("orders", STREAM_ID, [bench.log])
    bench.log = bench.store.opener.create(bench.wanted)
    second = bench.store.delete_stream("orders", STREAM_ID, [bench.log])

    assert first is not None
    assert second is not None
    assert first != second
    assert sorted(bench.store.folders.deleted()) == sorted([first, second])
    assert bench.store.checkpoints.recovery_point(KEY) is None


def test_a_deleted_stream_takes_the_checkpoints_of_its_lost_partitions_with_it() -> None:
    bench = crashed()
    bench.disk.remove(f"{bench.folder}/leader-epochs")
    assert bench.open().lost
    assert bench.store.checkpoints.recovery_point(KEY) is not None

    bench.store.delete_stream("orders", STREAM_ID, [])
    bench.store.close_clean([])

    assert LogStore(bench.disk, ROOT).checkpoints.recovery_point(KEY) is None


def test_a_start_forgets_the_checkpoints_of_a_deletion_that_a_crash_cut_short() -> None:
    bench = crashed()
    bench.store.delete_stream("orders", STREAM_ID, [])
    store = LogStore(bench.disk, ROOT)
    assert store.checkpoints.recovery_point(KEY) is not None
    store.opener.open_all([], same_boot=True)

    assert LogStore(bench.disk, ROOT).checkpoints.recovery_point(KEY) is None


def test_a_start_keeps_the_checkpoints_of_what_is_wanted_or_there() -> None:
    stray = crashed()
    LogStore(stray.disk, ROOT).opener.open_all([], same_boot=True)
    assert LogStore(stray.disk, ROOT).checkpoints.recovery_point(KEY) is not None

    set_aside = crashed()
    set_aside.disk.rename(set_aside.folder, f"{set_aside.folder[:-1]}.quarantine-0")
    LogStore(set_aside.disk, ROOT).opener.open_all([], same_boot=True)
    assert LogStore(set_aside.disk, ROOT).checkpoints.recovery_point(KEY) is not None

    gone = crashed()
    gone.disk.remove_tree(gone.folder.rpartition("/")[0])
    assert gone.open().lost
    assert gone.open().lost, "what is lost stays so at every start"


def test_a_log_of_a_thousand_batches_is_the_same_after_each_kind_of_start() -> None:
    bench = Bench(segment_bytes=30_000)
    for number in range(1000):
        bench.append(item(records(1), producer_id=number % 7, sequence=number // 7), now_us=T0 + number)
    whole = read_all(bench.log)
    bench.sync()
    for same_boot in (True, False):
        assert read_all(bench.reopen(same_boot=same_boot)) == whole
        assert len(bench.log.guard.producers) == 7
    bench.stop()
    assert read_all(bench.reopen()) == whole


def test_a_log_of_which_only_later_segments_survive_is_empty() -> None:
    bench = Bench(segment_bytes=800)
    bench.fill(6)
    later = bench.log.segments[1].base_offset
    bench.disk.remove(bench.segment_path(0))
    bench.disk = bench.disk.copy()

    log = bench.reopen(same_boot=False)

    assert later > 0
    assert (log.start_offset, log.end_offset) == (0, 0)
    assert log.suspect
    assert any(".log.cut-" in path for path in bench.disk.tree())


STARTS = ["log-start-offsets", "log-start-offsets.copy"]


def a_lost_beginning(bench: Bench) -> None:
    """Of a log that starts over, with a leader's batches that no flush has covered."""
    bench.log.cutter.restart_at(9, lambda at: bench.store.saved.save_restart(bench.log, at))
    bench.fill(5)
    bench.disk.remove(bench.segment_path(0))
    bench.disk = bench.disk.copy()


def a_lost_beginning_before_any_checkpoint(bench: Bench) -> None:
    other = bench.store.opener.create(bench.wanted._replace(partition=1))
    bench.store.saved.save([(other, 0)])
    bench.fill(5)
    bench.disk.remove(bench.segment_path(0))
    bench.disk = bench.disk.copy()


def a_deleted_beginning(bench: Bench) -> None:
    """Retention was there since the last checkpoint."""
    bench.checkpoint()
    bench.fill(6)
    bench.store.saved.advance_starts([(bench.log, bench.log.end_offset, 4)])
    bench.log.start.remove_files_below()
    bench.disk.sync_dir(bench.folder)
    bench.disk = bench.disk.crash()


def nothing_is_left(bench: Bench) -> None:
    """Retention by age has emptied the log."""
    bench.fill(5)
    bench.log.writer.roll()
    bench.sync()
    bench.checkpoint()
    bench.store.saved.advance_starts([(bench.log, bench.log.end_offset, bench.log.end_offset)])
    bench.log.start.remove_files_below()


@pytest.mark.parametrize("gone", [False, True], ids=["rotten", "missing"])
@pytest.mark.parametrize("name", STARTS)
@pytest.mark.parametrize("page_cache", [False, True], ids=["fsync", "page-cache"])
@pytest.mark.parametrize(
    ("happened", "start", "end"),
    [
        (a_lost_beginning, 9, 9),
        (a_lost_beginning_before_any_checkpoint, 0, 0),
        (a_deleted_beginning, 4, 18),
        (nothing_is_left, 15, 15),
    ],
    ids=["lost", "lost early", "deleted", "emptied"],
)
def test_without_one_file_of_log_starts_nothing_is_taken_away(
    happened: Callable[[Bench], None], start: int, end: int, page_cache: bool, name: str, gone: bool
) -> None:
    bench = Bench(segment_bytes=800)
    if page_cache:
        bench.log.mark_page_cache()
    happened(bench)
    path = f"{ROOT}/checkpoints/{name}"
    if gone:
        bench.disk.remove(path)
    else:
        bench.disk.flip(path, 20)

    for _ in range(2):
        log = bench.reopen(same_boot=False)
        assert (log.start_offset, log.end_offset) == (start, end)
        bench.disk = bench.disk.crash()
    assert not bench.store.checkpoints.mended, "the start before has written it again"


def test_the_older_of_two_files_of_log_starts_counts_until_both_are_written() -> None:
    bench = Bench()
    bench.fill(5)
    bench.sync()
    bench.store.saved.advance_starts([(bench.log, bench.log.end_offset, 3)])
    bench.disk.fail("create", errno.ENOSPC, path=f"{STARTS[0]}.tmp")
    with pytest.raises(OSError, match="No space left"):
        bench.store.saved.advance_starts([(bench.log, bench.log.end_offset, 6)])
    bench.disk = bench.disk.crash()

    assert bench.reopen(same_boot=False).start_offset == 3
    bench.disk = bench.disk.crash()
    bench.disk.flip(f"{ROOT}/checkpoints/{STARTS[0]}", 20)
    assert bench.reopen(same_boot=False).start_offset == 3


def test_with_both_files_of_log_starts_rotten_a_log_begins_at_its_first_batch() -> None:
    bench = Bench(segment_bytes=800)
    bench.fill(6)
    bench.sync()
    first = bench.log.segments[1].base_offset
    bench.store.saved.advance_starts([(bench.log, bench.log.end_offset, first + 1)])
    bench.log.start.remove_files_below()
    for name in STARTS:
        bench.disk.flip(f"{ROOT}/checkpoints/{name}", 20)

    assert bench.reopen().start_offset == first
    assert LogStore(bench.disk, ROOT).checkpoints.log_start_offset(KEY) == first
    assert not LogStore(bench.disk, ROOT).checkpoints.unreadable


def test_in_the_same_boot_a_log_without_its_beginning_is_quarantined() -> None:
    bench = Bench(segment_bytes=800)
    bench.fill(6)
    bench.disk.remove(bench.segment_path(0))

    assert [one.wanted for one in bench.open(same_boot=True).lost] == [bench.wanted]

"""The metadata log on disk: what is appended, synced, cut, kept and found again."""

from __future__ import annotations

import errno

import pytest

from raft.samples import ME, OTHER, RAFT, VOTERS, append, content, entry, names, new_disk, open_log
from simulator.disk import FakeDisk
from tidelog_broker.errors import DataDirectoryError, StorageFailure
from tidelog_broker.model import HardState
from tidelog_broker.storage.raft.log import RaftLog


def test_what_was_synced_is_there_after_a_crash() -> None:
    disk = new_disk()
    append(open_log(disk), 2, 3)

    log = open_log(disk.crash())

    assert content(log) == [entry(1), entry(2), entry(3)]
    assert (log.first_index, log.last_index, log.durable_index) == (1, 3, 3)
    assert log.hard_state == HardState(term=1, vote=ME)


def test_what_was_only_appended_is_not_yet_durable() -> None:
    disk = new_disk()
    log = open_log(disk)

    log.append([entry(2)])

    assert (log.last_index, log.durable_index) == (2, 1)
    assert content(open_log(disk.crash())) == [entry(1)]
    log.sync()
    assert log.durable_index == 2


def test_a_group_of_entries_costs_one_write_and_one_sync() -> None:
    disk = new_disk()
    log = open_log(disk)
    disk.log = []

    append(log, *range(2, 12))

    assert [operation.name for operation in disk.log] == ["pwrite", "datasync"]


def test_segments_roll_and_entries_are_read_across_them() -> None:
    disk = new_disk()
    log = open_log(disk)
    for index in range(2, 101):
        append(log, index)

    again = open_log(disk.crash())

    assert len(names(disk)) > 5
    assert content(again) == [entry(index) for index in range(1, 101)]
    assert again.entries(40, 60) == [entry(index) for index in range(40, 60)]


def test_reading_stops_at_the_bytes_that_were_asked_for_but_gives_at_least_one_entry() -> None:
    log = open_log(new_disk())
    for index in range(2, 101):
        append(log, index)

    assert [found.index for found in log.entries(10, 101, 200)] == [10, 11, 12]
    assert [found.index for found in log.entries(10, 101, 1)] == [10]
    assert [found.index for found in log.entries(10, 101, 5000)] == list(range(10, 88))


def test_terms_are_known_for_what_is_there_and_for_the_snapshot() -> None:
    log = open_log(new_disk())
    append(log, 2, 3, term=4)

    assert [log.term(index) for index in range(5)] == [0, 1, 4, 4, None]


def test_the_vote_survives_a_crash() -> None:
    disk = new_disk()
    log = open_log(disk)

    log.save_hard_state(HardState(term=7, vote=OTHER, commit=1))
    log.save_hard_state(HardState(term=8, vote=None, commit=1))

    assert open_log(disk.crash()).hard_state == HardState(term=8, vote=None, commit=1)


# --- cutting a suffix (a new leader's log wins)


@pytest.mark.parametrize("first", [2, 3, 25, 26, 50, 99, 100])
def test_a_cut_suffix_is_gone_for_good_and_other_entries_take_its_place(first: int) -> None:
    disk = new_disk()
    log = open_log(disk)
    for index in range(2, 101):
        append(log, index)

    log.truncate_suffix(first)
    assert content(open_log(disk.crash())) == [entry(index) for index in range(1, first)]
    append(log, first, first + 1, term=2)

    again = open_log(disk.crash())
    assert content(again) == [entry(i) for i in range(1, first)] + [entry(i, 2) for i in (first, first + 1)]
    assert content(log) == content(again)


def test_cutting_behind_the_end_does_nothing() -> None:
    disk = new_disk()
    log = open_log(disk)
    before = disk.operations

    log.truncate_suffix(2)

    assert disk.operations == before


# --- snapshots


def test_entries_before_the_older_of_two_snapshots_are_forgotten() -> None:
    disk = new_disk()
    log = open_log(disk)
    for index in range(2, 101):
        append(log, index)
        if index % 25 == 0:
            log.save_snapshot(VOTERS, index, b"image %d" % index)

    again = open_log(disk.crash())

    assert [name for name in names(disk) if name.startswith("snapshot")] == [
        f"snapshot-{75:020d}-{1:020d}",
        f"snapshot-{100:020d}-{1:020d}",
    ]
    assert again.snapshot is not None
    assert (again.snapshot.index, again.snapshot.data) == (100, b"image 100")
    assert again.snapshot.configuration == VOTERS
    assert 60 < again.first_index <= 76
    assert content(again) == [entry(index) for index in range(again.first_index, 101)]


def test_a_damaged_snapshot_is_replaced_by_the_one_before_it_and_the_log() -> None:
    disk = new_disk()
    log = open_log(disk)
    for index in range(2, 101):
        append(log, index)
    log.save_snapshot(VOTERS, 50, b"older")
    log.save_snapshot(VOTERS, 90, b"newer")
    disk.flip(f"{RAFT}/snapshot-{90:020d}-{1:020d}", 60)

    again = open_log(disk.crash())

    assert again.snapshot is not None
    assert (again.snapshot.index, again.snapshot.data) == (50, b"older")
    assert again.first_index <= 51
    assert again.last_index == 100


def test_without_a_whole_snapshot_for_the_entries_that_are_gone_it_does_not_open() -> None:
    disk = new_disk()
    log = open_log(disk)
    for index in range(2, 101):
        append(log, index)
    log.save_snapshot(VOTERS, 50, b"older")
    log.save_snapshot(VOTERS, 90, b"newer")
    for index in (50, 90):
        disk.flip(f"{RAFT}/snapshot-{index:020d}-{1:020d}", 60)

    with pytest.raises(DataDirectoryError, match="no snapshot covers those before"):
        open_log(disk.crash())


# --- torn or rotten


def torn(disk: FakeDisk, cut: int) -> None:
    """Cuts the last bytes of the newest segment off, as a crash may."""
    path = f"{RAFT}/{[name for name in names(disk) if name.endswith('.log')][-1]}"
    file = disk.open(path)
    file.truncate(file.size() - cut)
    file.datasync()


@pytest.mark.parametrize("same_boot", [False, True])
@pytest.mark.parametrize("cut", [1, 30, 40, 63])
def test_an_entry_inside_which_the_file_ends_is_cut_and_kept(cut: int, same_boot: bool) -> None:
    disk = new_disk()
    append(open_log(disk), 2, 3)
    torn(disk, cut)

    log = open_log(disk, same_boot=same_boot)

    assert content(log) == [entry(1), entry(2)]
    assert sum(len(disk.tree()[f"{RAFT}/{name}"]) for name in names(disk) if ".cut-" in name) == 64 - cut
    append(log, 3)
    assert content(open_log(disk.crash())) == [entry(1), entry(2), entry(3)]


def test_cut_bytes_are_never_overwritten() -> None:
    disk = new_disk()
    for _ in range(3):
        append(open_log(disk), 2)
        torn(disk, 1)
    open_log(disk)

    assert len([name for name in names(disk) if ".cut-" in name]) == 3


def zero(disk: FakeDisk, position: int, end: int) -> None:
    """What a part of the first segment reads as that never came to the disk."""
    file = disk.open(f"{RAFT}/{1:020d}.log")
    file.pwrite([bytes(end - position)], position)
    file.datasync()
    file.close()


@pytest.mark.parametrize(
    ("missing", "left"), [((64, 512), 1), ((512, 1024), 1), ((1536, 2048), 1), ((2048, 2312), 2)]
)
def test_after_a_machine_crash_the_log_ends_at_the_first_entry_that_lacks_a_sector(
    missing: tuple[int, int], left: int
) -> None:
    disk = new_disk()
    log = open_log(disk)
    appended = [entry(2, size=1500), entry(3, size=600), entry(4)]
    log.append(appended)
    log.sync()
    assert disk.file_size(f"{RAFT}/{1:020d}.log") == 2312
    zero(disk, *missing)

    assert content(open_log(disk)) == [entry(1), *appended][:left]


@pytest.mark.parametrize("size", [20, 600, 3000])
def test_an_entry_that_lacks_nothing_and_is_invalid_rotted_the_last_one_too(size: int) -> None:
    """It may have been acknowledged: without it this voter could elect a leader that lacks it."""
    whole = new_disk()
    append(open_log(whole), 2)
    last = entry(3, size=size)
    log = open_log(whole)
    log.append([last])
    log.sync()
    path = f"{RAFT}/{1:020d}.log"
    end = len(whole.tree()[path])
    for position in range(64 + 64, end, 1 if size < 100 else 37):
        disk = whole.crash()
        disk.flip(path, position, bit=2)
        if position in range(128 + 5, 128 + 7):
            # A length that reaches behind the end of the file may be that of a torn entry.
            assert content(open_log(disk)) == [entry(1), entry(2)]
            continue
        with pytest.raises(DataDirectoryError, match=r"entry 3 of the metadata log .* no part of it"):
            open_log(disk)


def test_on_the_same_boot_an_invalid_entry_inside_the_file_is_damage() -> None:
    disk = new_disk()
    append(open_log(disk), 2, 3)
    disk.flip(f"{RAFT}/{1:020d}.log", 64 + 50)

    with pytest.raises(DataDirectoryError, match="the machine has not been restarted"):
        open_log(disk, same_boot=True)


def test_an_entry_that_a_later_one_calls_durable_is_damage_if_it_is_invalid() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, 2)
    append(log, 3)
    disk.flip(f"{RAFT}/{1:020d}.log", 64 + 50)

    with pytest.raises(
        DataDirectoryError, match=r"entry 2 .* though it was on disk when entry 3 was written"
    ):
        open_log(disk)


def test_an_invalid_entry_before_the_last_segment_is_damage() -> None:
    disk = new_disk()
    log = open_log(disk)
    for index in range(2, 40):
        append(log, index)
    disk.flip(f"{RAFT}/{1:020d}.log", disk.file_size(f"{RAFT}/{1:020d}.log") - 10)

    with pytest.raises(DataDirectoryError, match="though a later segment follows"):
        open_log(disk)


def test_a_log_that_ends_before_the_saved_commit_is_damaged_even_at_an_entrys_end() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, 2, 3)
    log.save_hard_state(HardState(term=1, vote=ME, commit=3))
    torn(disk, 64)

    with pytest.raises(DataDirectoryError, match="ends at entry 2, though entry 3 was committed"):
        open_log(disk)


def test_an_invalid_entry_that_was_committed_is_damage() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, 2)
    log.save_hard_state(HardState(term=1, vote=ME, commit=2))
    torn(disk, 5)

    with pytest.raises(DataDirectoryError, match="everything up to entry 2 was committed"):
        open_log(disk)


def test_a_missing_segment_is_damage() -> None:
    disk = new_disk()
    log = open_log(disk)
    for index in range(2, 101):
        append(log, index)
    disk.remove(f"{RAFT}/{[name for name in names(disk) if name.endswith('.log')][2]}")

    with pytest.raises(DataDirectoryError, match="begins where entry"):
        open_log(disk)


@pytest.mark.parametrize("damage", ["gone", "flipped"])
def test_a_lost_vote_keeps_the_broker_from_starting(damage: str) -> None:
    disk = new_disk()
    if damage == "gone":
        disk.remove(f"{RAFT}/hard-state")
    else:
        disk.flip(f"{RAFT}/hard-state", 9)

    with pytest.raises(DataDirectoryError, match="this broker's vote"):
        open_log(disk)


def test_damage_found_while_reading_is_never_returned() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, 2)
    disk.flip(f"{RAFT}/{1:020d}.log", 64 + 50)

    with pytest.raises(StorageFailure, match="entry 2 of the metadata log is damaged"):
        log.entries(1, 3)


def test_no_flipped_bit_in_the_log_is_ever_believed() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, 2, 3)
    append(log, 4)
    log.save_snapshot(VOTERS, 3, b"image")
    written = [entry(index) for index in range(1, 5)]
    outcomes = {"refused": 0, "cut": 0, "whole": 0}
    for path, data in disk.tree().items():
        for position in range(len(data)):
            broken = disk.copy()
            broken.flip(path, position, position % 8)
            try:
                found = open_log(broken)
            except DataDirectoryError:
                outcomes["refused"] += 1
                continue
            entries = content(found)
            assert entries == written[: len(entries)], (path, position)
            assert len(entries) >= 3, (path, position)
            outcomes["whole" if len(entries) == 4 else "cut"] += 1
    assert all(outcomes.values()), outcomes


# --- a disk that is full or fails


def full_log(reserve_bytes: int) -> tuple[FakeDisk, RaftLog]:
    disk = new_disk()
    disk.capacity = 20_000
    log = open_log(disk, reserve_bytes=reserve_bytes)
    filler = disk.open("/data/filler", create=True)
    filler.pwrite([bytes(disk.free_bytes("/data"))], 0)
    return disk, log


def test_a_full_disk_refuses_an_append_and_leaves_nothing_of_it_behind() -> None:
    disk, log = full_log(0)
    disk.capacity = disk.capacity + 100 if disk.capacity else None

    with pytest.raises(OSError) as raised:
        log.append([entry(2), entry(3)])

    assert raised.value.errno == errno.ENOSPC
    assert log.last_index == 1
    assert content(open_log(disk.crash())) == [entry(1)]
    append(log, 2)
    assert content(open_log(disk.crash())) == [entry(1), entry(2)]


def test_the_reserve_keeps_the_log_alive_on_a_full_disk() -> None:
    disk, log = full_log(8000)

    for index in range(2, 30):
        append(log, index)
    log.save_hard_state(HardState(term=2, vote=ME, commit=29))
    log.save_snapshot(VOTERS, 29, b"image")

    assert disk.file_size("/data/reserve") == 0
    assert open_log(disk.crash()).last_index == 29


def test_a_failed_sync_ends_the_log() -> None:
    disk = new_disk()
    log = open_log(disk)
    disk.fail("datasync")

    with pytest.raises(StorageFailure):
        append(log, 2)
    with pytest.raises(StorageFailure):
        append(log, 3)
    with pytest.raises(StorageFailure):
        log.sync()


def test_an_append_that_cannot_be_undone_ends_the_log() -> None:
    disk, log = full_log(0)
    disk.capacity = 20_010
    disk.fail("truncate")

    with pytest.raises(StorageFailure):
        log.append([entry(2)])
    with pytest.raises(StorageFailure):
        log.append([entry(2)])


def test_a_snapshot_that_does_not_fit_changes_nothing() -> None:
    disk, log = full_log(0)

    with pytest.raises(OSError):
        log.save_snapshot(VOTERS, 1, b"image")

    assert log.snapshot is None
    assert open_log(disk.crash()).last_index == 1

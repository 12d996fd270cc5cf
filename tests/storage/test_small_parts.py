"""Indexes, leader epochs, checkpoints, retention and the tail cache, each by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.disk import FakeDisk
from tidelog_broker.storage.directory.checkpoint import Checkpoints
from tidelog_broker.storage.directory.retention import RetentionBounds, SegmentFacts, start_after_retention
from tidelog_broker.storage.directory.retention_time import RetentionNow
from tidelog_broker.storage.files.loaded_indexes import LoadedIndexes
from tidelog_broker.storage.files.open_files import OpenFiles
from tidelog_broker.storage.files.whole_files import read_file, replace_file
from tidelog_broker.storage.folder.leader_epochs import (
    ENTRY_SIZE,
    FILE_NAME,
    EpochsLost,
    LeaderEpochs,
    append_epoch,
    load_epochs,
    save_epochs,
)
from tidelog_broker.storage.log.tail_cache import ENTRY_OVERHEAD_BYTES, CachedBatch, TailCache
from tidelog_broker.storage.points import CleanEnd, RecoveryPoint
from tidelog_broker.storage.segments.index import INDEX_INTERVAL_BYTES, SparseIndex

SID = bytes(range(16))
KEY = (SID, 3)


# --- indexes


def an_index(entries: int) -> SparseIndex:
    index = SparseIndex(7)
    for number in range(entries):
        index.note(number * 10, number * INDEX_INTERVAL_BYTES, 100 + number)
    return index


def saved(index: SparseIndex) -> tuple[bytes, bytes]:
    offsets, times, check = index.unsaved()
    index.was_saved(check)
    return offsets, times


def test_an_index_takes_a_batch_only_so_often() -> None:
    index = SparseIndex(0)
    for number in range(100):
        index.note(number, number * INDEX_INTERVAL_BYTES // 10, number)

    assert len(index) == 10


@given(st.integers(1, 20), st.integers(0, 250))
def test_an_index_leads_to_the_last_entry_at_or_before_an_offset(entries: int, relative: int) -> None:
    position = an_index(entries).position_at_or_before(relative)

    assert position == min(relative // 10, entries - 1) * INDEX_INTERVAL_BYTES


def test_what_is_saved_in_pieces_loads_as_one() -> None:
    index = an_index(3)
    first = saved(index)
    index.note(1000, 1 << 20, 5000)
    second = saved(index)

    loaded = SparseIndex.load(7, first[0] + second[0], first[1] + second[1], 1 << 21)

    assert len(loaded) == 4
    assert not loaded.stale
    assert loaded.position_at_or_before(1000) == 1 << 20


@given(st.integers(1, 6), st.data())
def test_an_index_is_believed_up_to_the_first_byte_that_changed(entries: int, data: st.DataObject) -> None:
    files = [bytearray(part) for part in saved(an_index(entries))]
    which = data.draw(st.integers(0, 1))
    at = data.draw(st.integers(0, len(files[which]) - 1))
    files[which][at] ^= 1 << data.draw(st.integers(0, 7))

    loaded = SparseIndex.load(7, bytes(files[0]), bytes(files[1]), 1 << 30)

    assert len(loaded) == at // (8 if which == 0 else 16)
    assert loaded.stale


def test_an_index_of_another_segment_and_one_of_zeros_are_not_believed() -> None:
    offsets, times = saved(an_index(3))

    assert len(SparseIndex.load(8, offsets, times, 1 << 30)) == 0
    assert len(SparseIndex.load(7, bytes(24), bytes(48), 1 << 30)) == 0


def test_entries_behind_the_segments_end_are_left_out_and_called_stale() -> None:
    offsets, times = saved(an_index(5))

    loaded = SparseIndex.load(7, offsets, times, 2 * INDEX_INTERVAL_BYTES)

    assert (len(loaded), loaded.stale) == (2, True)


def test_loaded_indexes_have_a_bound() -> None:
    class Owner:
        unloaded = False

        def unload_index(self) -> None:
            self.unloaded = True

    owners, loaded = [Owner() for _ in range(5)], LoadedIndexes(100)
    for owner in owners:
        loaded.loaded(owner, 40)

    assert [owner.unloaded for owner in owners] == [True, True, True, False, False]
    loaded.forget(owners[4])
    assert loaded.held_bytes == 40


# --- leader epochs


def folder_with(epochs: LeaderEpochs) -> tuple[FakeDisk, OpenFiles]:
    disk = FakeDisk()
    disk.make_dir("/p")
    files = OpenFiles(disk)
    save_epochs(files, "/p", *KEY, epochs)
    return disk, files


def a_history() -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start in ((2, 0), (5, 10), (6, 10), (9, 40)):
        epochs.begin(epoch, start, unclean=epoch == 6)
    return LeaderEpochs(list(epochs))


def test_the_history_says_where_an_epoch_ends() -> None:
    epochs = a_history()

    assert epochs.end_of(1, 50) is None
    assert epochs.end_of(2, 50) == (2, 10)
    assert epochs.end_of(4, 50) == (2, 10)
    assert epochs.end_of(5, 50) == (5, 10)
    assert epochs.end_of(8, 50) == (6, 40)
    assert epochs.end_of(99, 50) == (9, 50)
    assert [epochs.epoch_at(offset) for offset in (0, 9, 10, 39, 40)] == [2, 2, 6, 6, 9]


def test_retention_keeps_the_epoch_that_covers_the_log_start() -> None:
    kept = a_history().forget_below(12)

    assert kept is not None
    assert [entry.epoch for entry in kept] == [6, 9]
    assert kept.forget_below(12) is None


def test_retention_keeps_the_epoch_of_the_last_record_it_drops() -> None:
    """An epoch begins right at the new start (R1)."""
    kept = a_history().forget_below(40)

    assert kept is not None
    assert [entry.epoch for entry in kept] == [6, 9]
    assert kept.epoch_at(39) == 6


def test_truncation_drops_the_epochs_that_begin_behind_the_new_end() -> None:
    kept = a_history().cut(10)

    assert kept is not None
    assert [entry.epoch for entry in kept] == [2]


def test_what_is_written_and_appended_is_loaded_again() -> None:
    disk, files = folder_with(a_history())
    epochs = load_epochs(disk, "/p", *KEY)
    entry = epochs.begin(12, 60)
    assert entry is not None
    files.release(append_epoch(files, "/p", epochs, entry))

    assert list(load_epochs(disk, "/p", *KEY, whole=True)) == list(epochs)


@pytest.mark.parametrize("left", range(1, ENTRY_SIZE))
def test_a_last_entry_that_is_cut_short_is_left_out_after_a_crash_only(left: int) -> None:
    disk, _ = folder_with(a_history())
    path = f"/p/{FILE_NAME}"
    data = read_file(disk, path)
    replace_file(disk, path, data[: len(data) - ENTRY_SIZE + left])

    assert load_epochs(disk, "/p", *KEY).latest == 6
    with pytest.raises(EpochsLost):
        load_epochs(disk, "/p", *KEY, whole=True)


def test_a_last_entry_without_its_page_is_dropped_and_a_rotten_one_is_not() -> None:
    disk, _ = folder_with(a_history())
    path = f"/p/{FILE_NAME}"
    data = read_file(disk, path)
    replace_file(disk, path, data[:-ENTRY_SIZE] + bytes(ENTRY_SIZE))
    assert load_epochs(disk, "/p", *KEY).latest == 6

    replace_file(disk, path, data[: -2 * ENTRY_SIZE] + bytes(2 * ENTRY_SIZE))
    assert load_epochs(disk, "/p", *KEY).latest == 5

    replace_file(disk, path, data[: -2 * ENTRY_SIZE] + bytes(ENTRY_SIZE) + data[-ENTRY_SIZE:])
    with pytest.raises(EpochsLost):
        load_epochs(disk, "/p", *KEY)

    replace_file(disk, path, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(EpochsLost):
        load_epochs(disk, "/p", *KEY)


def test_the_history_of_another_partition_is_refused() -> None:
    disk, _ = folder_with(a_history())

    with pytest.raises(EpochsLost):
        load_epochs(disk, "/p", SID, 4)


def test_an_entry_that_did_not_fit_leaves_nothing_behind() -> None:
    disk, files = folder_with(a_history())
    epochs = load_epochs(disk, "/p", *KEY)
    before = read_file(disk, f"/p/{FILE_NAME}")
    disk.capacity = disk._used + 5
    entry = epochs.begin(12, 60)
    assert entry is not None
    with pytest.raises(OSError, match="space"):
        append_epoch(files, "/p", epochs, entry)
    epochs.withdraw()

    assert read_file(disk, f"/p/{FILE_NAME}") == before
    assert epochs.latest == 9


# --- checkpoints


def checkpoints() -> tuple[FakeDisk, Checkpoints]:
    disk = FakeDisk()
    disk.make_dir("/c")
    return disk, Checkpoints.load(disk, "/c")


def test_checkpoints_come_back_as_they_were_saved() -> None:
    disk, saved_ones = checkpoints()
    saved_ones.put_recovery_point(KEY, RecoveryPoint(100, 40, 9000), high_watermark=90)
    saved_ones.put_log_start_offset(KEY, 41)
    saved_ones.save()

    loaded = Checkpoints.load(disk, "/c")

    assert loaded.recovery_point(KEY) == RecoveryPoint(100, 40, 9000)
    assert (loaded.high_watermark(KEY), loaded.log_start_offset(KEY)) == (90, 41)
    assert loaded.recovery_point((SID, 4)) is None


def test_the_saved_high_watermark_never_exceeds_the_recovery_point() -> None:
    _, saved_ones = checkpoints()
    saved_ones.put_recovery_point(KEY, RecoveryPoint(100, 0, 1), high_watermark=120)
    assert saved_ones.high_watermark(KEY) == 100

    saved_ones.put_recovery_point(KEY, RecoveryPoint(200, 0, 2), high_watermark=50)
    saved_ones.lower_recovery_point(KEY, RecoveryPoint(80, 0, 1))
    assert saved_ones.high_watermark(KEY) == 50


@given(st.data())
def test_a_damaged_checkpoint_is_reported_and_not_believed(data: st.DataObject) -> None:
    disk, saved_ones = checkpoints()
    saved_ones.put_recovery_point(KEY, RecoveryPoint(100, 40, 9000), high_watermark=90)
    saved_ones.save()
    content = bytearray(read_file(disk, "/c/recovery-points"))
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    replace_file(disk, "/c/recovery-points", bytes(content[: data.draw(st.integers(0, len(content)))]))

    loaded = Checkpoints.load(disk, "/c")

    assert loaded.recovery_point(KEY) is None
    assert loaded.unreadable == ["/c/recovery-points"]


def test_the_mark_of_a_clean_stop_is_good_once() -> None:
    disk, saved_ones = checkpoints()
    saved_ones.write_clean_mark({KEY: CleanEnd(9, 5, 800)})

    assert Checkpoints.load(disk, "/c").take_clean_mark() == {KEY: CleanEnd(9, 5, 800)}
    assert Checkpoints.load(disk.crash(), "/c").take_clean_mark() is None


def test_a_checkpoint_that_could_not_be_saved_is_saved_the_next_time() -> None:
    disk, saved_ones = checkpoints()
    saved_ones.put_log_start_offset(KEY, 41)
    disk.capacity = disk._used + 3
    with pytest.raises(OSError, match="space"):
        saved_ones.save()
    assert disk._used == 0
    disk.capacity = None
    saved_ones.save()

    assert Checkpoints.load(disk, "/c").log_start_offset(KEY) == 41


# --- retention

SEGMENTS = [SegmentFacts(10, 1000, 100), SegmentFacts(20, 1000, 200), SegmentFacts(30, 500, 300)]


def at(now_us: int) -> RetentionNow:
    return RetentionNow(now_us, now_us)


@pytest.mark.parametrize(
    ("bounds", "start"),
    [
        (RetentionBounds(), 0),
        (RetentionBounds(age_us=250), 10),
        (RetentionBounds(age_us=50), 20),
        (RetentionBounds(bytes_max=2500), 0),
        (RetentionBounds(bytes_max=1500), 10),
        (RetentionBounds(bytes_max=1499), 10),
        (RetentionBounds(bytes_max=1), 20),
        (RetentionBounds(messages_max=7), 22),
        (RetentionBounds(messages_max=7, age_us=50), 22),
        (RetentionBounds(messages_max=100), 0),
    ],
)
def test_retention_moves_the_start_by_whole_segments_and_by_exact_messages(
    bounds: RetentionBounds, start: int
) -> None:
    assert start_after_retention(SEGMENTS, bounds, start_offset=0, high_watermark=29, now=at(400)) == start


def test_retention_stops_at_the_high_watermark_and_never_goes_back() -> None:
    bounds = RetentionBounds(age_us=1)

    assert start_after_retention(SEGMENTS, bounds, start_offset=0, high_watermark=12, now=at(10**9)) == 10
    assert start_after_retention(SEGMENTS, bounds, start_offset=15, high_watermark=3, now=at(10**9)) == 15


# --- the tail cache


def test_the_tail_cache_drops_the_oldest_batches_and_counts_their_cost() -> None:
    cost = 1000 + ENTRY_OVERHEAD_BYTES
    cache = TailCache(3 * cost)
    for log in (1, 2):
        for base in (0, 5):
            cache.put(log, base, CachedBatch(base + 5, 1, 1000, (b"x",)))
    cache.put(2, 5, CachedBatch(10, 2, 1000, (b"y",)))

    assert cache.get(1, 0) is None
    replaced = cache.get(2, 5)
    assert replaced is not None
    assert replaced.leader_epoch == 2
    assert cache.bytes == 3 * cost


def test_a_batch_larger_than_the_tail_cache_is_not_kept() -> None:
    cache = TailCache(1000)
    cache.put(1, 0, CachedBatch(5, 1, 1000, (b"x",)))

    assert cache.bytes == 0

"""The log of a partition: what is appended is read, at any offset, until it is cut or forgotten."""

from __future__ import annotations

import errno
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.disk import Fault
from storage.batches import T0, headers_of, item, read_all, records
from storage.logs import KEY, Bench
from tidelog.errors import (
    DataCorrupt,
    DiskFull,
    OffsetOutOfRange,
    PrecedingFailed,
    StorageFailed,
    UnexpectedOffset,
)
from tidelog.model import PipelineOrder
from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.directory.opening import Wanted
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.os_files import OsFiles
from tidelog_broker.storage.guard.append_guard import GuardLimits
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.write_batch import Appended, LogConfig
from tidelog_broker.storage.segments.index import INDEX_INTERVAL_BYTES


def served_from(log: PartitionLog, offset: int, **limits: int) -> tuple[int, int] | None:
    """Base offset of the first and next offset behind the last batch of a read."""
    chunk = log.reader.read(offset, limits.get("bytes_max", 1), limits.get("limit", log.end_offset))
    if chunk is None:
        return None
    found = headers_of(b"".join(bytes(part) for part in chunk.parts))
    assert chunk.next_offset == found[-1].next_offset
    assert chunk.bytes == sum(header.length for header in found)
    return found[0].base_offset, chunk.next_offset


# --- appending and reading


def test_every_offset_is_read_from_the_batch_that_holds_it() -> None:
    bench = Bench(segment_bytes=1500)
    bench.fill(20, count=3)

    assert len(bench.log.segments) > 5
    for offset in range(bench.log.end_offset):
        assert served_from(bench.log, offset) == (offset // 3 * 3, offset // 3 * 3 + 3)


def test_a_read_returns_about_the_wanted_bytes_and_continues_in_the_next_segment() -> None:
    bench = Bench(segment_bytes=3000)
    bench.fill(40)
    whole = read_all(bench.log)

    for bytes_max in (1, 500, 1000, 1 << 20):
        assert read_all(bench.log, bytes_max=bytes_max) == whole
    assert [header.base_offset for header in headers_of(whole)] == list(range(0, 120, 3))


def test_nothing_at_or_above_the_limit_is_served() -> None:
    bench = Bench()
    bench.fill(4)

    assert served_from(bench.log, 0, bytes_max=1 << 20, limit=9) == (0, 9)
    assert served_from(bench.log, 0, bytes_max=1 << 20, limit=8) == (0, 6)
    assert served_from(bench.log, 6, limit=8) is None
    assert served_from(bench.log, 9, limit=9) is None
    assert served_from(bench.log, 500, limit=900) is None


def test_a_place_hint_that_went_stale_is_only_a_hint() -> None:
    bench = Bench()
    bench.fill(10)
    for place in [(0, 8), (0, 1 << 30), (0, -8), (7, 0), (0, 0)]:
        chunk = bench.log.reader.read(15, 1, 30, place)

        assert chunk is not None
        assert chunk.next_offset == 18


def test_batches_at_the_tail_come_from_memory_until_the_log_is_cut() -> None:
    bench = Bench()
    bench.fill(4)
    cached = bench.log.reader.read_cached(3, 1 << 20, 9)

    assert cached is not None
    assert b"".join(bytes(part) for part in cached.parts) == read_all(bench.log, 3)[: cached.bytes]
    assert cached.next_offset == 9
    assert bench.log.reader.read_cached(4, 1 << 20, 9) is None
    bench.truncate(6)
    assert not bench.log.reader.is_cached(3)


def test_append_time_never_goes_back_also_after_a_start_that_read_nothing() -> None:
    bench = Bench()
    bench.append(item([b"x"]), now_us=T0 + 100)
    assert bench.append(item([b"x"]), now_us=T0)[0].append_time_us == T0 + 100
    bench.stop()
    bench.reopen()

    assert bench.append(item([b"x"]), now_us=T0 + 5)[0].append_time_us == T0 + 100


def test_r5_an_epoch_whose_first_write_failed_leaves_no_history_after_a_clean_stop() -> None:
    bench = Bench()
    bench.fill(2)
    bench.epoch = 7
    bench.disk.faults.append(Fault("pwrite", errno.ENOSPC, path=".log"))
    (outcome,) = bench.log.writer.append([item([b"x"])], leader_epoch=7, now_us=T0)
    assert isinstance(outcome, DiskFull)
    bench.disk.faults.clear()
    bench.sync()
    bench.stop()

    log = bench.reopen()

    assert (log.end_offset, log.epochs.latest) == (6, 1)
    bench.append(item([b"x"]))
    assert log.epochs.latest == 7


def test_a_roll_closes_the_segment_and_loses_nothing() -> None:
    bench = Bench()
    bench.log.writer.roll()
    assert len(bench.log.segments) == 1
    bench.fill(3)
    bench.log.writer.roll()
    bench.log.writer.roll()
    bench.fill(2)

    assert [segment.base_offset for segment in bench.log.segments] == [0, 9]
    assert len(headers_of(read_all(bench.log))) == 5


def test_a_segment_is_old_by_its_first_batch() -> None:
    bench = Bench()
    bench.log.configure(LogConfig(segment_age_us=50))
    assert not bench.log.writer.is_due(T0 + 1000)
    bench.append(item([b"x"]), now_us=T0)
    bench.append(item([b"x"]), now_us=T0 + 40)
    bench.stop()
    bench.reopen()
    bench.log.configure(LogConfig(segment_age_us=50))

    assert not bench.log.writer.is_due(T0 + 49)
    assert bench.log.writer.is_due(T0 + 50)


def test_offsets_that_a_segment_cannot_count_begin_a_new_one() -> None:
    bench = Bench()
    bench.fill(1)
    bench.log.active.next_offset = bench.log.guard.offset = (1 << 32) - 2

    bench.append(item(records(2)))
    bench.append(item(records(1)))

    assert [segment.base_offset for segment in bench.log.segments] == [0, 1 << 32]


def test_a_conditional_append_holds_within_one_write_too() -> None:
    bench = Bench()
    outcomes = bench.log.writer.append(
        [item(records(2)), item(records(1), expected_offset=2), item(records(1), expected_offset=2)],
        leader_epoch=1,
        now_us=T0,
    )

    assert isinstance(outcomes[1], Appended)
    assert isinstance(outcomes[2], UnexpectedOffset)
    assert bench.log.end_offset == 3


def test_a_repeat_is_answered_with_the_place_and_epoch_of_the_first_copy() -> None:
    bench = Bench()
    batch = item(records(2), producer_id=4)
    bench.append(item(records(5)), batch)
    bench.epoch = 2
    bench.append(item(records(1)))

    again = bench.append(batch)[0]

    assert again == Appended(5, 6, 1, T0, duplicate=True)


def test_behind_a_refused_batch_of_a_sender_the_rest_is_refused_until_it_begins_anew() -> None:
    bench, sender = Bench(), PipelineOrder()
    bad = item(records(1), producer_id=4, sequence=9)._replace(sender=sender)
    good = item(records(1))._replace(sender=sender)

    outcomes = bench.log.writer.append(
        [bad, good, good._replace(reset=True), good], leader_epoch=1, now_us=T0
    )

    assert isinstance(outcomes[1], PrecedingFailed)
    assert [type(outcome) for outcome in outcomes[2:]] == [Appended, Appended]


# --- time


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=25), st.data())
def test_a_time_is_found_like_by_a_slow_twin(batches: list[list[int]], data: st.DataObject) -> None:
    bench, truth = Bench(segment_bytes=1300), []
    for times in batches:
        bench.append(item(records(len(times)), timestamps=[T0 + time for time in times]))
        truth += times
    if data.draw(st.booleans()):
        bench.stop()
        bench.reopen()
        bench.append(item([b"x"], timestamps=[T0]))
        truth.append(0)
    start = data.draw(st.integers(0, len(truth)))
    bench.log.start.advance(start)
    limit = data.draw(st.integers(0, len(truth)))

    for wanted in range(62):
        at = next((o for o, time in enumerate(truth) if o >= start and time >= wanted), None)
        expected = at if at is not None and at < limit else None
        assert bench.log.reader.find_time(T0 + wanted, limit) == expected


# --- bytes


def stored_bytes(log: PartitionLog, offset: int) -> int:
    """Of the batch that holds `offset`."""
    chunk = log.reader.read(offset, 1, log.end_offset)
    assert chunk is not None
    return chunk.bytes


@settings(max_examples=60)
@given(st.lists(st.integers(1, 500), min_size=1, max_size=25), st.data())
def test_the_edge_after_some_bytes_is_that_of_a_slow_twin(sizes: list[int], data: st.DataObject) -> None:
    bench, ends = Bench(segment_bytes=1300), []
    for size in sizes:
        end = bench.append(item(records(2, size)))[0].last_offset + 1
        ends.append((end, stored_bytes(bench.log, end - 2)))
    if data.draw(st.booleans()):
        bench.stop()
        bench.reopen()
    offset = data.draw(st.integers(0, 2 * len(sizes) - 1))
    limit = data.draw(st.integers(offset, 2 * len(sizes)))
    wanted = data.draw(st.integers(1, 8000))

    reached, left = offset, wanted
    for end, size in ends:
        if end > offset and (reached == offset or size <= left):
            reached, left = end, left - size
        elif end > offset:
            break
    assert bench.log.reader.after_bytes(offset, wanted, limit) == min(reached, limit)


def test_bytes_are_counted_from_the_index_where_a_segment_is_large() -> None:
    bench = Bench()
    bench.fill(60, count=2, size=6000)
    size = stored_bytes(bench.log, 0)

    for batches in range(1, 61):
        assert bench.log.reader.after_bytes(0, batches * size, 120) == batches * 2
        assert bench.log.reader.after_bytes(1, batches * size + size - 1, 120) == batches * 2


def test_bytes_below_the_log_start_are_refused() -> None:
    bench = Bench()
    bench.fill(4)
    bench.log.start.advance(3)

    with pytest.raises(OffsetOutOfRange):
        bench.log.reader.after_bytes(2, 100, 12)


# --- indexes are caches


@pytest.mark.parametrize("harm", ["missing", "empty", "short", "garbage", "of another log"])
def test_a_log_is_read_right_whatever_became_of_its_indexes(harm: str) -> None:
    bench = Bench(segment_bytes=10 * INDEX_INTERVAL_BYTES)
    bench.fill(60, count=2, size=6000)
    other = Bench(segment_bytes=10 * INDEX_INTERVAL_BYTES)
    other.fill(90, count=1, size=9000)
    for one in (bench, other):
        one.stop()
    for name in [n for n in bench.disk.list(bench.folder) if "index" in n]:
        path = f"{bench.folder}/{name}"
        content = bench.disk.tree()[path]
        assert len(content) >= 24
        bench.disk.remove(path)
        if harm != "missing":
            file = bench.disk.open(path, create=True)
            foreign = other.disk.tree().get(path, b"")
            changed = {
                "empty": b"",
                "short": content[:20],
                "garbage": b"\x07" * 600,
                "of another log": foreign,
            }
            file.pwrite([changed[harm]], 0)
            file.close()
    bench.reopen()

    for offset in range(0, 120, 7):
        assert served_from(bench.log, offset) == (offset // 2 * 2, offset // 2 * 2 + 2)
        assert bench.log.reader.find_time(T0 + offset, 120) == offset
        size = stored_bytes(bench.log, offset)
        for batches in (1, 20):
            after = min(120, offset // 2 * 2 + 2 * batches)
            assert bench.log.reader.after_bytes(offset, batches * size, 120) == after


def test_an_index_left_by_a_history_that_a_crash_cut_off_leads_nobody_astray() -> None:
    bench = Bench()
    bench.fill(30, count=2, size=4000)
    bench.sync()
    bench.checkpoint()
    bench.fill(60, count=3, size=3000)
    bench.log.active.save_index()
    bench.disk = bench.disk.crash()
    for name in ("index", "timeindex"):
        # By chance the kernel had written these back already.
        path = f"{bench.folder}/{'0' * 20}.{name}"
        file = bench.disk.open(path, create=True)
        file.pwrite([bench.store.files.files.tree()[path]], 0)  # type: ignore[attr-defined]
        file.datasync()
        file.close()
    bench.reopen(same_boot=False)
    bench.epoch = 2
    bench.fill(70, count=1, size=9000)

    for offset in range(60, 130):
        assert served_from(bench.log, offset) == (offset, offset + 1)
        assert bench.log.reader.find_time(T0 + offset, 130) == offset
    bench.sync()
    bench.checkpoint()
    bench.disk = bench.disk.crash()
    bench.reopen(same_boot=False)
    for offset in range(60, 130):
        assert bench.log.reader.find_time(T0 + offset, 130) == offset


# --- the start


def test_below_the_log_start_nothing_is_read_and_files_go_only_when_wholly_below() -> None:
    bench = Bench(segment_bytes=1500)
    bench.fill(12)
    bases = [segment.base_offset for segment in bench.log.segments]
    bench.log.start.advance(bases[2] + 1)
    bench.checkpoint()

    freed = bench.log.start.remove_files_below()

    assert freed > 0
    assert bench.log.segments[0].base_offset == bases[2]
    with pytest.raises(OffsetOutOfRange) as refused:
        bench.log.reader.read(bases[2], 1, bench.log.end_offset)
    assert refused.value.details["log_start_offset"] == str(bases[2] + 1)
    assert served_from(bench.log, bases[2] + 1) == (bases[2], bases[2] + 3)
    bench.log.start.advance(3)
    assert bench.log.start_offset == bases[2] + 1


def test_what_the_guard_knew_of_removed_segments_survives_a_power_cut() -> None:
    bench = Bench(segment_bytes=1500)
    batch = item(records(2), producer_id=4)
    bench.append(batch)
    bench.fill(12)
    bench.log.start.advance(bench.log.segments[-1].base_offset)
    bench.checkpoint()
    bench.log.start.remove_files_below()
    bench.disk = bench.disk.crash()
    bench.reopen(same_boot=False)

    assert bench.append(batch)[0].duplicate


def test_segments_that_a_crash_kept_from_being_removed_go_at_the_next_start() -> None:
    bench = Bench(segment_bytes=1500)
    bench.fill(12)
    bases = [segment.base_offset for segment in bench.log.segments]
    bench.sync()
    bench.log.start.advance(bases[3])
    bench.checkpoint()
    bench.disk.remove(bench.segment_path(1))
    bench.reopen(same_boot=False)

    assert [segment.base_offset for segment in bench.log.segments] == bases[3:]
    assert bench.log.start_offset == bases[3]


def test_retention_beside_a_flush_takes_nothing_from_under_it() -> None:
    bench = Bench(segment_bytes=1500)
    bench.fill(12)
    assert bench.log.flusher.unsynced

    bench.log.start.advance(bench.log.end_offset)
    bench.log.start.remove_files_below()
    bench.sync()

    assert bench.log.durable_offset == bench.log.end_offset
    assert len(bench.store.files) <= len(bench.store.files._idle)


# --- truncation


@pytest.mark.parametrize("synced", [True, False])
def test_a_log_can_be_cut_at_every_offset_and_goes_on(synced: bool) -> None:
    for offset in range(31):
        bench = Bench(segment_bytes=1500)
        bench.fill(6)
        bench.epoch = 4
        bench.fill(4)
        if synced:
            bench.sync()
            bench.checkpoint()
        end = bench.truncate(offset)

        assert end == min(offset // 3 * 3, 30)
        assert bench.log.end_offset == end
        assert all(start.start_offset < end for start in bench.log.epochs)
        bench.epoch = 7
        bench.fill(3, count=2)
        bench.sync()
        bench.disk = bench.disk.crash()
        bench.reopen(same_boot=False)
        assert [h.base_offset for h in headers_of(read_all(bench.log))] == [
            *range(0, end, 3),
            *range(end, end + 6, 2),
        ]
        assert bench.log.guard.offset == end + 6


def test_a_truncation_is_durable_when_it_returns() -> None:
    bench = Bench(segment_bytes=1500)
    bench.fill(10)
    bench.sync()
    bench.checkpoint()
    bench.truncate(7)
    bench.disk = bench.disk.crash()

    assert bench.reopen(same_boot=False).end_offset == 6
    assert not bench.log.suspect


def test_a_truncation_makes_the_segments_durable_that_it_keeps() -> None:
    bench = Bench(segment_bytes=4096)
    bench.fill(30)
    assert len(bench.log.segments) > 3
    bench.log.cutter.truncate(
        bench.log.segments[-1].base_offset,
        lambda point: bench.store.saved.save_recovery_point(bench.log, point),
    )
    kept = read_all(bench.log)
    assert not bench.log.flusher.unsynced
    bench.checkpoint()
    for seed in range(20):
        after = Bench(segment_bytes=4096)
        after.disk = bench.disk.crash(random.Random(seed))
        assert read_all(after.reopen(same_boot=False)) == kept


def test_a_truncation_below_the_start_leaves_an_empty_log_at_the_start() -> None:
    bench = Bench()
    bench.fill(10)
    bench.log.start.advance(14)
    bench.checkpoint()

    assert bench.truncate(13) == 14
    assert (bench.log.start_offset, bench.log.end_offset) == (14, 14)
    bench.append(item(records(2)))
    bench.sync()
    assert bench.reopen().end_offset == 16


def test_a_truncation_goes_by_what_can_be_read_when_the_way_there_is_damaged() -> None:
    bench = Bench()
    bench.fill(10)
    lengths = [header.length for header in headers_of(read_all(bench.log))]
    bench.disk.flip(bench.segment_path(0), sum(lengths[:4]) + 4, 2)

    assert bench.truncate(22) == 21
    assert bench.truncate(13) == 12


def test_a_snapshot_of_the_guard_from_before_a_truncation_is_not_believed_after_it() -> None:
    bench = Bench()
    bench.append(item(records(2), producer_id=4))
    bench.append(item(records(2), producer_id=4, sequence=2))
    bench.log.guarding.save()
    bench.sync()
    bench.truncate(2)
    bench.append(item(records(2), producer_id=5))
    bench.sync()
    bench.disk = bench.disk.crash()
    bench.reopen(same_boot=False)

    assert set(bench.log.guard.producers) == {4, 5}
    assert bench.log.guard.producers[4].last_sequence == 1


def test_a_snapshot_of_the_guard_that_recovery_removed_cannot_come_back() -> None:
    bench = Bench()
    bench.append(item(records(2), producer_id=1))
    bench.sync()
    bench.checkpoint()
    bench.append(item(records(2), producer_id=1, sequence=2))
    bench.log.guarding.save()
    # By chance the snapshot came to the disk, and the batch before it did not.
    snapshot = bench.disk.open(f"{bench.folder}/{4:020d}.guard")
    snapshot.datasync()
    bench.disk.sync_dir(bench.folder)
    bench.disk = bench.disk.crash()
    assert bench.reopen(same_boot=False).end_offset == 2
    bench.append(item(records(2), producer_id=7))
    bench.sync()
    bench.disk = bench.disk.crash()
    bench.reopen(same_boot=False)

    assert set(bench.log.guard.producers) == {1, 7}


# --- damage


def damage_in(bench: Bench, base: int, byte: int = 100) -> None:
    data, at = read_all(bench.log, bench.log.start_offset), 0
    for header in headers_of(data):
        segment = max(s.base_offset for s in bench.log.segments if s.base_offset <= header.base_offset)
        if header.base_offset == segment:
            at = 0
        if header.base_offset == base:
            bench.disk.flip(f"{bench.folder}/{segment:020d}.log", at + byte, 3)
            return
        at += header.length
    raise AssertionError(f"no batch begins at {base}")


@pytest.mark.parametrize("byte", [0, 4, 6, 9, 20, 26, 30, 33, 44, 70, 130])
@pytest.mark.parametrize("base", [3, 12, 27, 36])
def test_a_damaged_batch_is_refused_and_the_rest_serves(base: int, byte: int) -> None:
    bench = Bench(segment_bytes=5000)
    bench.fill(13)
    assert len(bench.log.segments) == 2
    damage_in(bench, base, byte)

    for offset in range(39):
        if base <= offset < base + 3:
            with pytest.raises(DataCorrupt) as refused:
                bench.log.reader.read(offset, 1, 39)
            assert refused.value.details["damaged_end"] == str(base + 3)
        else:
            assert served_from(bench.log, offset) == (offset // 3 * 3, offset // 3 * 3 + 3)
            assert bench.log.reader.find_time(T0 + offset, 39) == offset
    assert [(damage.start, damage.end) for damage in bench.log.damaged] == [(base, base + 3)]
    bench.fill(2)
    assert served_from(bench.log, 39) == (39, 42)


def test_a_sector_that_cannot_be_read_is_damage_like_any_other() -> None:
    bench = Bench()
    bench.fill(5)
    bench.disk.fail("pread", errno.EIO, path=".log", times=1)

    assert served_from(bench.log, 6) == (6, 9)
    bench.disk.fail("pread", errno.EIO, path=".log", times=1000)
    with pytest.raises(DataCorrupt):
        bench.log.reader.read(6, 1, 15)


def test_a_segment_that_is_gone_is_damage_and_not_a_wait() -> None:
    bench = Bench(segment_bytes=1500)
    bench.fill(12)
    path, base = bench.segment_path(1), bench.log.segments[1].base_offset
    bench.stop()
    bench.disk.remove(path)
    bench.reopen()

    with pytest.raises(DataCorrupt):
        bench.log.reader.read(base, 1, bench.log.end_offset)
    assert served_from(bench.log, bench.log.segments[-1].base_offset) is not None


def test_the_guard_is_rebuilt_around_damage_and_appends_go_on() -> None:
    bench = Bench()
    bench.append(item(records(2), producer_id=1))
    bench.append(item(records(2), producer_id=2))
    bench.append(item(records(2), producer_id=3))
    bench.sync()
    bench.checkpoint()
    damage_in(bench, 2)
    bench.reopen()

    assert set(bench.log.guard.producers) == {1, 3}
    assert bench.append(item(records(1)))[0].base_offset == 6


def test_a_rotten_end_is_no_obstacle_to_rolling() -> None:
    bench = Bench()
    bench.fill(3)
    bench.stop()
    damage_in(bench, 6, byte=4)
    bench.reopen()
    bench.log.writer.roll()
    bench.fill(2)

    assert served_from(bench.log, 9) == (9, 12)
    assert served_from(bench.log, 3) == (3, 6)


# --- a disk that fails


def test_on_a_full_disk_appends_are_refused_reads_continue_and_writes_resume() -> None:
    bench = Bench(segment_bytes=2000)
    bench.fill(3)
    before = read_all(bench.log)
    bench.disk.capacity = bench.disk._used + 500
    batch = item(records(4, 400), producer_id=3)

    outcomes = bench.log.writer.append([item([b"small"]), batch, batch], leader_epoch=1, now_us=T0)

    assert [type(outcome) for outcome in outcomes[1:]] == [DiskFull, DiskFull]
    ends = bench.log.end_offset
    assert read_all(bench.log)[: len(before)] == before
    bench.disk.capacity = None
    assert bench.append(batch)[0].base_offset == ends
    bench.sync()
    assert bench.disk.crash().tree()[bench.segment_path(0)] == bench.disk.tree()[bench.segment_path(0)]


def test_of_a_refused_write_nothing_is_left_even_after_a_power_cut() -> None:
    bench = Bench()
    bench.fill(2)
    bench.sync()
    bench.checkpoint()
    batches = [item(records(1, 300)) for _ in range(4)]
    bench.disk.capacity = bench.disk._used + 2 * batches[0].header.length + 10

    assert all(isinstance(o, DiskFull) for o in bench.log.writer.append(batches, leader_epoch=1, now_us=T0))
    for seed in range(30):
        after = bench.disk.crash(random.Random(seed)).tree()[bench.segment_path(0)]
        assert len(after) == bench.log.active.size
    assert len(bench.disk.tree()[bench.segment_path(0)]) == bench.log.active.size


def test_a_repeat_of_a_batch_whose_write_failed_is_refused_with_it() -> None:
    bench = Bench()
    batch = item(records(2), producer_id=3)
    bench.disk.fail("pwrite", errno.EIO, path=".log")

    outcomes = bench.log.writer.append([batch, batch], leader_epoch=1, now_us=T0)

    assert [type(outcome) for outcome in outcomes] == [StorageFailed, StorageFailed]
    assert not bench.append(batch)[0].duplicate


def test_a_write_that_cannot_be_taken_back_ends_the_log() -> None:
    bench = Bench()
    bench.fill(1)
    bench.disk.capacity = bench.disk._used + 100
    bench.disk.fail("truncate", errno.EIO, path=".log")

    with pytest.raises(StorageFailure):
        bench.log.writer.append([item(records(9))], leader_epoch=1, now_us=T0)
    bench.disk.capacity = None
    with pytest.raises(StorageFailure):
        bench.log.writer.append([item(records(1))], leader_epoch=1, now_us=T0)


def test_an_epoch_that_cannot_be_taken_back_ends_the_log() -> None:
    bench = Bench()
    bench.fill(1)
    bench.disk.capacity = bench.disk._used + 10
    bench.disk.fail("datasync", errno.EIO, path="leader-epochs")

    with pytest.raises(StorageFailure, match="could not be cut off"):
        bench.log.writer.append([item(records(1))], leader_epoch=2, now_us=T0)
    bench.disk.capacity = None
    with pytest.raises(StorageFailure):
        bench.log.writer.append([item(records(1))], leader_epoch=2, now_us=T0)


@pytest.mark.parametrize("path", [".log", "leader-epochs"])
def test_after_a_failed_flush_nothing_is_ever_called_durable_again(path: str) -> None:
    bench = Bench()
    bench.fill(1)
    bench.disk.fail("datasync", errno.EIO, path=path)

    with pytest.raises(StorageFailure, match="Input/output error"):
        bench.sync()
    with pytest.raises(StorageFailure):
        bench.sync()
    with pytest.raises(StorageFailure):
        bench.log.writer.append([item(records(1))], leader_epoch=1, now_us=T0)
    assert bench.log.durable_offset == 0


def test_a_closed_log_refuses_appends_and_has_nothing_to_flush() -> None:
    bench = Bench()
    bench.fill(2)
    path = bench.store.delete_stream("orders", KEY[0], [bench.log])

    bench.sync()
    outcome = bench.log.writer.append([item(records(1))], leader_epoch=1, now_us=T0)[0]

    assert getattr(outcome, "code", None) == "STOPPING"
    assert len(bench.store.files) == 0
    assert path is not None
    bench.store.folders.remove_deleted(path)
    assert bench.store.folders.deleted() == []


# --- many threads


@pytest.mark.slow
def test_appends_flushes_retention_and_reads_go_on_at_the_same_time(tmp_path: Path) -> None:
    store = LogStore(OsFiles(), str(tmp_path), open_files_max=3)
    wanted = Wanted("orders", KEY[0], 0, LogConfig(segment_bytes=20_000, guard=GuardLimits()))
    log = store.opener.create(wanted)
    done = threading.Event()
    appended = 600

    def write() -> None:
        for number in range(appended):
            log.writer.append(
                [item(records(3), timestamps=[T0 + number] * 3)], leader_epoch=1, now_us=T0 + number
            )
        done.set()

    def flush() -> None:
        while not done.is_set():
            point = log.flusher.sync()
            assert log.durable_offset >= point.offset

    def forget() -> None:
        while not done.is_set():
            log.start.advance(log.durable_offset - 700)
            store.saved.save([(log, log.durable_offset)])
            log.start.remove_files_below()

    def read() -> None:
        while not done.is_set():
            try:
                offset = max(log.start_offset, log.durable_offset - 400)
                chunk = log.reader.read(offset, 3000, log.durable_offset)
                found = log.reader.find_time(T0 + offset // 3, log.end_offset)
            except OffsetOutOfRange:
                continue
            assert chunk is None or chunk.next_offset > offset
            assert found is None or found >= offset // 3 * 3
            assert not log.damaged

    with ThreadPoolExecutor(6) as threads:
        running = [threads.submit(work) for work in (write, flush, forget, read, read)]
        for one in running:
            one.result(timeout=60)
    store.close_clean([(log, log.end_offset)])
    again = LogStore(OsFiles(), str(tmp_path)).opener.open_all([wanted], same_boot=True).logs[KEY]
    assert again.end_offset == 3 * appended
    assert len(headers_of(read_all(again, again.segments[-1].base_offset))) > 0


def test_a_flush_that_ran_while_a_batch_was_written_does_not_vouch_for_it() -> None:
    bench = Bench()
    bench.fill(1)
    bench.sync()
    flushed: list[int] = []

    def flush_first(operation: object) -> None:
        if getattr(operation, "name", "") == "pwrite" and not flushed:
            flushed.append(bench.log.flusher.sync().offset)

    bench.disk.before = flush_first
    bench.fill(1)
    bench.disk.before = None

    assert flushed == [3]
    assert bench.log.durable_offset == 3
    bench.sync()
    bench.disk = bench.disk.crash()
    assert bench.reopen(same_boot=False).end_offset == 6


def test_a_flush_speaks_for_what_was_appended_before_it_began_and_no_more() -> None:
    bench = Bench(segment_bytes=1500)
    bench.fill(2)

    with bench.log.flusher.flushing() as unsynced:
        unsynced.sync()
        bench.fill(20)

    assert bench.log.durable_offset == 6
    assert bench.log.flusher.unsynced
    bench.disk = bench.disk.crash()
    assert bench.reopen(same_boot=False).end_offset == 6


def test_a_segment_that_is_larger_than_segments_are_by_now_is_due() -> None:
    bench = Bench(segment_bytes=1 << 20)
    bench.append(item([b"x" * 6000]), now_us=T0)
    assert not bench.log.writer.is_due(T0)
    bench.log.configure(LogConfig(segment_bytes=4096))
    assert bench.log.writer.is_due(T0)

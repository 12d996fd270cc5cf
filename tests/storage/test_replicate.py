"""A follower's side of the log: batches are written as the leader stores them, or nothing is."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.disk import Fault
from storage.batches import STREAM_ID, T0, headers_of, item, read_all, records
from storage.crash_model import guard_state
from storage.logs import ROOT, Bench
from tidelog.errors import DataCorrupt, DiskFull
from tidelog.records import BatchHeader, header_crc, stamp
from tidelog.records.checksum import crc32c
from tidelog_broker.core.replication.log_view import LogView
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.replicated import OutOfSequence


def leader_log() -> Bench:
    """A log with producers, message ids, several segments and three epochs, of which one has no records."""
    bench = Bench(segment_bytes=3000)
    for number in range(4):
        bench.append(
            item(records(2), producer_id=7, sequence=2 * number), item(records(2), ids=[f"m{number}", None])
        )
    bench.epoch = 3
    bench.fill(6)
    bench.epoch = 4
    bench.append(item(records(1), producer_id=7, sequence=8), now_us=T0 + 5)
    return bench


def stored(log: PartitionLog, start: int = 0) -> bytes:
    return read_all(log, start)


def split(data: bytes) -> list[bytes]:
    found, at = [], 0
    for header in headers_of(data):
        found.append(data[at : at + header.length])
        at += header.length
    return found


@pytest.mark.parametrize("batches_at_once", [1, 3, 100])
@pytest.mark.parametrize("segment_bytes", [700, 3000, 1 << 20])
def test_the_follower_has_the_same_bytes_history_guard_and_times(
    batches_at_once: int, segment_bytes: int
) -> None:
    leader, follower = leader_log(), Bench(segment_bytes=segment_bytes)
    whole = split(stored(leader.log))

    for at in range(0, len(whole), batches_at_once):
        data = b"".join(whole[at : at + batches_at_once])
        end = follower.log.writer.replicate(data, leader_epoch=4)
        assert end == follower.log.end_offset

    assert stored(follower.log) == stored(leader.log)
    assert list(follower.log.epochs) == list(leader.log.epochs)
    assert guard_state(follower.log.guard) == guard_state(leader.log.guard)
    assert follower.log.writer.last_append_us == leader.log.writer.last_append_us
    assert all(segment.size <= max(segment_bytes, 800) for segment in follower.log.segments)
    cached = follower.log.reader.read_cached(0, 1 << 20, follower.log.end_offset)
    assert cached is not None
    assert b"".join(bytes(part) for part in cached.parts) == stored(leader.log)[: cached.bytes]


def test_what_was_replicated_is_there_after_a_power_cut_once_it_was_flushed() -> None:
    leader, follower = leader_log(), Bench(segment_bytes=900)
    follower.log.writer.replicate(stored(leader.log), leader_epoch=4)
    assert follower.log.durable_epoch is None
    follower.sync()
    assert (follower.log.durable_epoch, follower.log.durable_offset) == (4, leader.log.end_offset)
    follower.disk = follower.disk.crash(random.Random(1))

    log = follower.reopen(same_boot=False)

    assert stored(log) == stored(leader.log)
    assert list(log.epochs) == list(leader.log.epochs)
    assert guard_state(log.guard) == guard_state(leader.log.guard)


def test_batches_of_one_segment_are_one_write() -> None:
    leader, follower = Bench(), Bench()
    leader.fill(20)
    follower.disk.log = []

    follower.log.writer.replicate(stored(leader.log), leader_epoch=1)

    written = [operation for operation in follower.disk.log if operation.path.endswith(".log")]
    assert [operation.name for operation in written] == ["create", "pwrite"]


def test_what_does_not_continue_the_log_is_refused() -> None:
    leader, follower = leader_log(), Bench()
    whole = split(stored(leader.log))
    follower.log.writer.replicate(whole[0] + whole[1], leader_epoch=4)
    before = stored(follower.log)

    for data in (whole[3], whole[1] + whole[2], whole[2] + whole[4], whole[2] + whole[2]):
        with pytest.raises(OutOfSequence, match="is next"):
            follower.log.writer.replicate(data, leader_epoch=4)
    with pytest.raises(OutOfSequence, match="leader epoch 4"):
        follower.log.writer.replicate(b"".join(whole[2:]), leader_epoch=3)
    assert stored(follower.log) == before
    assert follower.log.guard.offset == 4


def test_epochs_never_go_back_from_one_record_to_the_next() -> None:
    leader, follower = Bench(), Bench()
    leader.fill(1)
    leader.epoch = 5
    leader.fill(1)
    first, second = split(stored(leader.log))
    other = Bench()
    other.epoch = 2
    other.fill(2)
    follower.log.writer.replicate(first + second, leader_epoch=9)

    third = split(stored(other.log))[1]
    moved = _stamped(third, base_offset=6, leader_epoch=2)
    with pytest.raises(OutOfSequence, match="from 5 to its own, 9"):
        follower.log.writer.replicate(moved, leader_epoch=9)


def _stamped(batch: bytes, *, base_offset: int, leader_epoch: int) -> bytes:
    """The batch at another place, as a leader would store it there."""
    raw = stamp(
        batch,
        stream_id=STREAM_ID,
        partition=0,
        base_offset=base_offset,
        append_time_us=T0,
        leader_epoch=leader_epoch,
    )
    return raw + batch[80:]


@given(st.data())
def test_a_flipped_bit_anywhere_is_refused_and_nothing_is_written(data: st.DataObject) -> None:
    leader, follower = leader_log(), Bench()
    whole = split(stored(leader.log))
    follower.log.writer.replicate(whole[0], leader_epoch=4)
    good = bytearray(b"".join(whole[1:4]))
    at = data.draw(st.integers(0, len(good) - 1))
    good[at] ^= 1 << data.draw(st.integers(0, 7))
    operations = follower.disk.operations

    with pytest.raises((DataCorrupt, OutOfSequence)):
        follower.log.writer.replicate(bytes(good), leader_epoch=4)

    assert follower.disk.operations == operations
    assert follower.log.end_offset == 2


@pytest.mark.parametrize("length", [0, 1, 79, 80, 300])
def test_bytes_that_end_inside_a_batch_are_refused(length: int) -> None:
    whole = stored(leader_log().log)

    with pytest.raises(DataCorrupt):
        Bench().log.writer.replicate(whole[:length], leader_epoch=4)


def test_a_batch_of_another_partition_is_refused() -> None:
    leader = leader_log()
    whole = split(stored(leader.log))[0]
    head = bytearray(whole[:80])
    head[28:32] = header_crc(STREAM_ID, 1, bytes(head)).to_bytes(4, "little")

    with pytest.raises(DataCorrupt, match="header CRC"):
        Bench().log.writer.replicate(bytes(head) + whole[80:], leader_epoch=4)


def test_a_leader_that_counts_wrongly_is_refused() -> None:
    whole = bytearray(split(stored(leader_log().log))[0])
    whole[44:48] = (7).to_bytes(4, "little")
    whole[32:36] = crc32c(bytes(whole[36:])).to_bytes(4, "little")
    whole[28:32] = header_crc(STREAM_ID, 0, bytes(whole[:80])).to_bytes(4, "little")
    assert BatchHeader.unpack(bytes(whole)).last_offset_delta == 7

    with pytest.raises(DataCorrupt, match="whose last is 7 behind"):
        Bench().log.writer.replicate(bytes(whole), leader_epoch=4)


def test_a_write_that_fails_is_taken_back_and_can_be_repeated() -> None:
    leader, follower = leader_log(), Bench()
    whole = split(stored(leader.log))
    follower.log.writer.replicate(whole[0], leader_epoch=4)
    follower.disk.faults.append(Fault("pwrite", errno.ENOSPC, path=".log"))

    with pytest.raises(DiskFull):
        follower.log.writer.replicate(b"".join(whole[1:]), leader_epoch=4)

    assert follower.log.end_offset == 2
    follower.log.writer.replicate(b"".join(whole[1:]), leader_epoch=4)
    assert stored(follower.log) == stored(leader.log)
    assert list(follower.log.epochs) == list(leader.log.epochs)


def test_an_epoch_without_records_gives_way_to_the_leaders_history() -> None:
    leader, follower = leader_log(), Bench()
    whole = split(stored(leader.log))
    follower.log.writer.replicate(whole[0], leader_epoch=4)
    follower.log.writer.begin_unclean_epoch(2)

    follower.log.writer.replicate(b"".join(whole[1:]), leader_epoch=4)

    assert list(follower.log.epochs) == list(leader.log.epochs)
    follower.sync()
    assert list(follower.reopen(same_boot=False).epochs) == list(leader.log.epochs)


def test_unclean_epochs_are_marked_where_they_begin_with_and_without_records() -> None:
    leader = Bench()
    leader.fill(2)
    leader.log.writer.begin_unclean_epoch(2)
    leader.epoch = 3
    leader.fill(1)
    leader.log.writer.begin_unclean_epoch(4)
    leader.epoch = 4
    leader.fill(1)
    marks = [(epoch, start) for epoch, start, unclean in leader.log.epochs if unclean]
    assert marks == [(2, 6), (4, 9)]

    follower = Bench()
    follower.log.writer.replicate(stored(leader.log), leader_epoch=4, unclean=marks)

    assert list(follower.log.epochs) == list(leader.log.epochs)


def test_only_empty_epochs_later_than_the_leaders_batches_are_dropped() -> None:
    leader, follower = Bench(), Bench()
    for one in (leader, follower):
        one.fill(2)
        one.log.writer.begin_unclean_epoch(2)
    follower.log.writer.begin_unclean_epoch(5)
    leader.log.writer.begin_unclean_epoch(3)
    leader.epoch = 4
    leader.fill(1)

    follower.log.writer.replicate(split(stored(leader.log))[-1], leader_epoch=6, unclean=[(3, 6)])

    assert list(follower.log.epochs) == list(leader.log.epochs)
    follower.sync()
    assert list(follower.reopen(same_boot=False).epochs) == list(leader.log.epochs)


def test_an_unclean_epoch_without_records_is_remembered_over_a_crash() -> None:
    bench = Bench()
    bench.fill(2)
    bench.log.writer.begin_unclean_epoch(5)
    bench.log.writer.begin_unclean_epoch(5)
    bench.sync()
    assert bench.log.durable_epoch == 5
    bench.disk = bench.disk.crash(random.Random(3))

    log = bench.reopen(same_boot=False)

    assert [tuple(entry) for entry in log.epochs] == [(1, 0, False), (5, 6, True)]


def test_how_far_behind_an_offset_is_is_never_said_too_low() -> None:
    bench = Bench(segment_bytes=9000)
    bench.fill(60, size=300)
    for offset in range(0, bench.log.end_offset + 1, 3):
        behind = len(stored(bench.log, offset)) if offset < bench.log.end_offset else 0
        assert behind <= bench.log.bytes_from(offset) <= behind + 9000 + 4096
    assert bench.log.bytes_from(bench.log.end_offset) == 0 or bench.log.active.size


def test_a_partitions_log_is_what_the_rules_of_replication_see() -> None:
    view: LogView = Bench().log

    assert (view.start_offset, view.end_offset, view.durable_epoch, view.epochs.latest) == (0, 0, None, None)


@pytest.mark.parametrize("seed", range(3))
def test_wherever_a_crash_comes_the_follower_has_a_beginning_of_the_leaders_log(seed: int) -> None:
    leader = leader_log()
    whole = split(stored(leader.log))
    follower, rng = Bench(segment_bytes=1500), random.Random(seed)
    crashes: list[tuple[object, bool, int]] = []
    flushed = 0

    def before(operation: object) -> None:
        crashes.append((follower.disk.copy(), True, flushed))
        crashes.append((follower.disk.crash(random.Random(rng.getrandbits(32))), False, flushed))

    follower.disk.before = before
    for at in range(0, len(whole), 3):
        follower.log.writer.replicate(b"".join(whole[at : at + 3]), leader_epoch=4)
        if at % 2:
            follower.sync()
            flushed = follower.log.end_offset
            follower.checkpoint()

    assert len(crashes) > 60
    ends = {0, *(header.next_offset for header in headers_of(stored(leader.log)))}
    for disk, same_boot, durable in crashes:
        opened = LogStore(disk, ROOT).opener.open_all([follower.wanted], same_boot=same_boot)  # type: ignore[arg-type]
        (log,) = opened.logs.values()
        assert log.end_offset in ends
        assert log.end_offset >= durable
        assert stored(log) == b"".join(
            one for one in whole if BatchHeader.unpack(one).next_offset <= log.end_offset
        )
        assert list(log.epochs) == [e for e in leader.log.epochs if e.start_offset < log.end_offset]
        log.writer.replicate(
            b"".join(one for one in whole if BatchHeader.unpack(one).base_offset >= log.end_offset)
            or _stamped(whole[0], base_offset=log.end_offset, leader_epoch=4),
            leader_epoch=4,
        )
        assert stored(log)[: len(stored(leader.log))] == stored(leader.log)

"""A follower whose log begins inside a batch keeps the whole batch and the start, over crashes (R11)."""

from __future__ import annotations

import errno
import random

import pytest

from simulator.disk import FakeDisk, Fault
from storage.batches import headers_of, item, read_all, records
from storage.logs import KEY, ROOT, Bench
from tidelog.errors import DataCorrupt, DiskFull, OffsetOutOfRange
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.replicated import OutOfSequence

START = 15
"""The log start: inside the batch of offsets 12–17."""


def leader_log() -> Bench:
    leader = Bench(segment_bytes=1500)
    leader.fill(8, count=6)
    leader.log.start.advance(START)
    return leader


def served(leader: Bench) -> bytes:
    """What a leader answers who asks from its log start."""
    chunk = leader.log.reader.read(START, 1200, leader.log.end_offset)
    assert chunk is not None
    data = b"".join(bytes(part) for part in chunk.parts)
    assert headers_of(data)[0].base_offset == 12
    return data


def empty_follower(*, with_old_records: bool = False) -> Bench:
    """Its log is to begin at the leader's log start."""
    bench = Bench(segment_bytes=1500)
    if with_old_records:
        bench.fill(3, count=3)
    bench.log.cutter.restart_at(START, lambda start: bench.store.saved.save_restart(bench.log, start))
    return bench


def receive(bench: Bench, data: bytes) -> int:
    return bench.log.cutter.receive(
        data,
        leader_epoch=1,
        save_recovery_point=lambda point: bench.store.saved.save_recovery_point(bench.log, point),
    )


def opened(disk: FakeDisk, bench: Bench, same_boot: bool) -> PartitionLog:
    found = LogStore(disk, ROOT).opener.open_all([bench.wanted], same_boot=same_boot)
    assert not found.lost, found.lost
    return found.logs[KEY]


def test_it_holds_the_whole_batch_and_serves_it_from_the_start_on() -> None:
    leader, bench = leader_log(), empty_follower()

    end = receive(bench, served(leader))
    receive(bench, read_all(leader.log, end))
    bench.sync()
    bench.checkpoint()

    assert (bench.log.start_offset, bench.log.end_offset) == (START, leader.log.end_offset)
    assert read_all(bench.log, START) == read_all(leader.log, START)
    with pytest.raises(OffsetOutOfRange):
        bench.log.reader.read(14, 100, 100)
    assert list(bench.log.epochs) == [(1, 12, False)]
    for same_boot in (True, False):
        bench.disk = bench.disk.crash(random.Random(1))
        log = bench.reopen(same_boot=same_boot)
        assert (log.start_offset, read_all(log, START)) == (START, read_all(leader.log, START))
    bench.stop()
    assert read_all(bench.reopen(), START) == read_all(leader.log, START)


@pytest.mark.parametrize("with_old_records", [False, True])
def test_wherever_a_crash_comes_the_start_stays_and_the_log_is_empty_or_whole(with_old_records: bool) -> None:
    leader, bench = leader_log(), empty_follower(with_old_records=with_old_records)
    data = served(leader)
    crashes: list[tuple[FakeDisk, bool, bool]] = []
    rng = random.Random(3)

    def take(synced: bool = False) -> None:
        crashes.append((bench.disk.copy(), True, synced))
        crashes.extend(
            (bench.disk.crash(random.Random(rng.getrandbits(32))), False, synced) for _ in range(4)
        )

    bench.disk.before = lambda operation: take()
    receive(bench, data)
    bench.sync()
    bench.checkpoint()
    bench.disk.before = None
    take(synced=True)

    ends = set()
    for disk, same_boot, synced in crashes:
        log = opened(disk, bench, same_boot)
        assert log.start_offset == START
        assert log.end_offset == START or read_all(log, START) == data[: len(read_all(log, START))]
        assert not synced or read_all(log, START) == data
        ends.add(log.end_offset)
        again = opened(disk, bench, True)
        assert (again.start_offset, again.end_offset) == (START, log.end_offset)
    assert {START, bench.log.end_offset} <= ends


def test_an_emptied_log_takes_the_batch_in_place_of_what_lay_below_its_start() -> None:
    """Its own records were deleted and their file is still there; the leader's batch overlaps them."""
    leader, bench = leader_log(), Bench(segment_bytes=1 << 20)
    bench.fill(5, count=3)
    bench.sync()
    bench.log.start.advance(START)
    bench.checkpoint()
    assert bench.log.end_offset == START

    receive(bench, served(leader))
    bench.sync()

    bench.disk = bench.disk.crash(random.Random(2))
    assert read_all(bench.reopen(same_boot=False), START) == served(leader)


def test_a_full_disk_leaves_an_empty_log_that_takes_it_later() -> None:
    leader, bench = leader_log(), empty_follower()
    bench.disk.faults.append(Fault("pwrite", errno.ENOSPC, path=".log"))

    with pytest.raises(DiskFull):
        receive(bench, served(leader))

    assert (bench.log.start_offset, bench.log.end_offset) == (START, START)
    bench.disk.faults.clear()
    receive(bench, served(leader))
    assert read_all(bench.log, START) == served(leader)


def test_only_a_sound_batch_that_holds_the_start_is_taken() -> None:
    leader, bench = leader_log(), empty_follower()
    data = served(leader)

    with pytest.raises(OutOfSequence):
        receive(bench, read_all(leader.log, START + 3))
    with pytest.raises(DataCorrupt):
        receive(bench, data[:100] + bytes([data[100] ^ 1]) + data[101:])
    earlier = Bench()
    earlier.append(item(records(3)))
    with pytest.raises(OutOfSequence):
        receive(bench, read_all(earlier.log))

    assert (bench.log.start_offset, bench.log.end_offset) == (START, START)

"""Dropping a log for an empty one: whenever a crash comes, it is the old log or the empty one (R1, R11)."""

from __future__ import annotations

import errno
import random

import pytest

from simulator.disk import FakeDisk, Fault, Operation
from storage.batches import item, read_all, records
from storage.logs import KEY, ROOT, Bench
from tidelog.errors import DiskFull, OffsetOutOfRange
from tidelog_broker.core.replication.log_view import last_epoch
from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.folder.starting_over import FILE_NAME
from tidelog_broker.storage.log.partition_log import PartitionLog


def full_bench() -> Bench:
    bench = Bench(segment_bytes=1500)
    bench.append(item(records(2), producer_id=7, sequence=0))
    bench.fill(12)
    bench.epoch = 2
    bench.fill(4)
    bench.sync()
    bench.log.start.advance(20)
    bench.checkpoint()
    bench.log.start.remove_files_below()
    bench.fill(2)
    return bench


def restart(bench: Bench, offset: int, epoch_before: int | None = None) -> None:
    bench.log.cutter.restart_at(
        offset, lambda start: bench.store.saved.save_restart(bench.log, start), epoch_before
    )


OFFSETS = [7, 20, 31, 56, 500]
"""Below the old start, at it, inside, at the end, beyond."""


def assert_empty_at(log: PartitionLog, offset: int, epoch_before: int | None = None) -> None:
    assert (log.start_offset, log.end_offset, log.durable_offset) == (offset, offset, offset)
    assert last_epoch(log) == epoch_before
    assert len(list(log.epochs)) == (epoch_before is not None)
    assert log.durable_epoch == epoch_before
    assert log.guard.empty
    assert read_all(log) == b""


@pytest.mark.parametrize("offset", OFFSETS)
def test_the_log_is_empty_begins_there_and_takes_batches(offset: int) -> None:
    bench = full_bench()

    restart(bench, offset)

    assert_empty_at(bench.log, offset)
    assert not bench.log.reader.is_cached(51)
    bench.epoch = 3
    bench.append(item(records(3)))
    assert bench.log.end_offset == offset + 3
    if offset:
        with pytest.raises(OffsetOutOfRange):
            bench.log.reader.read(offset - 1, 100, offset)
    bench.sync()
    bench.disk = bench.disk.crash(random.Random(1))
    log = bench.reopen(same_boot=False)
    assert (log.start_offset, log.end_offset) == (offset, offset + 3)
    assert [entry.epoch for entry in log.epochs] == [3]


@pytest.mark.parametrize("epoch_before", [None, 2])
@pytest.mark.parametrize(
    "offset", [7, 20, 500, *(pytest.param(offset, marks=pytest.mark.long) for offset in (31, 56))]
)
def test_wherever_a_crash_comes_it_is_the_old_log_or_the_empty_one(
    offset: int, epoch_before: int | None
) -> None:
    bench = full_bench()
    bench.sync()
    bench.checkpoint()
    old = (bench.log.start_offset, bench.log.end_offset, read_all(bench.log))
    crashes: list[tuple[FakeDisk, bool]] = []
    rng = random.Random(offset)

    def take() -> None:
        crashes.append((bench.disk.copy(), True))
        crashes.extend((bench.disk.crash(random.Random(rng.getrandbits(32))), False) for _ in range(3))

    bench.disk.before = lambda operation: take()
    restart(bench, offset, epoch_before)
    bench.disk.before = None
    take()

    emptied = 0
    for number, (disk, same_boot) in enumerate(crashes):
        log = opened_twice(disk, bench, same_boot)
        if log.end_offset == log.start_offset:
            assert_empty_at(log, offset, epoch_before)
            emptied += 1
        else:
            assert (log.start_offset, log.end_offset, read_all(log)) == old, number
    assert emptied >= 8
    assert emptied < len(crashes)


def opened_twice(disk: FakeDisk, bench: Bench, same_boot: bool) -> PartitionLog:
    """Starts, crashes at every operation of that start, and starts again: it must come to the same.

    Until the start has synced the folder, what it found there may go with the power; nobody was told of it.
    """
    again: list[tuple[FakeDisk, bool]] = []
    rng = random.Random(5)
    synced = not same_boot

    def before(operation: Operation) -> None:
        nonlocal synced
        again.append((disk.copy(), same_boot))
        if synced:
            again.append((disk.crash(random.Random(rng.getrandbits(32))), False))
        synced = synced or (operation.name == "sync_dir" and operation.path == bench.folder)

    disk.before = before
    log = opened(disk, bench, same_boot)
    disk.before = None
    for other, boot in again[:: max(1, len(again) // 12)]:
        found = opened(other, bench, boot)
        assert (found.start_offset, found.end_offset) == (log.start_offset, log.end_offset)
    assert not any(path.endswith(FILE_NAME) for path in disk.tree())
    return log


def opened(disk: FakeDisk, bench: Bench, same_boot: bool) -> PartitionLog:
    found = LogStore(disk, ROOT).opener.open_all([bench.wanted], same_boot=same_boot)
    assert not found.lost, found.lost
    return found.logs[KEY]


def test_a_full_disk_refuses_it_and_the_log_goes_on() -> None:
    bench = full_bench()
    bench.disk.faults.append(Fault("pwrite", errno.ENOSPC, path=FILE_NAME))

    with pytest.raises(DiskFull):
        restart(bench, 100)

    bench.fill(1)
    assert bench.log.end_offset == 59


def test_a_disk_that_fails_half_way_ends_the_log_and_the_next_start_goes_on_with_it() -> None:
    bench = full_bench()
    bench.disk.faults.append(Fault("remove", errno.EIO, path=".log"))

    with pytest.raises(StorageFailure):
        restart(bench, 100)

    with pytest.raises(StorageFailure):
        bench.fill(1)
    assert_empty_at(bench.reopen(), 100)


def test_a_mark_that_cannot_be_read_quarantines_the_log() -> None:
    bench = full_bench()
    bench.disk.faults.append(Fault("remove", errno.EIO, path=".log"))
    with pytest.raises(StorageFailure):
        restart(bench, 100)
    bench.disk.flip(f"{bench.folder}/{FILE_NAME}", 6, 3)

    found = bench.open()

    assert [one.wanted for one in found.lost] == [bench.wanted]


def test_a_log_that_ends_below_its_start_loses_its_history_too() -> None:
    bench = Bench()
    bench.fill(2)
    bench.checkpoint()
    bench.fill(4)
    bench.log.start.advance(12)
    bench.store.checkpoints.put_log_start_offset(KEY, 12)
    bench.store.checkpoints.save()
    bench.disk = bench.disk.crash()

    log = bench.reopen(same_boot=False)

    assert (log.start_offset, log.end_offset, list(log.epochs)) == (12, 12, [])

"""Damage is remembered, and another replica's batches take its place, whatever crash comes (2c)."""

from __future__ import annotations

import errno
import random
from collections.abc import MutableMapping, Sequence

import pytest
from structlog.testing import capture_logs

from simulator.disk import FakeDisk, Fault
from storage.batches import headers_of, item, read_all, records
from storage.logs import KEY, ROOT, Bench
from tidelog.errors import DataCorrupt, UnknownProducer
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.folder.damage_list import FILE_NAME, load_damage, save_damage
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.replicated import OutOfSequence
from tidelog_broker.storage.segments.scan import DamagedRange
from tidelog_broker.storage.segments.scrubbing import beginning_of, check_piece


def full_bench() -> Bench:
    bench = Bench(segment_bytes=2500)
    bench.fill(10)
    bench.epoch = 2
    bench.fill(10)
    bench.sync()
    bench.checkpoint()
    return bench


def position_of(log: PartitionLog, offset: int) -> tuple[str, int]:
    segment = next(s for s in reversed(log.segments) if s.base_offset <= offset)
    return segment.path, segment.locate(offset)


def damage(bench: Bench, offset: int, byte: int = 150) -> None:
    path, position = position_of(bench.log, offset)
    bench.disk.flip(path, position + byte, 2)


def find(log: PartitionLog) -> list[DamagedRange]:
    for segment in log.segments:
        if segment.size:
            log.damage.map_segment(segment)
    return log.damaged


@pytest.mark.parametrize("byte", [0, 5, 9, 25, 33, 150])
def test_a_damaged_batch_is_replaced_and_the_segment_is_as_it_was(byte: int) -> None:
    bench = full_bench()
    whole, history = read_all(bench.log), list(bench.log.epochs)
    before = {path: content for path, content in bench.disk.tree().items() if path.endswith(".log")}
    good = bench.log.reader.read(3, 1, 6)
    assert good is not None
    damage(bench, 3, byte)
    (found,) = find(bench.log)
    assert found == (3, 6)

    assert bench.log.healer.heal(found, bytes(good.parts[0]), leader_epoch=2) == 6

    assert bench.log.damaged == []
    assert read_all(bench.log) == whole
    assert {path: content for path, content in bench.disk.tree().items() if path.endswith(".log")} == before
    bench.disk = bench.disk.crash(random.Random(1))
    assert read_all(bench.reopen(same_boot=False)) == whole
    assert list(bench.log.epochs) == history


def told(lines: Sequence[MutableMapping[str, object]]) -> list[object]:
    """The ranges that the broker's log names as rot."""
    sentence = "data on this broker's disk is damaged"
    return [line["damaged"] for line in lines if str(line["event"]).startswith(sentence)]


def test_rot_that_a_reader_finds_is_logged_once() -> None:
    bench = full_bench()
    damage(bench, 3)

    with capture_logs() as lines:
        for _ in range(3):
            with pytest.raises(DataCorrupt):
                bench.log.reader.read(3, 1, 60)
        find(bench.log)

    assert told(lines) == [[[3, 6]]]
    (line,) = lines
    assert (line["log_level"], line["folder"]) == ("error", bench.folder)


def test_rot_that_the_scrubber_finds_is_logged_once() -> None:
    bench = full_bench()
    damage(bench, 3)

    with capture_logs() as lines:
        find(bench.log)
        find(bench.log)
        with pytest.raises(DataCorrupt):
            bench.log.reader.read(3, 1, 60)

    assert told(lines) == [[[3, 6]]]


@pytest.mark.parametrize("same_boot", [True, False])
def test_rot_that_is_known_at_a_start_is_logged_once(same_boot: bool) -> None:
    bench = full_bench()
    damage(bench, 3)
    find(bench.log)
    bench.disk = bench.disk.crash(random.Random(1))

    with capture_logs() as lines:
        bench.reopen(same_boot=same_boot)
        find(bench.log)

    assert told(lines) == [[[3, 6]]]


def test_what_healing_left_of_a_range_is_no_new_rot() -> None:
    bench = full_bench()
    good = bench.log.reader.read(3, 1, 6)
    assert good is not None
    damage(bench, 3)
    damage(bench, 6)
    (found,) = find(bench.log)

    with capture_logs() as lines:
        assert bench.log.healer.heal(found, bytes(good.parts[0]), leader_epoch=2) == 6

    assert bench.log.damaged == [(6, found.end)]
    assert told(lines) == []


def test_a_range_of_several_batches_is_healed_piece_by_piece() -> None:
    bench = full_bench()
    whole = read_all(bench.log)
    good = bench.log.reader.read(0, 1 << 20, 1 << 20)
    assert good is not None
    data = bytes(good.parts[0])
    first = bench.log.segments[0]
    pieces, at = [], 0
    for header in headers_of(data):
        pieces.append(data[at : at + header.length])
        at += header.length
    for offset in range(0, first.next_offset, 3):
        damage(bench, offset)
    assert find(bench.log) == [(0, first.next_offset)]

    ends = []
    while bench.log.damaged:
        wanted = bench.log.damaged[0]
        ends.append(bench.log.healer.heal(wanted, pieces[wanted.start // 3], leader_epoch=2))

    assert ends == list(range(3, first.next_offset + 1, 3))
    assert read_all(bench.log) == whole


def test_damage_is_known_after_a_clean_restart_and_forgotten_when_healed() -> None:
    bench = full_bench()
    good = bench.log.reader.read(3, 1, 6)
    assert good is not None
    damage(bench, 3)
    find(bench.log)
    bench.stop()

    log = bench.reopen()
    assert log.damaged == [(3, 6)]
    with pytest.raises(DataCorrupt):
        log.reader.read(3, 100, 100)
    assert log.reader.read(6, 100, 100) is not None
    log.healer.heal(log.damaged[0], bytes(good.parts[0]), leader_epoch=2)

    assert not any(path.endswith(FILE_NAME) for path in bench.disk.tree())
    bench.stop()
    assert bench.reopen().damaged == []


def test_what_is_not_the_missing_batch_is_refused_and_changes_nothing() -> None:
    bench = full_bench()
    good, later = bench.log.reader.read(3, 1, 6), bench.log.reader.read(6, 1, 9)
    assert good is not None
    assert later is not None
    other_epoch, other = Bench(), Bench()
    other_epoch.epoch = 2
    other_epoch.fill(2)
    other.append(item(records(3)), item(records(4)))
    damage(bench, 3)
    (found,) = find(bench.log)
    files = bench.disk.tree()

    for wrong in (bytes(later.parts[0]), read_all(other_epoch.log, 3), read_all(other.log, 3)):
        with pytest.raises(OutOfSequence):
            bench.log.healer.heal(found, wrong, leader_epoch=2)
    data = bytearray(good.parts[0])
    data[90] ^= 1
    for wrong in (bytes(data), bytes(good.parts[0])[:-8], b""):
        with pytest.raises(DataCorrupt):
            bench.log.healer.heal(found, wrong, leader_epoch=2)

    assert bench.disk.tree() == files
    assert bench.log.damaged == [found]


def test_an_open_segment_is_closed_and_flushed_first() -> None:
    bench = Bench()
    bench.fill(4)
    good = bench.log.reader.read(3, 1, 6)
    assert good is not None
    damage(bench, 3)
    (found,) = find(bench.log)

    assert bench.log.healer.heal(found, bytes(good.parts[0]), leader_epoch=2) is None
    bench.log.writer.roll()
    assert bench.log.healer.heal(found, bytes(good.parts[0]), leader_epoch=2) is None
    bench.sync()
    assert bench.log.healer.heal(found, bytes(good.parts[0]), leader_epoch=2) == found.end


def test_in_spite_of_a_crash_anywhere_a_segment_is_damaged_or_healed() -> None:
    bench = full_bench()
    whole = read_all(bench.log)
    good = bench.log.reader.read(3, 1, 6)
    assert good is not None
    damage(bench, 3)
    (found,) = find(bench.log)
    crashes: list[tuple[FakeDisk, bool]] = []
    rng = random.Random(7)

    def take() -> None:
        crashes.append((bench.disk.copy(), True))
        crashes.extend((bench.disk.crash(random.Random(rng.getrandbits(32))), False) for _ in range(3))

    bench.disk.before = lambda operation: take()
    bench.log.healer.heal(found, bytes(good.parts[0]), leader_epoch=2)
    bench.disk.before = None
    take()

    healed = 0
    for disk, same_boot in crashes:
        opened = LogStore(disk, ROOT).opener.open_all([bench.wanted], same_boot=same_boot)
        assert not opened.lost
        log = opened.logs[KEY]
        assert not any(path.endswith(".tmp") for path in disk.tree())
        find(log)
        if log.damaged:
            assert log.damaged == [found]
            assert read_all(log, 6) == whole[-len(read_all(log, 6)) :]
        else:
            assert read_all(log) == whole
            healed += 1
    assert 0 < healed < len(crashes)


def test_the_append_guard_knows_what_the_healed_batch_said() -> None:
    bench = full_bench()
    bench.append(item(records(2), producer_id=7, sequence=0))
    bench.append(item(records(2), producer_id=8, sequence=0))
    bench.log.writer.roll()
    good = bench.log.reader.read(60, 1, 62)
    assert good is not None
    bench.sync()
    bench.checkpoint()
    for path in [path for path in bench.disk.tree() if path.endswith(".guard")]:
        bench.disk.remove(path)
    bench.disk.sync_dir(bench.folder)
    damage(bench, 60, 90)
    bench.disk = bench.disk.crash(random.Random(1))
    log = bench.reopen()
    with pytest.raises(UnknownProducer):
        log.guard.check(headers_of(bytes(item(records(2), producer_id=7, sequence=2).batch))[0], None)
    (found,) = find(log)
    log.healer.heal(found, bytes(good.parts[0]), leader_epoch=2)

    (again,) = bench.append(item(records(2), producer_id=7, sequence=0))

    assert (again.base_offset, again.duplicate) == (60, True)
    (other,) = bench.append(item(records(2), producer_id=8, sequence=0))
    assert other.duplicate


@pytest.mark.parametrize("operation", ["pwrite", "datasync", "rename"])
def test_a_disk_that_does_not_take_the_new_file_leaves_the_old_one(operation: str) -> None:
    bench = full_bench()
    good = bench.log.reader.read(3, 1, 6)
    assert good is not None
    damage(bench, 3)
    (found,) = find(bench.log)
    bench.disk.faults.append(Fault(operation, errno.ENOSPC, path=".log.tmp"))

    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        bench.log.healer.heal(found, bytes(good.parts[0]), leader_epoch=2)

    bench.disk.faults.clear()
    assert bench.log.healer.heal(found, bytes(good.parts[0]), leader_epoch=2) == 6


def test_what_is_cut_off_takes_its_damage_with_it_before_other_batches_stand_there() -> None:
    bench = full_bench()
    damage(bench, 33)
    find(bench.log)
    assert bench.log.damaged == [(33, 36)]
    removed = []

    def before(operation: object) -> None:
        listed = any(path.endswith(FILE_NAME) for path in bench.disk.tree())
        removed.append((listed, bench.log.end_offset))

    bench.disk.before = before
    bench.log.cutter.truncate(30, lambda point: bench.store.saved.save_recovery_point(bench.log, point))
    bench.disk.before = None

    assert bench.log.damaged == []
    assert all(not listed for listed, end in removed if end < 60)
    bench.fill(5)
    bench.stop()
    assert bench.reopen().damaged == []
    damage(bench, 3)
    find(bench.log)
    bench.log.cutter.restart_at(12, lambda start: bench.store.saved.save_restart(bench.log, start))
    assert not any(path.endswith(FILE_NAME) for path in bench.disk.tree())


def test_a_list_that_cannot_be_read_or_written_is_none() -> None:
    bench = full_bench()
    ranges = [DamagedRange(3, 6), DamagedRange(9, 12)]
    save_damage(bench.disk, bench.folder, ranges)
    assert load_damage(bench.disk, bench.folder) == ranges

    bench.disk.flip(f"{bench.folder}/{FILE_NAME}", 6, 1)
    assert load_damage(bench.disk, bench.folder) == []

    save_damage(bench.disk, bench.folder, ranges)
    bench.disk.faults.append(Fault("pwrite", errno.ENOSPC, path=FILE_NAME))
    save_damage(bench.disk, bench.folder, ranges[1:])
    assert not bench.disk.exists(f"{bench.folder}/{FILE_NAME}")


@pytest.mark.parametrize("bytes_max", [1, 700, 1 << 20])
def test_pieces_cover_every_byte_of_a_segment_and_stop_at_damage(bytes_max: int) -> None:
    bench = full_bench()
    for segment in bench.log.segments:
        place, read, pieces = beginning_of(segment), 0, 0
        while True:
            piece = check_piece(segment, place, bytes_max)
            assert piece.sound
            place, read, pieces = piece.place, read + piece.bytes, pieces + 1
            if piece.done:
                break
        assert (read, place.offset) == (segment.size, segment.next_offset)
        assert bytes_max > 1 or pieces >= 2

    first = bench.log.segments[0]
    damage(bench, 3)
    place = beginning_of(first)
    while (piece := check_piece(first, place, bytes_max)).sound:
        place = piece.place
        assert not piece.done
    assert piece.place.offset == 3


def test_a_file_that_became_shorter_is_damage_too() -> None:
    bench = full_bench()
    first = bench.log.segments[0]
    with first.opened() as file:
        file.truncate(first.size - 16)

    piece = check_piece(first, beginning_of(first), 1 << 20)

    assert not piece.sound
    assert find(bench.log) == [(first.next_offset - 3, first.next_offset)]

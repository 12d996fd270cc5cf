"""Room for metadata on a full disk."""

from __future__ import annotations

import errno

import pytest

from simulator.disk import FakeDisk
from tidelog.errors import DiskFull
from tidelog_broker.storage.files.reserve import Reserve
from tidelog_broker.storage.files.whole_files import replace_file

SIZE = 3 << 20


def reserve_on(disk: FakeDisk, size: int = SIZE) -> Reserve:
    disk.make_dir("/data")
    reserve = Reserve(disk, "/data", size)
    reserve.restore()
    return reserve


def fill(disk: FakeDisk) -> None:
    file = disk.open("/data/filler", create=True)
    file.pwrite([bytes(disk.free_bytes("/data"))], file.size())
    file.close()


def test_it_takes_up_its_room() -> None:
    disk = FakeDisk(capacity=3 * SIZE)

    reserve = reserve_on(disk)

    assert reserve.held
    assert disk.free_bytes("/data") == 2 * SIZE


def test_a_write_that_meets_a_full_disk_is_done_with_its_room() -> None:
    disk = FakeDisk(capacity=3 * SIZE)
    reserve = reserve_on(disk)
    fill(disk)

    reserve.run(lambda: replace_file(disk, "/data/checkpoint", b"x" * 1000))

    assert disk.tree()["/data/checkpoint"] == b"x" * 1000
    assert not reserve.held


def test_it_is_made_again_only_when_there_is_room_for_it_twice() -> None:
    disk = FakeDisk(capacity=4 * SIZE)
    reserve = reserve_on(disk)
    fill(disk)
    reserve.run(lambda: replace_file(disk, "/data/checkpoint", b"x"))

    assert not reserve.restore()
    disk.remove("/data/filler")
    assert reserve.restore()
    assert disk.file_size("/data/reserve") == SIZE


def test_records_are_refused_from_its_release_until_it_is_made_again() -> None:
    disk = FakeDisk(capacity=4 * SIZE)
    reserve = reserve_on(disk)
    reserve.check_records()
    fill(disk)
    reserve.check_records()

    reserve.run(lambda: replace_file(disk, "/data/checkpoint", b"x"))
    with pytest.raises(DiskFull, match="set aside") as raised:
        reserve.check_records()
    assert raised.value.definite

    disk.remove("/data/filler")
    reserve.restore()
    reserve.check_records()


def test_a_disk_that_is_full_even_then_says_so() -> None:
    disk = FakeDisk(capacity=3 * SIZE)
    reserve = reserve_on(disk)
    fill(disk)

    with pytest.raises(OSError) as raised:
        reserve.run(lambda: replace_file(disk, "/data/checkpoint", bytes(2 * SIZE)))
    assert raised.value.errno == errno.ENOSPC


def test_other_failures_do_not_touch_it() -> None:
    disk = FakeDisk(capacity=3 * SIZE)
    reserve = reserve_on(disk)
    disk.fail("pwrite", errno.EIO)

    with pytest.raises(OSError):
        reserve.run(lambda: replace_file(disk, "/data/checkpoint", b"x"))
    assert reserve.held


def test_a_small_volume_goes_without_it() -> None:
    disk = FakeDisk(capacity=SIZE)

    assert not reserve_on(disk).held
    assert disk.file_size("/data/reserve") == 0


def test_the_next_run_finds_it_and_fits_it_to_its_own_size() -> None:
    disk = FakeDisk(capacity=3 * SIZE)
    reserve_on(disk)
    disk.log = []

    assert reserve_on(disk).held
    assert disk.log == []
    assert reserve_on(disk, SIZE // 2).held
    assert disk.file_size("/data/reserve") == SIZE // 2


def test_without_a_size_there_is_none() -> None:
    disk = FakeDisk(capacity=10)

    assert not reserve_on(disk, 0).held
    assert not disk.exists("/data/reserve")

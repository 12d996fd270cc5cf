"""Who may start on a data directory, and with which sentence the others are sent away."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from simulator.disk import CrashPoint, FakeDisk
from tidelog.records.checksum import crc32c
from tidelog_broker.errors import DataDirectoryError, DirectoryDamaged
from tidelog_broker.storage.directory.data_directory import DataDirectory, kernel_boot_id
from tidelog_broker.storage.files.os_files import OsFiles
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.whole_files import replace_file

CLUSTER, DIRECTORY = b"c" * 16, b"d" * 16


def format_directory(files: Files, path: str = "/data", broker_id: int = 3) -> None:
    DataDirectory.format(
        files,
        path,
        cluster_id=CLUSTER,
        broker_id=broker_id,
        directory_id=DIRECTORY,
        make_log=lambda folder: make_log(files, folder),
    )


def make_log(files: Files, folder: str) -> None:
    files.make_dir(folder)
    replace_file(files, f"{folder}/entries", b"first")


def formatted() -> FakeDisk:
    disk = FakeDisk()
    format_directory(disk)
    return disk


def open_directory(files: Files, *, boot: str = "boot-1", broker_id: int | None = None) -> DataDirectory:
    return DataDirectory.open(
        files, "/data", broker_id=broker_id, reserve_bytes=0, read_boot_id=lambda: boot, lock=no_lock
    )


def no_lock(path: str) -> Callable[[], None]:
    return lambda: None


def test_a_formatted_directory_knows_whose_it_is() -> None:
    directory = open_directory(formatted().crash(), broker_id=3)

    assert (directory.cluster_id, directory.broker_id, directory.directory_id) == (CLUSTER, 3, DIRECTORY)
    assert directory.meta.start_count == 0
    assert directory.files.list(directory.raft_folder) == ["entries"]


def test_a_directory_is_formatted_once() -> None:
    disk = formatted()

    with pytest.raises(DataDirectoryError, match="formatted already, for broker 3 of cluster 63636363-"):
        format_directory(disk)


def test_a_directory_is_not_formatted_over_streams_that_lost_their_meta() -> None:
    disk = formatted()
    disk.make_dir("/data/streams/orders~1")
    disk.remove("/data/meta.json")

    with pytest.raises(DataDirectoryError, match=r"holds streams but no meta\.json"):
        format_directory(disk)


def test_a_directory_is_not_formatted_over_a_metadata_log_that_lost_its_meta() -> None:
    disk = formatted()
    disk.remove("/data/meta.json")

    with pytest.raises(DirectoryDamaged, match=r"holds a metadata log but no meta\.json"):
        format_directory(disk)
    assert disk.exists("/data/raft/entries")


@pytest.mark.parametrize("left", ["streams", "raft"])
def test_a_directory_that_lost_its_meta_is_damaged(left: str) -> None:
    disk = formatted()
    disk.make_dir("/data/streams/orders~1")
    disk.remove("/data/meta.json")
    disk.remove_tree("/data/streams" if left == "raft" else "/data/raft")
    sentence = r"is no longer a data directory: its meta\.json is missing; .*empty the data directory"

    with pytest.raises(DirectoryDamaged, match=sentence):
        open_directory(disk)
    with pytest.raises(DirectoryDamaged, match=sentence):
        DataDirectory.open_to_recover(disk, "/data", lock=no_lock)
    with pytest.raises(DirectoryDamaged, match=sentence):
        DataDirectory.is_formatted(disk, "/data")


def test_formatting_that_was_cut_off_is_complete_or_can_be_done_again() -> None:
    made = 0
    for number in range(40):
        disk = FakeDisk()
        disk.crash_at = number
        try:
            format_directory(disk)
        except CrashPoint:
            for seed in range(10):
                after = disk.crash(random.Random(seed))
                if not DataDirectory.is_formatted(after, "/data"):
                    format_directory(after)
                assert open_directory(after.crash()).files.list("/data/raft") == ["entries"]
        else:
            made += 1
            assert open_directory(disk.crash()).broker_id == 3
            assert disk.list("/data") == ["meta.json", "raft"]
    assert made


def test_formatting_that_was_cut_off_is_sent_to_format() -> None:
    disk = FakeDisk()

    def cut(folder: str) -> None:
        make_log(disk, folder)
        raise CrashPoint

    with pytest.raises(CrashPoint):
        DataDirectory.format(
            disk, "/data", cluster_id=CLUSTER, broker_id=3, directory_id=DIRECTORY, make_log=cut
        )

    with pytest.raises(DataDirectoryError, match="run `tidelog-broker format"):
        open_directory(disk)


def test_a_directory_without_meta_is_sent_to_format() -> None:
    with pytest.raises(DataDirectoryError, match="run `tidelog-broker format"):
        open_directory(FakeDisk())


def test_the_directory_of_another_broker_is_refused() -> None:
    with pytest.raises(DataDirectoryError, match="belongs to broker 3, and this is broker 4"):
        open_directory(formatted(), broker_id=4)


def test_a_newer_format_is_refused() -> None:
    disk = formatted()
    meta = json.loads(disk.tree()["/data/meta.json"])
    del meta["crc32c"]
    newer = {**meta, "format_version": 2}
    crc = f"{crc32c(msgspec.json.encode(newer, order='sorted')):08x}"
    replace_file(disk, "/data/meta.json", json.dumps({**newer, "crc32c": crc}).encode())

    with pytest.raises(DataDirectoryError, match="written in format 2, this version knows none after 1"):
        open_directory(disk)


def test_a_format_version_that_rotted_is_damage() -> None:
    """Found by the simulator (profile "rotten files", seed 4): no software would ever have started on it."""
    disk = formatted()
    position = disk.tree()["/data/meta.json"].index(b'"format_version": 1') + len('"format_version": ')
    disk.flip("/data/meta.json", position, 3)

    with pytest.raises(DirectoryDamaged, match="empty the data directory"):
        open_directory(disk)


def test_no_flipped_bit_of_the_meta_is_believed() -> None:
    disk = formatted()
    opened = open_directory(disk)
    opened.record_start()
    meta = opened.meta
    for position in range(disk.file_size("/data/meta.json")):
        broken = disk.copy()
        broken.flip("/data/meta.json", position, position % 8)
        try:
            assert open_directory(broken).meta == meta
        except DataDirectoryError:
            continue


def test_each_start_is_counted_durably_before_it_is_served() -> None:
    disk = formatted()

    counts = []
    for _ in range(3):
        counts.append(open_directory(disk).record_start())
        disk = disk.crash()

    assert counts == [1, 2, 3]


def test_a_crash_while_a_start_is_counted_leaves_the_count_before_or_after() -> None:
    for number in range(20):
        disk = formatted()
        directory = open_directory(disk)
        directory.record_start()
        disk.crash_at = disk.operations + number
        try:
            directory.record_start()
        except CrashPoint:
            found = {open_directory(disk.crash(random.Random(seed))).meta.start_count for seed in range(20)}
            assert found <= {1, 2}
        else:
            return
    pytest.fail("it never ended")


def test_the_boot_is_the_same_only_if_a_start_was_recorded_in_it() -> None:
    disk = formatted()
    first = open_directory(disk, boot="a")
    assert not first.same_boot
    first.record_start()

    assert open_directory(disk, boot="a").same_boot
    assert not open_directory(disk, boot="b").same_boot
    # Recovery in boot b did not come to an end: what it left is still of boot a.
    assert not open_directory(disk, boot="b").same_boot


def test_an_unknown_boot_is_never_the_same() -> None:
    disk = formatted()
    open_directory(disk, boot="").record_start()

    assert not open_directory(disk, boot="").same_boot


def test_a_failed_disk_keeps_the_next_broker_out_until_it_is_cleared() -> None:
    disk = formatted()
    open_directory(disk).mark_failed("fsync of orders/0 failed: Input/output error")
    disk = disk.crash()

    with pytest.raises(DataDirectoryError, match=r"fsync of orders/0 failed.* `tidelog-broker recover"):
        open_directory(disk)
    mending = DataDirectory.open_to_recover(disk, "/data", lock=no_lock)
    assert mending.failure() == "fsync of orders/0 failed: Input/output error"
    assert not mending.same_boot
    mending.clear_failed()
    mending.clear_failed()
    assert open_directory(disk.crash()).failure() is None


def test_marking_a_failure_on_a_broken_disk_is_best_effort() -> None:
    disk = formatted()
    directory = open_directory(disk)
    disk.fail("create", errno.EROFS)

    directory.mark_failed("reason")


def test_a_full_disk_at_the_start_is_a_sentence() -> None:
    disk = formatted()
    directory = open_directory(disk)
    disk.capacity = 0

    with pytest.raises(
        DataDirectoryError, match="cannot write /data: No space left on device; free some room"
    ):
        directory.record_start()


def test_a_start_sets_the_reserve_aside() -> None:
    disk = formatted()
    directory = DataDirectory.open(disk, "/data", reserve_bytes=5000, read_boot_id=lambda: "", lock=no_lock)

    directory.record_start()

    assert directory.reserve.held
    assert disk.file_size("/data/reserve") == 5000


def test_a_second_broker_on_the_same_directory_is_sent_away(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    format_directory(OsFiles(), path)
    first = DataDirectory.open(OsFiles(), path, reserve_bytes=0)

    with pytest.raises(
        DataDirectoryError, match=rf"{path} is in use by another broker \(process {os.getpid()}\)"
    ):
        DataDirectory.open(OsFiles(), path, reserve_bytes=0)
    first.close()
    DataDirectory.open(OsFiles(), path, reserve_bytes=0).close()


def test_a_lock_ends_with_the_process_that_had_it(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    format_directory(OsFiles(), path)
    script = (
        "import os, sys\n"
        "from tidelog_broker.storage.directory.data_directory import DataDirectory\n"
        "from tidelog_broker.storage.files.os_files import OsFiles\n"
        "DataDirectory.open(OsFiles(), sys.argv[1], reserve_bytes=0)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", script, path], env=env, check=False).returncode == -9

    DataDirectory.open(OsFiles(), path, reserve_bytes=0).close()


def test_a_refused_directory_is_not_left_locked(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    format_directory(OsFiles(), path)
    with pytest.raises(DataDirectoryError):
        DataDirectory.open(OsFiles(), path, broker_id=9, reserve_bytes=0)
    directory = DataDirectory.open(OsFiles(), path, reserve_bytes=0)
    directory.mark_failed("x")
    directory.close()
    with pytest.raises(DataDirectoryError):
        DataDirectory.open(OsFiles(), path, reserve_bytes=0)

    DataDirectory.open_to_recover(OsFiles(), path).close()


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(
        DataDirectoryError, match=r"cannot format .*it must be a folder that this user may write to"
    ):
        format_directory(OsFiles(), str(tmp_path / "file" / "data"))


def test_the_kernel_says_which_boot_it_is() -> None:
    assert len(kernel_boot_id()) == 36

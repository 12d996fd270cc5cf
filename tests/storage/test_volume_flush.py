"""When one flush of a file system may stand for those of many files, and what it makes durable (4.3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.disk import FakeDisk
from storage.batches import item, records
from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.directory.opening import Wanted
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.os_files import OsFiles
from tidelog_broker.storage.files.volume_flush import Wish, judge, judge_here, mount_of
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.write_batch import LogConfig

MOUNTS = """\
23 27 0:22 / /sys rw,relatime - sysfs sysfs rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
28 27 254:16 / /data rw,relatime - ext4 /dev/vdb rw
29 27 254:32 /volumes/tidelog /bound rw - xfs /dev/vdc rw
30 27 0:40 / /memory rw - tmpfs tmpfs rw
31 27 254:48 / /with\\040blank rw shared:7 - xfs /dev/vdd rw
32 27 254:64 / /covered rw - ext4 /dev/vde rw
33 27 254:80 / /covered rw - xfs /dev/vdf rw
nonsense
"""


@pytest.mark.parametrize(
    ("wish", "path", "device", "release", "safe", "reason"),
    [
        ("auto", "/data", (254, 16), "6.1.0-13-amd64", True, "a mount of its own, ext4"),
        ("auto", "/with blank", (254, 48), "5.17", True, "a mount of its own, xfs"),
        ("auto", "/covered", (254, 80), "7.0", True, "a mount of its own, xfs"),
        ("auto", "/covered", (254, 64), "7.0", False, "is not known"),
        ("auto", "/data", (254, 16), "5.16.20", False, "the kernel is 5.16.20"),
        ("on", "/data", (254, 16), "4.19", False, "the kernel is 4.19"),
        ("auto", "/data", (254, 16), "strange", False, "the kernel is strange"),
        ("auto", "/data/tidelog", (254, 16), "6.1", False, "other programs may write to /data,"),
        ("on", "/data/tidelog", (254, 16), "6.1", True, "on ext4 at /data"),
        ("auto", "/var/tidelog", (254, 0), "6.1", False, "other programs may write to /,"),
        ("on", "/var/tidelog", (254, 0), "6.1", True, "on ext4 at /"),
        ("auto", "/bound", (254, 32), "6.1", False, "only the folder /volumes/tidelog"),
        ("on", "/bound", (254, 32), "6.1", True, "on xfs at /bound"),
        ("auto", "/memory", (0, 40), "6.1", False, "the file system is tmpfs"),
        ("on", "/memory", (0, 40), "6.1", False, "the file system is tmpfs"),
        ("auto", "/data", (254, 99), "6.1", False, "is not known"),
        ("off", "/data", (254, 16), "6.1", False, "the setting syncfs is off"),
    ],
)
def test_it_is_safe_only_where_all_of_it_is_known(
    wish: Wish, path: str, device: tuple[int, int], release: str, safe: bool, reason: str
) -> None:
    judgement = judge(wish, path, device, release, MOUNTS)

    assert (judgement.safe, reason in judgement.reason) == (safe, True), judgement


def test_a_name_that_only_begins_alike_is_not_below_a_mount() -> None:
    found = mount_of("/database", MOUNTS)

    assert found is not None
    assert found.point == "/"


def test_this_machine_can_be_judged_and_a_folder_that_is_not_there_is_not_safe(tmp_path: Path) -> None:
    assert judge_here("on", str(tmp_path)).reason
    assert not judge_here("on", str(tmp_path / "nothing")).safe


def _logs(store: LogStore, count: int) -> list[PartitionLog]:
    return [
        store.opener.create(Wanted(f"s{n}", bytes([n]) * 16, 0, LogConfig())) for n in range(1, count + 1)
    ]


def _fill(logs: list[PartitionLog]) -> None:
    for log in logs:
        log.writer.append([item(records(3))], leader_epoch=1, now_us=1)


def test_a_real_file_system_takes_it_and_all_logs_are_durable(tmp_path: Path) -> None:
    files = OsFiles()
    volume = files.open_volume(str(tmp_path))
    store = LogStore(files, str(tmp_path), volume=volume)
    logs = _logs(store, 20)
    _fill(logs)

    store.sync(logs, whole=True)

    assert [log.durable_offset for log in logs] == [3] * 20
    assert not any(log.flusher.unsynced for log in logs)
    store.close_clean([(log, 3) for log in logs])
    volume.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        volume.syncfs()


def test_after_one_flush_every_log_of_the_round_survives_a_loss_of_power() -> None:
    disk = FakeDisk()
    disk.make_dir("/data")
    disk.sync_dir("/")
    store = LogStore(disk, "/data", volume=disk.open_volume("/data"))
    logs = _logs(store, 3)
    _fill(logs)
    before = disk.operations

    store.sync(logs, whole=True)

    assert disk.operations == before + 1
    wanted = [Wanted(f"s{n}", bytes([n]) * 16, 0, LogConfig()) for n in range(1, 4)]
    opened = LogStore(disk.crash(), "/data").opener.open_all(wanted, same_boot=False)
    assert [log.end_offset for log in opened.logs.values()] == [3, 3, 3]


def test_a_failed_one_fails_every_log_of_the_round_and_is_not_tried_again() -> None:
    disk = FakeDisk()
    disk.make_dir("/data")
    store = LogStore(disk, "/data", volume=disk.open_volume("/data"))
    logs = _logs(store, 2)
    _fill(logs)
    disk.fail("syncfs")

    with pytest.raises(StorageFailure, match="a flush failed: Input/output error"):
        store.sync(logs, whole=True)

    for log in logs:
        assert log.durable_offset == 0
        with pytest.raises(StorageFailure):
            store.sync([log])


def test_a_log_that_was_closed_meanwhile_does_not_hinder_the_others() -> None:
    disk = FakeDisk()
    disk.make_dir("/data")
    store = LogStore(disk, "/data", volume=disk.open_volume("/data"))
    first, second = _logs(store, 2)
    _fill([first, second])
    first.close()

    store.sync([first, second, second], whole=True)

    assert (first.durable_offset, second.durable_offset) == (0, 3)

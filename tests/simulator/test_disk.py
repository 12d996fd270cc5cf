"""The fake disk keeps the promises of its model, and makes no others."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.disk import PAGE_BYTES, CrashPoint, FakeDisk, Operation
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.whole_files import read_file, replace_file, write_all


def disk_with(path: str, content: bytes) -> FakeDisk:
    """A disk on which `path` is durable."""
    disk = FakeDisk()
    folder = path.rsplit("/", 1)[0]
    disk.make_dir(folder)
    file = disk.open(path, create=True)
    write_all(file, [content], 0)
    file.datasync()
    file.close()
    while folder:
        disk.sync_dir(folder)
        folder = folder.rsplit("/", 1)[0]
    disk.sync_dir("/")
    return disk


def crashes(disk: FakeDisk, count: int = 300) -> list[dict[str, bytes]]:
    return [disk.crash(random.Random(seed)).tree() for seed in range(count)]


def test_a_fake_disk_has_the_interface_that_the_broker_uses() -> None:
    files: Files = FakeDisk()

    assert files.free_bytes("/") > 0


def test_synced_bytes_survive_every_crash() -> None:
    disk = disk_with("/data/a", b"x" * 10_000)

    assert disk.crash().tree() == {"/data/a": b"x" * 10_000}
    assert all(tree == {"/data/a": b"x" * 10_000} for tree in crashes(disk))


def test_any_pages_of_a_write_without_a_sync_may_survive() -> None:
    disk = disk_with("/data/a", b"")
    disk.open("/data/a").pwrite([b"1" * PAGE_BYTES + b"2" * PAGE_BYTES + b"3" * 10], 0)

    seen = {tree["/data/a"] for tree in crashes(disk)}

    assert disk.crash().tree() == {"/data/a": b""}
    assert all(
        content[at : at + PAGE_BYTES].strip(b"\0") in {b"", b"1" * PAGE_BYTES, b"2" * PAGE_BYTES, b"3" * 10}
        for content in seen
        for at in range(0, len(content), PAGE_BYTES)
    )
    whole = 2 * PAGE_BYTES + 10
    assert b"" in seen
    assert b"1" * PAGE_BYTES + b"2" * PAGE_BYTES + b"3" * 10 in seen
    assert any(len(content) == whole and content[:PAGE_BYTES] == bytes(PAGE_BYTES) for content in seen)
    assert any(len(content) == whole and content.endswith(bytes(10)) for content in seen)


def test_a_later_write_to_a_page_never_survives_without_the_earlier_ones() -> None:
    disk = disk_with("/data/a", bytes(100))
    file = disk.open("/data/a")
    for at in range(5):
        file.pwrite([b"x"], at)

    seen = {tree["/data/a"][:5].rstrip(b"\0") for tree in crashes(disk)}

    assert seen == {b"x" * count for count in range(6)}


def test_a_truncated_page_does_not_come_back_if_the_truncation_survives() -> None:
    disk = disk_with("/data/a", b"old" * 4000)
    file = disk.open("/data/a")
    file.truncate(PAGE_BYTES)
    file.pwrite([b"n"], 11_000)

    for tree in crashes(disk):
        content = tree["/data/a"]
        if len(content) != 12_000:
            assert set(content[PAGE_BYTES:]) <= {0, ord("n")}


def test_a_sync_covers_its_own_file_and_all_writes_before_it() -> None:
    disk = disk_with("/data/a", b"")
    file = disk.open("/data/a")
    file.pwrite([b"kept"], 0)
    file.datasync()
    file.pwrite([b"more"], 4)

    seen = {tree["/data/a"] for tree in crashes(disk)}

    assert seen == {b"kept", b"keptmore", b"kept\0\0\0\0"}


def test_a_file_without_a_synced_name_is_gone() -> None:
    disk = disk_with("/data/a", b"")
    file = disk.open("/data/new", create=True)
    file.pwrite([b"content"], 0)
    file.datasync()

    assert disk.crash().list("/data") == ["a"]
    disk.sync_dir("/data")
    assert disk.crash().tree()["/data/new"] == b"content"


def test_a_new_folder_survives_only_after_a_sync_of_its_parent() -> None:
    disk = FakeDisk()
    disk.make_dir("/data/raft")
    disk.sync_dir("/data")

    assert disk.crash().list("/") == []
    disk.sync_dir("/")
    assert disk.crash().list("/data") == ["raft"]


def test_a_rename_is_atomic_and_durable_after_a_sync_of_its_folder() -> None:
    disk = disk_with("/data/a", b"old")
    file = disk.open("/data/b", create=True)
    file.pwrite([b"new"], 0)
    file.datasync()
    disk.sync_dir("/data")
    disk.rename("/data/b", "/data/a")

    before = {tuple(sorted(tree.items())) for tree in crashes(disk)}
    disk.sync_dir("/data")

    assert before == {(("/data/a", b"old"), ("/data/b", b"new")), (("/data/a", b"new"),)}
    assert disk.crash().tree() == {"/data/a": b"new"}


def test_a_moved_file_has_only_its_new_name_after_a_sync_of_the_new_folder() -> None:
    disk = disk_with("/data/x/a", b"1")
    disk.make_dir("/data/y")
    disk.sync_dir("/data")
    disk.open("/data/x/b", create=True)
    disk.rename("/data/x/b", "/data/y/b")
    disk.sync_dir("/data/y")

    assert all(set(tree) == {"/data/x/a", "/data/y/b"} for tree in crashes(disk))


def test_a_folder_moves_with_everything_in_it() -> None:
    disk = disk_with("/data/s/0/log", b"records")
    disk.rename("/data/s", "/data/.deleted-s")

    assert disk.tree() == {"/data/.deleted-s/0/log": b"records"}
    assert {tuple(tree) for tree in crashes(disk)} == {("/data/s/0/log",), ("/data/.deleted-s/0/log",)}


def test_names_survive_in_any_subset_or_in_order() -> None:
    disk = disk_with("/data/a", b"")
    for name in "bcd":
        disk.open(f"/data/{name}", create=True)

    seen = {"".join(disk.crash(random.Random(seed)).list("/data")) for seed in range(400)}

    assert seen == {"a", "ab", "ac", "ad", "abc", "abd", "acd", "abcd"}


def test_a_removed_tree_may_come_back_until_its_folder_is_synced() -> None:
    disk = disk_with("/data/s/log", b"records")
    disk.remove_tree("/data/s")

    assert disk.tree() == {}
    assert disk.crash().tree() == {"/data/s/log": b"records"}
    disk.sync_dir("/data")
    assert disk.crash().tree() == {}


def test_replace_file_leaves_the_old_or_the_new_file_after_any_crash() -> None:
    for number in range(20):
        disk = disk_with("/data/meta", b"old" * 3000)
        disk.crash_at = disk.operations + number
        try:
            replace_file(disk, "/data/meta", b"new" * 3000)
        except CrashPoint:
            assert {tree["/data/meta"] for tree in crashes(disk, 40)} <= {b"old" * 3000, b"new" * 3000}
        else:
            assert disk.crash().tree() == {"/data/meta": b"new" * 3000}
            return
    pytest.fail("it never ended")


def test_no_operation_succeeds_after_the_crash_point() -> None:
    disk = disk_with("/data/a", b"x")
    file = disk.open("/data/a")
    disk.crash_at = disk.operations

    with pytest.raises(CrashPoint):
        file.pwrite([b"y"], 0)
    with pytest.raises(CrashPoint):
        file.pread(1, 0)
    file.close()

    assert disk.crash().tree() == {"/data/a": b"x"}


def test_a_hook_is_called_before_every_operation() -> None:
    disk = FakeDisk()
    seen: list[Operation] = []
    disk.before = seen.append
    disk.log = []

    disk.make_dir("/d")
    file = disk.open("/d/f", create=True)
    file.pwrite([b"abc", b"de"], 7)
    file.datasync()
    disk.sync_dir("/d")

    assert [operation.name for operation in seen] == ["make_dir", "create", "pwrite", "datasync", "sync_dir"]
    assert seen[2] == Operation(2, "pwrite", "/d/f", 7, 5)
    assert disk.log == seen
    assert disk.operations == 5


def test_a_full_disk_writes_the_bytes_that_fit_and_then_refuses() -> None:
    disk = FakeDisk(capacity=10)
    file = disk.open("/f", create=True)

    assert file.pwrite([b"1234567"], 0) == 7
    assert file.pwrite([b"89abc"], 7) == 3
    with pytest.raises(OSError) as raised:
        file.pwrite([b"d"], 10)
    assert raised.value.errno == errno.ENOSPC
    assert file.pwrite([b"over"], 0) == 4
    assert disk.free_bytes("/") == 0
    file.truncate(4)
    assert disk.free_bytes("/") == 6
    disk.remove("/f")
    assert disk.free_bytes("/") == 6
    file.close()
    assert disk.free_bytes("/") == 10


def test_a_failed_sync_loses_the_pages_though_readers_still_see_them() -> None:
    disk = disk_with("/data/a", b"")
    disk.fail("datasync", errno.EIO)
    file = disk.open("/data/a")
    file.pwrite([b"lost"], 0)

    with pytest.raises(OSError):
        file.datasync()
    file.pwrite([b"kept"], 4)
    file.datasync()

    assert file.pread(8, 0) == b"lostkept"
    assert disk.crash().tree() == {"/data/a": b"\0\0\0\0kept"}
    file.drop_cache(0, 8)
    assert file.pread(8, 0) == b"\0\0\0\0kept"


def test_a_fault_applies_to_its_operation_its_path_and_its_count() -> None:
    disk = disk_with("/data/a", b"")
    disk.fail("pwrite", errno.EIO, path="/data/b", skip=1)
    a, b = disk.open("/data/a"), disk.open("/data/b", create=True)

    a.pwrite([b"x"], 0)
    b.pwrite([b"x"], 0)
    with pytest.raises(OSError):
        b.pwrite([b"x"], 1)
    b.pwrite([b"x"], 1)


def test_a_flipped_bit_is_visible_at_once_or_after_the_cache_is_dropped() -> None:
    disk = disk_with("/data/a", bytes(3))
    disk.flip("/data/a", 1, 0)
    disk.flip("/data/a", 2, 1, cached=True)

    assert read_file(disk, "/data/a") == b"\0\1\0"
    disk.open("/data/a").drop_cache(0, 3)
    assert read_file(disk, "/data/a") == b"\0\1\2"


def test_the_page_cache_survives_the_process_but_not_a_power_loss() -> None:
    disk = disk_with("/data/a", b"")
    disk.open("/data/a").pwrite([b"x"], 0)

    after = disk.copy()

    assert after.tree() == {"/data/a": b"x"}
    assert after.crash().tree() == {"/data/a": b""}
    after.open("/data/a").datasync()
    assert after.crash().tree() == {"/data/a": b"x"}
    assert disk.crash().tree() == {"/data/a": b""}


def test_disks_after_a_crash_do_not_share_later_writes() -> None:
    disk = disk_with("/data/a", b"one")
    first, second = disk.crash(), disk.crash()
    first.open("/data/a").pwrite([b"two"], 0)
    disk.open("/data/a").pwrite([b"six"], 0)

    assert (first.tree(), second.tree(), disk.tree()) == (
        {"/data/a": b"two"},
        {"/data/a": b"one"},
        {"/data/a": b"six"},
    )


def test_an_open_file_still_works_after_its_name_is_removed() -> None:
    disk = disk_with("/data/a", b"x")
    file = disk.open("/data/a")
    disk.remove("/data/a")

    file.pwrite([b"y"], 1)

    assert file.pread(9, 0) == b"xy"
    assert not disk.exists("/data/a")


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (lambda disk: disk.open("/data/none"), errno.ENOENT),
        (lambda disk: disk.list("/none"), errno.ENOENT),
        (lambda disk: disk.list("/data/a"), errno.ENOTDIR),
        (lambda disk: disk.open("/data"), errno.EISDIR),
        (lambda disk: disk.remove("/data"), errno.EISDIR),
        (lambda disk: disk.rename("/data/none", "/data/b"), errno.ENOENT),
        (lambda disk: disk.make_dir("/data/a/b"), errno.ENOTDIR),
        (lambda disk: disk.file_size("/data/none"), errno.ENOENT),
    ],
)
def test_wrong_calls_raise_the_errors_of_the_operating_system(wrong: object, code: int) -> None:
    disk = disk_with("/data/a", b"x")

    with pytest.raises(OSError) as raised:
        wrong(disk)  # type: ignore[operator]
    assert raised.value.errno == code


@given(
    st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 6000), st.booleans()), max_size=12), st.randoms()
)
def test_a_crash_leaves_only_bytes_that_were_written(
    steps: list[tuple[int, int, bool]], rng: random.Random
) -> None:
    disk = disk_with("/data/a", b"\x01" * 3000)
    file = disk.open("/data/a")
    contents = [file.pread(20_000, 0)]
    for number, (position, length, sync) in enumerate(steps):
        if length % 7 == 0:
            file.truncate(position)
        else:
            file.pwrite([bytes([number + 2]) * length], position)
        contents.append(file.pread(20_000, 0))
        if sync:
            file.datasync()
            contents = contents[-1:]

    found = disk.crash(rng).tree()["/data/a"]

    assert len(found) in {len(content) for content in contents}
    for at, byte in enumerate(found):
        assert byte in {0} | {content[at] for content in contents if at < len(content)}


@given(st.integers(0, 1 << 32))
def test_the_same_seed_gives_the_same_disk(seed: int) -> None:
    disk = disk_with("/data/a", b"x" * 100)
    disk.open("/data/a").pwrite([b"y" * 20_000], 50)
    disk.open("/data/b", create=True).pwrite([b"z" * 20_000], 0)
    disk.rename("/data/a", "/data/c")

    assert disk.crash(random.Random(seed)).tree() == disk.crash(random.Random(seed)).tree()


def test_a_flush_of_the_whole_disk_keeps_all_content_and_all_names() -> None:
    disk = disk_with("/data/a", b"old")
    disk.make_dir("/data/new")
    for path in ("/data/new/b", "/data/c"):
        file = disk.open(path, create=True)
        file.pwrite([b"x" * 5000], 0)
    disk.open("/data/a").pwrite([b"new"], 0)
    disk.rename("/data/c", "/data/new/d")
    disk.rename("/data/new/d", "/data/e")

    disk.open_volume("/data").syncfs()

    expected = {"/data/a": b"new", "/data/new/b": b"x" * 5000, "/data/e": b"x" * 5000}
    assert disk.tree() == expected
    assert all(tree == expected for tree in [disk.crash().tree(), *crashes(disk)])


def test_a_flush_of_the_whole_disk_covers_only_changes_before_it_began() -> None:
    disk = disk_with("/data/a", b"old")
    file = disk.open("/data/a")
    file.pwrite([b"new"], 0)
    begun = disk.syncfs_begin()
    file.pwrite([b"late"], 0)
    disk.open("/data/b", create=True)

    assert disk.crash().tree() == {"/data/a": b"old"}
    disk.syncfs_end("/data", begun)

    assert disk.crash().tree() == {"/data/a": b"new"}
    assert {"/data/a": b"late", "/data/b": b""} in crashes(disk)


def test_a_failed_flush_of_the_whole_disk_loses_its_pages_for_good() -> None:
    disk = disk_with("/data/a", b"old")
    disk.open("/data/a").pwrite([b"new"], 0)
    disk.fail("syncfs")

    with pytest.raises(OSError, match="Input/output error"):
        disk.open_volume("/data").syncfs()
    disk.open_volume("/data").syncfs()

    assert disk.tree() == {"/data/a": b"new"}
    assert disk.crash().tree() == {"/data/a": b"old"}

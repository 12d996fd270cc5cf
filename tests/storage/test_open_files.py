"""A bound on open files that never closes one in use, over the real file system."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tidelog_broker.storage.files.open_files import OpenFiles
from tidelog_broker.storage.files.os_files import OsFile, OsFiles
from tidelog_broker.storage.files.protocol import Bytes
from tidelog_broker.storage.files.whole_files import read_file, replace_file, write_all


class Counting(OsFiles):
    """Knows how many descriptors are open."""

    def __init__(self) -> None:
        self.open_now = 0

    def open(self, path: str, *, create: bool = False) -> OsFile:
        owner = self

        class File(OsFile):
            def close(self) -> None:
                owner.open_now -= 1
                super().close()

        opened = super().open(path, create=create)
        self.open_now += 1
        return File(opened._fd)


def test_files_are_closed_in_the_order_of_their_last_use(tmp_path: Path) -> None:
    files = Counting()
    opened = OpenFiles(files, open_files_max=2)
    for name in "abac":
        with opened.use(f"{tmp_path}/{name}", create=True):
            pass

    assert files.open_now == len(opened) == 2
    assert set(opened._entries) == {f"{tmp_path}/a", f"{tmp_path}/c"}


def test_a_file_in_use_stays_open_however_many_others_are_used(tmp_path: Path) -> None:
    files = Counting()
    opened = OpenFiles(files, open_files_max=2)
    held = [opened.acquire(f"{tmp_path}/{number}", create=True) for number in range(5)]

    for number, one in enumerate(held):
        assert one.file.pwrite([b"%d" % number], 0) == 1
    for one in held:
        opened.release(one)

    assert files.open_now == 2


def test_a_forgotten_file_is_closed_when_its_last_user_lets_go(tmp_path: Path) -> None:
    files, path = Counting(), f"{tmp_path}/x"
    opened = OpenFiles(files)
    old = opened.acquire(path, create=True)
    opened.forget(path)
    os.unlink(path)
    new = opened.acquire(path, create=True)

    assert new is not old
    assert old.file.pwrite([b"old"], 0) == 3
    opened.release(old)
    assert files.open_now == 1
    assert new.file.size() == 0
    opened.release(new)
    opened.close()
    assert files.open_now == 0


def test_a_folder_that_gets_another_name_is_forgotten_as_a_whole(tmp_path: Path) -> None:
    files = Counting()
    opened = OpenFiles(files)
    for name in ("a/x", "a/y", "ab"):
        (tmp_path / "a").mkdir(exist_ok=True)
        with opened.use(f"{tmp_path}/{name}", create=True):
            pass
    opened.forget_below(f"{tmp_path}/a")

    assert list(opened._entries) == [f"{tmp_path}/ab"]


def test_many_threads_use_more_files_than_may_be_open(tmp_path: Path) -> None:
    files = Counting()
    opened = OpenFiles(files, open_files_max=4)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for step in range(400):
                path = f"{tmp_path}/{(seed * 7 + step * 13) % 16}"
                with opened.use(path, create=True) as file:
                    file.pwrite([b"%16d" % (step % 10)], 0)
                    assert len(file.pread(16, 0)) == 16
                if step % 50 == seed:
                    opened.forget(path)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failures
    assert files.open_now <= 4
    opened.close()
    assert files.open_now == 0


def test_a_short_write_is_finished_or_fails(tmp_path: Path) -> None:
    class Short(OsFile):
        def pwrite(self, buffers: Sequence[Bytes], position: int) -> int:
            return super().pwrite([b"".join(bytes(buffer) for buffer in buffers)[:3]], position)

    file = Short(OsFiles().open(f"{tmp_path}/x", create=True)._fd)

    assert write_all(file, [b"ab", memoryview(b"cdefgh"), b"i"], 0) == 9
    assert file.pread(20, 0) == b"abcdefghi"
    file.close()


def test_more_buffers_than_one_call_takes_are_written_in_order(tmp_path: Path) -> None:
    file = OsFiles().open(f"{tmp_path}/x", create=True)
    buffers = [b"%05d" % number for number in range(2500)]

    write_all(file, buffers, 0)

    assert file.pread(5 * 2500 + 1, 0) == b"".join(buffers)
    file.close()


def test_a_replaced_file_leaves_no_temporary_one(tmp_path: Path) -> None:
    files, path = OsFiles(), f"{tmp_path}/x"
    (tmp_path / "x.tmp").write_bytes(b"left by a crash, and longer")
    replace_file(files, path, b"one")
    replace_file(files, path, b"two")

    assert read_file(files, path) == b"two"
    assert files.list(str(tmp_path)) == ["x"]


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OsFiles().open(f"{tmp_path}/nothing")

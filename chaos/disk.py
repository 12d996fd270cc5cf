"""The operating system's files, slow or full on demand."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Sequence

from tidelog_broker.storage.files.os_files import OsFile, OsFiles, OsVolume
from tidelog_broker.storage.files.protocol import Bytes


class DiskState:
    """What the disk is like from now on."""

    def __init__(self) -> None:
        self.flush_seconds = 0.0
        """How much longer each flush takes."""
        self.full = False
        """Writes and new files below `streams` find no room; metadata has its reserve."""

    def hold(self) -> None:
        """Waits as long as a flush is to take. Under libfaketime `time.sleep` fails with EINVAL at times."""
        if self.flush_seconds:
            select.select([], [], [], self.flush_seconds)

    def told(self, line: str) -> None:
        """Does what a line says: `slow SECONDS`, `full`, `sound`."""
        match line.split():
            case ["slow", seconds]:
                self.flush_seconds = float(seconds)
            case ["full"]:
                self.full = True
            case ["sound"]:
                self.flush_seconds, self.full = 0.0, False
            case _:
                raise ValueError(f"a disk is told slow SECONDS, full or sound, not {line!r}")


class FaultyFile(OsFile):
    __slots__ = ("_path", "_state")

    def __init__(self, fd: int, path: str, state: DiskState) -> None:
        super().__init__(fd)
        self._path = path
        self._state = state

    def pwrite(self, buffers: Sequence[Bytes], position: int) -> int:
        _check_room(self._path, self._state)
        return super().pwrite(buffers, position)

    def datasync(self) -> None:
        self._state.hold()
        super().datasync()


class FaultyVolume(OsVolume):
    __slots__ = ("_state",)

    def __init__(self, fd: int, path: str, state: DiskState) -> None:
        super().__init__(fd, path)
        self._state = state

    def syncfs(self) -> None:
        self._state.hold()
        super().syncfs()


class FaultyFiles(OsFiles):
    """Implements `tidelog_broker.storage.files.protocol.Files`."""

    def __init__(self, state: DiskState) -> None:
        self._state = state

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        if create and not self.exists(path):
            _check_room(path, self._state)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return FaultyFile(os.open(path, flags, 0o640), path, self._state)

    def open_volume(self, path: str) -> FaultyVolume:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return FaultyVolume(fd, path, self._state)


def _check_room(path: str, state: DiskState) -> None:
    if state.full and "/streams/" in path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

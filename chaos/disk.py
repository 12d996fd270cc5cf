"""The operating system's files, with flushes that are slow and writes that find no room, on demand."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Sequence

from tidelog_broker.storage.files.os_files import OsFile, OsFiles, OsVolume
from tidelog_broker.storage.files.protocol import Bytes


class DiskState:
    """How the disk behaves at present."""

    def __init__(self) -> None:
        self.flush_seconds = 0.0
        """Each flush takes this much longer."""
        self.full = False
        """Writes and new files below `streams` find no room. Metadata has its reserve."""

    def hold(self) -> None:
        """Waits for `flush_seconds`, by select: under libfaketime `time.sleep` sometimes fails (EINVAL)."""
        if self.flush_seconds:
            select.select([], [], [], self.flush_seconds)

    def told(self, line: str) -> None:
        """Takes a line: `slow SECONDS`, `full` or `sound`. Raises ValueError for any other."""
        match line.split():
            case ["slow", seconds]:
                self.flush_seconds = float(seconds)
            case ["full"]:
                self.full = True
            case ["sound"]:
                self.flush_seconds, self.full = 0.0, False
            case _:
                raise ValueError(f"the disk takes slow SECONDS, full or sound, not {line!r}")


class FaultyFile(OsFile):
    """A file on the disk of a `DiskState`."""

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
    """The whole disk, flushed at once."""

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

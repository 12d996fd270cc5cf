"""The operating system's files with a few that fail on demand."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence

from tidelog_broker.storage.files.os_files import OsFile, OsFiles, OsVolume
from tidelog_broker.storage.files.protocol import Bytes

HELD_SECONDS_MAX = 5.0


class Faults:
    """What fails from now on."""

    def __init__(self) -> None:
        self.full = False
        """Writes and new files below `streams` find no room."""
        self.failing_sync: str | None = None
        """Flushes of files and folders whose path ends in this fail, and so do all of the file system."""
        self.syncfs_calls = 0
        self.hold_writes: threading.Event | None = None
        """Writes below `streams` take until this is set, as on a disk that does not answer."""
        self.hold_syncs: threading.Event | None = None
        """The same for flushes of files."""
        self.failing_truncate = False
        """A write that finds no room leaves some bytes, which cannot be cut off."""


class FaultyFile(OsFile):
    __slots__ = ("_faults", "_path")

    def __init__(self, fd: int, path: str, faults: Faults) -> None:
        super().__init__(fd)
        self._path = path
        self._faults = faults

    def pwrite(self, buffers: Sequence[Bytes], position: int) -> int:
        if self._faults.hold_writes is not None and "/streams/" in self._path:
            assert self._faults.hold_writes.wait(HELD_SECONDS_MAX), "whoever would end this is held up, too"
        if self._faults.full and "/streams/" in self._path:
            if self._faults.failing_truncate:
                super().pwrite([bytes(buffers[0])[:10]], position)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        return super().pwrite(buffers, position)

    def truncate(self, size: int) -> None:
        if self._faults.failing_truncate:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
        super().truncate(size)

    def datasync(self) -> None:
        if self._faults.hold_syncs is not None:
            assert self._faults.hold_syncs.wait(HELD_SECONDS_MAX), "whoever would end this is held up, too"
        if self._faults.failing_sync and self._path.endswith(self._faults.failing_sync):
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
        super().datasync()


class FaultyVolume(OsVolume):
    __slots__ = ("_faults",)

    def __init__(self, fd: int, path: str, faults: Faults) -> None:
        super().__init__(fd, path)
        self._faults = faults

    def syncfs(self) -> None:
        self._faults.syncfs_calls += 1
        if self._faults.failing_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
        super().syncfs()


class FaultyFiles(OsFiles):
    """Implements `tidelog_broker.storage.files.protocol.Files`."""

    def __init__(self) -> None:
        self.faults = Faults()

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        if create and self.faults.full and "/streams/" in path and not self.exists(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return FaultyFile(os.open(path, flags, 0o640), path, self.faults)

    def sync_dir(self, path: str) -> None:
        if self.faults.failing_sync and path.endswith(self.faults.failing_sync):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        super().sync_dir(path)

    def open_volume(self, path: str) -> FaultyVolume:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return FaultyVolume(fd, path, self.faults)

"""The operating system's files, slow or full on demand."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Sequence

from tidelog_broker.storage.files.os_files import OsFile, OsFiles, OsVolume
from tidelog_broker.storage.files.protocol import Bytes


class Weather:
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


class WeatheredFile(OsFile):
    __slots__ = ("_path", "_weather")

    def __init__(self, fd: int, path: str, weather: Weather) -> None:
        super().__init__(fd)
        self._path = path
        self._weather = weather

    def pwrite(self, buffers: Sequence[Bytes], position: int) -> int:
        _check_room(self._path, self._weather)
        return super().pwrite(buffers, position)

    def datasync(self) -> None:
        self._weather.hold()
        super().datasync()


class WeatheredVolume(OsVolume):
    __slots__ = ("_weather",)

    def __init__(self, fd: int, path: str, weather: Weather) -> None:
        super().__init__(fd, path)
        self._weather = weather

    def syncfs(self) -> None:
        self._weather.hold()
        super().syncfs()


class WeatheredFiles(OsFiles):
    """Implements `tidelog_broker.storage.files.protocol.Files`."""

    def __init__(self, weather: Weather) -> None:
        self._weather = weather

    def open(self, path: str, *, create: bool = False) -> WeatheredFile:
        if create and not self.exists(path):
            _check_room(path, self._weather)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return WeatheredFile(os.open(path, flags, 0o640), path, self._weather)

    def open_volume(self, path: str) -> WeatheredVolume:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return WeatheredVolume(fd, path, self._weather)


def _check_room(path: str, weather: Weather) -> None:
    if weather.full and "/streams/" in path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

"""Implements the protocol `Files` with the files of the operating system."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Sequence

from tidelog_broker.storage.files.protocol import Bytes, Volume

_libc = ctypes.CDLL(None, use_errno=True)
"""For syncfs, which `os` lacks. Other threads continue during a call, as with the calls of `os`."""

VECTOR_MAX = 1024
"""Buffers in one vectored write (IOV_MAX on Linux)."""


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        # A signal or a very large read can shorten a result; only an empty result means the end of the file.
        parts, got = [data], len(data)
        while got < length:
            more = os.pread(self._fd, length - got, position + got)
            if not more:
                break
            parts.append(more)
            got += len(more)
        return b"".join(parts)

    def pwrite(self, buffers: Sequence[Bytes], position: int) -> int:
        if len(buffers) <= VECTOR_MAX:
            return os.pwritev(self._fd, buffers, position)
        written = 0
        for start in range(0, len(buffers), VECTOR_MAX):
            part = buffers[start : start + VECTOR_MAX]
            count = os.pwritev(self._fd, part, position + written)
            written += count
            if count < sum(len(buffer) for buffer in part):
                break
        return written

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def datasync(self) -> None:
        os.fdatasync(self._fd)

    def drop_cache(self, position: int, length: int) -> None:
        os.posix_fadvise(self._fd, position, length, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        os.close(self._fd)


class OsVolume:
    """A file system of the operating system, held by the descriptor of a folder on it."""

    __slots__ = ("_fd", "_path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path

    def syncfs(self) -> None:
        if _libc.syncfs(self._fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), self._path)

    def close(self) -> None:
        os.close(self._fd)


class OsFiles:
    """The operating system's file system."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(os.open(path, flags, 0o640))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dir(self, path: str) -> None:
        os.makedirs(path, mode=0o750, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def open_volume(self, path: str) -> Volume:
        return OsVolume(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), path)

    def free_bytes(self, path: str) -> int:
        stats = os.statvfs(path)
        return stats.f_bavail * stats.f_frsize

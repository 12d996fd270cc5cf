"""The one door to the file system (DESIGN section 4, last paragraph).

Everything the broker keeps goes through `Files`, so that a simulator can put a disk
behind it that tears writes and forgets unsynced bytes, and a recorder can sit under a
real broker. `OsFiles` is the real thing. What is built from these few operations
(atomic replacement, a bound on open files) stands here too, because it must behave the
same over all of them.

Paths are absolute strings. Every operation may raise OSError.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

import pyarrow as pa

from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.index import LoadedIndexes

Bytes: TypeAlias = bytes | memoryview | pa.Buffer

_libc = ctypes.CDLL(None, use_errno=True)
"""For syncfs, which `os` does not have. A call lets other threads go on, as those of `os` do."""

UNOPENED_ERRNOS = frozenset({errno.EACCES, errno.EMFILE, errno.ENFILE, errno.ENOENT, errno.ENOTDIR})
"""Nothing was flushed: there is no such folder, or no right to it, or too many files are open."""

VECTOR_MAX = 1024
"""Buffers in one vectored write (IOV_MAX on Linux)."""


class File(Protocol):
    """An open file. Positions are given with each call, none is kept."""

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position` on; fewer only at the end of the file."""

    def pwrite(self, buffers: Sequence[Bytes], position: int) -> int:
        """Writes the buffers one after the other; returns the bytes written, which may be fewer."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def datasync(self) -> None:
        """Makes the content and the size durable. Never retried after a failure."""

    def drop_cache(self, position: int, length: int) -> None:
        """Asks that the next read of this range comes from the disk."""

    def close(self) -> None: ...


class Volume(Protocol):
    """The file system below a path, held open so that no error of it is missed."""

    def syncfs(self) -> None:
        """Makes all files and names durable that were written before the call. Never retried after a failure.

        An error of writing anything back since the volume was opened is raised, once.
        """

    def close(self) -> None: ...


class Files(Protocol):
    """A file system."""

    def open(self, path: str, *, create: bool = False) -> File:
        """For reading and writing; `create` makes an empty file where none is."""

    def exists(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def list(self, path: str) -> list[str]:
        """The names in a folder, sorted; FileNotFoundError if there is none."""

    def make_dir(self, path: str) -> None:
        """With its parents; fine if it is there. Not durable before `sync_dir` of each parent."""

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces `target`. Durable after `sync_dir` of the folder."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """Makes the entries of a folder durable."""

    def open_volume(self, path: str) -> Volume:
        """The file system that `path` is on. What fails before this call, its `syncfs` does not tell."""

    def free_bytes(self, path: str) -> int:
        """What an unprivileged writer may still write on the volume of `path`."""


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        # A signal or a very large read can cut one call short; only an empty one means the end.
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
    """A file system of the operating system, by a descriptor of a folder on it."""

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


def write_all(file: File, buffers: Sequence[Bytes], position: int) -> int:
    """Writes all of `buffers` or raises OSError; returns their bytes.

    A short write without an error means a full disk about to say so: it is asked for
    the rest once more, so that the caller gets the operating system's own reason.
    """
    total = sum(map(len, buffers))
    written = file.pwrite(buffers, position)
    while written < total:
        rest = b"".join(bytes(buffer) for buffer in buffers)[written:]
        more = file.pwrite([rest], position + written)
        if more == 0:
            raise OSError(f"the file system took {written} of {total} bytes and then nothing")
        written += more
    return total


def read_file(files: Files, path: str) -> bytes:
    """The whole content of a small file."""
    file = files.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def is_folder(files: Files, path: str) -> bool:
    """Whether `path`, which is there, is a folder."""
    try:
        files.list(path)
    except NotADirectoryError:
        return False
    return True


def replace_file(files: Files, path: str, data: bytes) -> None:
    """Puts `data` in the place of `path`, durably: after a crash there is the old or the new, whole."""
    temporary = f"{path}.tmp"
    if files.exists(temporary):
        files.remove(temporary)
    try:
        file = files.open(temporary, create=True)
        try:
            write_all(file, [data], 0)
            file.datasync()
        finally:
            file.close()
        files.rename(temporary, path)
    except OSError:
        # A full disk gets its room back; a leftover would harm nothing else.
        with contextlib.suppress(OSError):
            files.remove(temporary)
        raise
    files.sync_dir(os.path.dirname(path))


def flush_found(file: File, path: str) -> None:
    """Makes content durable that a start is about to believe; raises `StorageFailure`.

    A failed flush leaves pages in the cache that the disk lacks: the next start must not believe them either
    (DESIGN 4.3).
    """
    try:
        file.datasync()
    except OSError as error:
        raise StorageFailure(f"{path} could not be flushed: {error}") from error


def sync_found(files: Files, folder: str) -> None:
    """Makes names durable that a start is about to believe, as `flush_found` does content.

    A folder that cannot even be opened is no failed flush: that raises OSError.
    """
    try:
        files.sync_dir(folder)
    except OSError as error:
        if error.errno in UNOPENED_ERRNOS:
            raise
        raise StorageFailure(f"the names in {folder} could not be flushed: {error}") from error


class Held:
    """An open file that is in use; the same object for everybody who uses the path."""

    __slots__ = ("file", "forgotten", "path", "users")

    def __init__(self, path: str, file: File) -> None:
        self.path = path
        self.file = file
        self.users = 0
        self.forgotten = False
        """The path stands for another file by now: closed when the last user lets go."""


class OpenFiles:
    """A bound on open files: descriptors are opened on use and closed when others need the room.

    A file in use is never closed, and one with unsynced bytes is in use until its sync:
    an fsync must go through the descriptor that was written through. Over the bound by
    files in use alone, it gives way rather than fail. Safe for many threads.
    """

    def __init__(self, files: Files, open_files_max: int = 512) -> None:
        self.files = files
        self._open_files_max = open_files_max
        self._lock = threading.Lock()
        self._entries: dict[str, Held] = {}
        self.damaged_folders: dict[str, None] = {}
        """Of logs with a range that cannot be read, perhaps of some that are gone: whoever looks for damage
        among thousands of logs looks here first."""
        self.indexes = LoadedIndexes()
        """What of the files' indexes is in memory."""
        self._idle: OrderedDict[str, Held] = OrderedDict()
        """Open and unused, the longest unused first."""

    def __len__(self) -> int:
        return len(self._entries)

    @contextlib.contextmanager
    def use(self, path: str, *, create: bool = False) -> Iterator[File]:
        """The open file, for the length of a `with` block."""
        held = self.acquire(path, create=create)
        try:
            yield held.file
        finally:
            self.release(held)

    def acquire(self, path: str, *, create: bool = False) -> Held:
        """The open file, which stays open until `release`."""
        with self._lock:
            held = self._entries.get(path)
            if held is None:
                held = self._entries[path] = Held(path, self.files.open(path, create=create))
            elif held.users == 0:
                del self._idle[path]
            held.users += 1
            if len(self._entries) > self._open_files_max:
                self._evict()
            return held

    def release(self, held: Held) -> None:
        with self._lock:
            held.users -= 1
            if held.users:
                return
            if held.forgotten:
                _close(held)
                return
            self._idle[held.path] = held
            if len(self._entries) > self._open_files_max:
                self._evict()

    def forget(self, path: str) -> None:
        """Closes the file as soon as nobody uses it; the next use opens what then has this name."""
        with self._lock:
            self._forget(path)

    def forget_below(self, folder: str) -> None:
        """Forgets every file in a folder, which is about to get another name."""
        with self._lock:
            for path in [path for path in self._entries if path.startswith(f"{folder}/")]:
                self._forget(path)

    def close(self) -> None:
        """Closes everything that is not in use, and the rest as soon as it is not."""
        with self._lock:
            for path in list(self._entries):
                self._forget(path)

    def _forget(self, path: str) -> None:
        held = self._entries.pop(path, None)
        if held is not None:
            held.forgotten = True
            if self._idle.pop(path, None) is not None:
                _close(held)

    def _evict(self) -> None:
        while self._idle and len(self._entries) > self._open_files_max:
            path, held = self._idle.popitem(last=False)
            del self._entries[path]
            _close(held)


def _close(held: Held) -> None:
    # Nothing unsynced is in it, so nothing can be lost by an error here.
    with contextlib.suppress(OSError):
        held.file.close()

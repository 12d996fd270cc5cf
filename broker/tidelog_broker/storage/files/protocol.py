"""The only access to the file system (DESIGN section 4, last paragraph).

The broker reads and writes all its data through `Files`. So the simulator can put a disk behind it that
tears writes and loses unsynced bytes, and a recorder can run under a real broker. `os_files` implements
it with the operating system.

Paths are absolute strings. Every operation may raise OSError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import pyarrow as pa

Bytes: TypeAlias = bytes | memoryview | pa.Buffer


class File(Protocol):
    """An open file. Each call states its position; the file keeps none."""

    def pread(self, length: int, position: int) -> bytes:
        """Reads up to `length` bytes from `position` on; fewer only at the end of the file."""

    def pwrite(self, buffers: Sequence[Bytes], position: int) -> int:
        """Writes the buffers one after the other; returns the bytes written, which may be fewer."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def datasync(self) -> None:
        """Makes the content and the size durable. The caller never retries it after a failure."""

    def drop_cache(self, position: int, length: int) -> None:
        """Asks the operating system to read this range from the disk at the next read."""

    def close(self) -> None: ...


class Volume(Protocol):
    """The file system that holds a path. It is held open so that no write-back error is missed."""

    def syncfs(self) -> None:
        """Makes all files and names durable that were written before the call.

        Raises, once, any write-back error since the volume was opened. The caller never retries it
        after a failure.
        """

    def close(self) -> None: ...


class Files(Protocol):
    """A file system."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens a file for reading and writing; `create` makes an empty file if it does not exist."""

    def exists(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def list(self, path: str) -> list[str]:
        """The names in a folder, sorted; FileNotFoundError if the folder does not exist."""

    def make_dir(self, path: str) -> None:
        """Makes a folder and its parents; no error if it exists. Durable after `sync_dir` of each parent."""

    def rename(self, source: str, target: str) -> None:
        """Renames atomically and replaces `target`. Durable after `sync_dir` of the folder."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """Makes the entries of a folder durable."""

    def open_volume(self, path: str) -> Volume:
        """Opens the file system that holds `path`; its `syncfs` does not report earlier errors."""

    def free_bytes(self, path: str) -> int:
        """The bytes that an unprivileged process may still write on the volume of `path`."""

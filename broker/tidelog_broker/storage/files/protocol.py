"""The one door to the file system (DESIGN section 4, last paragraph).

Everything the broker keeps goes through `Files`, so that a simulator can put a disk behind it that
tears writes and forgets unsynced bytes, and a recorder can sit under a real broker. `os_files` is the
real thing.

Paths are absolute strings. Every operation may raise OSError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import pyarrow as pa

Bytes: TypeAlias = bytes | memoryview | pa.Buffer


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

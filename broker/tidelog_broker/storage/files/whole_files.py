"""Operations on whole files: reads and writes, atomic replacement, flushes at a start.

They use only the operations of `Files`, so they behave the same with all its implementations.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence

from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.files.protocol import Bytes, File, Files

UNOPENED_ERRNOS = frozenset({errno.EACCES, errno.EMFILE, errno.ENFILE, errno.ENOENT, errno.ENOTDIR})
"""Nothing was flushed: the folder does not exist, access is denied, or too many files are open."""


def write_all(file: File, buffers: Sequence[Bytes], position: int) -> int:
    """Writes all of `buffers` or raises OSError; returns the number of bytes.

    A short write without an error usually means that the disk is full. The rest is then written with another
    call, so that the caller gets the operating system's own reason.
    """
    total = sum(map(len, buffers))
    written = file.pwrite(buffers, position)
    while written < total:
        rest = b"".join(bytes(buffer) for buffer in buffers)[written:]
        more = file.pwrite([rest], position + written)
        if more == 0:
            raise OSError(f"the file system wrote only {written} of {total} bytes and gave no reason")
        written += more
    return total


def read_file(files: Files, path: str) -> bytes:
    """Reads the whole content of a small file."""
    file = files.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def is_folder(files: Files, path: str) -> bool:
    """Whether `path`, which must exist, is a folder."""
    try:
        files.list(path)
    except NotADirectoryError:
        return False
    return True


def replace_file(files: Files, path: str, data: bytes) -> None:
    """Replaces the content of `path` durably: after a crash the file is the old or the new one, whole."""
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
        # This frees space on a full disk; a leftover file would do no other harm.
        with contextlib.suppress(OSError):
            files.remove(temporary)
        raise
    files.sync_dir(os.path.dirname(path))


def flush_found(file: File, path: str) -> None:
    """Makes content durable before a start relies on it; raises `StorageFailure`.

    After a failed flush the page cache holds data that the disk lacks: the next start must not rely on it
    either (DESIGN 4.3).
    """
    try:
        file.datasync()
    except OSError as error:
        raise StorageFailure(f"{path} could not be flushed: {error}") from error


def sync_found(files: Files, folder: str) -> None:
    """Makes the names in a folder durable before a start relies on them, as `flush_found` does for content.

    If the folder cannot even be opened, no flush failed: that raises OSError.
    """
    try:
        files.sync_dir(folder)
    except OSError as error:
        if error.errno in UNOPENED_ERRNOS:
            raise
        raise StorageFailure(f"the names in {folder} could not be flushed: {error}") from error

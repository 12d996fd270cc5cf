"""Operations on whole files: reads and writes, atomic replacement, flushes at a start.

They are built from the few operations of `Files` and behave the same over all implementations.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence

from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.files.protocol import Bytes, File, Files

UNOPENED_ERRNOS = frozenset({errno.EACCES, errno.EMFILE, errno.ENFILE, errno.ENOENT, errno.ENOTDIR})
"""Nothing was flushed: there is no such folder, or no right to it, or too many files are open."""


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

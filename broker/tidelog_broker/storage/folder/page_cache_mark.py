"""The mark of a log that may hold records that counted without a flush (R17).

A record of a `page-cache` stream counts as soon as it is written. The mark is on the disk before the first
record counts in this way. It is removed only when the stream is set to `fsync` and everything from before
is flushed. So a start after a power loss judges the log by the weakest setting that the stream had since
the mark was written, and not by its setting now. The file `page-cache` is empty; its existence is the mark.
"""

from __future__ import annotations

from tidelog_broker.storage.files.protocol import Files

FILE_NAME = "page-cache"


def mark_page_cache(files: Files, folder: str, *, durably: bool = True) -> None:
    """Writes the mark; raises OSError.

    `durably`: it is durable when the call returns; else it is durable once the folder is synced.
    """
    files.open(f"{folder}/{FILE_NAME}", create=True).close()
    if durably:
        files.sync_dir(folder)


def clear_page_cache(files: Files, folder: str) -> None:
    """Removes the mark. A crash may bring it back; the log is then at worst suspect. Raises OSError."""
    if files.exists(f"{folder}/{FILE_NAME}"):
        files.remove(f"{folder}/{FILE_NAME}")

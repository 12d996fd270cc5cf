"""The mark of a log that may hold what counted without a flush (R17).

Of a `page-cache` stream a record counts as soon as it is written. The mark is on the disk before the first
one does, and goes only when, under `fsync`, everything from before is flushed. So a start after a loss of
power knows what the log may lack by the weakest kind since then, whatever the stream is set to by now.
What counts is that the file `page-cache` is there; it is empty.
"""

from __future__ import annotations

from tidelog_broker.storage.files.protocol import Files

FILE_NAME = "page-cache"


def mark_page_cache(files: Files, folder: str, *, durably: bool = True) -> None:
    """`durably`: when it returns; else once the folder is synced. Raises OSError."""
    files.open(f"{folder}/{FILE_NAME}", create=True).close()
    if durably:
        files.sync_dir(folder)


def clear_page_cache(files: Files, folder: str) -> None:
    """A crash may bring it back, which costs no more than suspicion. Raises OSError."""
    if files.exists(f"{folder}/{FILE_NAME}"):
        files.remove(f"{folder}/{FILE_NAME}")

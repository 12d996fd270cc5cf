"""A snapshot that a leader sent takes the place of the whole metadata log, or does not.

1. It is written beside the log as ``install-<index>-<term>``: whole, or not there.
   From here on the log counts for nothing, and a start that finds the file goes on at 2.
2. The segments are removed, and an empty one is made that begins behind the snapshot.
3. The file gets its name as a snapshot, and the older ones are removed.

So there is never a hole between a snapshot and the entries behind it, and a log that ends
before its newest snapshot is still damage. Neighbours: `log` does 1 and 2 to 3 in one
go, `recovery` does 2 and 3 again after a crash.
"""

from __future__ import annotations

from contextlib import suppress

from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.raft.segment import (
    SEGMENT_NAME,
    SNAPSHOT_NAME,
    install_path,
    segment_path,
    snapshot_path,
)


def finish_install(files: Files, folder: str, index: int, term: int) -> None:
    """Steps 2 and 3, durably; may be repeated. Raises OSError."""
    for name in files.list(folder):
        if SEGMENT_NAME.fullmatch(name):
            files.remove(f"{folder}/{name}")
    file = files.open(segment_path(folder, index + 1), create=True)
    try:
        file.datasync()
    finally:
        file.close()
    files.sync_dir(folder)
    path = snapshot_path(folder, index, term)
    files.rename(install_path(folder, index, term), path)
    files.sync_dir(folder)
    for name in files.list(folder):
        if SNAPSHOT_NAME.fullmatch(name) and f"{folder}/{name}" != path:
            files.remove(f"{folder}/{name}")


def abandon_install(files: Files, folder: str, index: int, term: int) -> None:
    """Step 1 failed: what it left must not take the log's place at the next start. Raises OSError."""
    with suppress(FileNotFoundError):
        files.remove(install_path(folder, index, term))
    files.sync_dir(folder)

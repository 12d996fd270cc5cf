"""Replaces the whole metadata log by a snapshot that a leader sent, completely or not at all.

1. The snapshot is written atomically beside the log as ``install-<index>-<term>``.
   From here on the old log no longer counts, and a start that finds the file continues at step 2.
2. The segments are removed, and an empty segment is made that begins behind the snapshot.
3. The file is renamed to its name as a snapshot, and the older snapshots are removed.

So there is never a hole between a snapshot and the entries behind it, and a log that ends
before its newest snapshot is still damage. Neighbours: `log` does all three steps,
`recovery` repeats steps 2 and 3 after a crash.
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
    """Does steps 2 and 3 durably; may be repeated. Raises OSError."""
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
    """Removes the file of a failed step 1, so that the next start does not install it. Raises OSError."""
    with suppress(FileNotFoundError):
        files.remove(install_path(folder, index, term))
    files.sync_dir(folder)

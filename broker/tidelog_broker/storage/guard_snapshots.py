"""Where snapshots of the append guard lie: ``<offset>.guard`` beside the segments.

Caches like the indexes: a missing or damaged one costs a longer replay. The last two
are kept, so that one that turns out to lie above a cut log has a predecessor.
"""

from __future__ import annotations

import contextlib

from tidelog_broker.storage.append_guard import AppendGuard, GuardLimits
from tidelog_broker.storage.files import Files, read_file, write_all

SNAPSHOTS_KEPT = 2
_SUFFIX = ".guard"


def save_guard_snapshot(files: Files, folder: str, guard: AppendGuard) -> None:
    """Writes the guard's state beside the log and removes older snapshots than the last two."""
    data = guard.snapshot()
    file = files.open(f"{folder}/{guard.offset:020d}{_SUFFIX}", create=True)
    try:
        write_all(file, [data], 0)
        file.truncate(len(data))
    finally:
        file.close()
    for offset in _offsets(files, folder)[:-SNAPSHOTS_KEPT]:
        files.remove(f"{folder}/{offset:020d}{_SUFFIX}")


def load_guard_snapshot(
    files: Files, folder: str, limits: GuardLimits, *, at_most: int
) -> AppendGuard | None:
    """The newest sound snapshot that does not lie above `at_most`."""
    for offset in reversed(_offsets(files, folder)):
        if offset <= at_most:
            # One that cannot be read is as good as none.
            with contextlib.suppress(OSError):
                guard = AppendGuard.restore(read_file(files, f"{folder}/{offset:020d}{_SUFFIX}"), limits)
                if guard is not None and guard.offset == offset:
                    return guard
    return None


def remove_guard_snapshots(files: Files, folder: str, *, above: int) -> bool:
    """Removes snapshots of a part of the log that is no more; whether there were any.

    The caller syncs the folder before anything is appended: a snapshot that came back
    would describe another history of these offsets.
    """
    gone = [offset for offset in _offsets(files, folder) if offset > above]
    for offset in gone:
        files.remove(f"{folder}/{offset:020d}{_SUFFIX}")
    return bool(gone)


def _offsets(files: Files, folder: str) -> list[int]:
    names = [name.removesuffix(_SUFFIX) for name in files.list(folder) if name.endswith(_SUFFIX)]
    return sorted(int(name) for name in names if name.isdigit())

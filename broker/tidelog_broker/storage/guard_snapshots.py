"""Where snapshots of the append guard lie: ``<offset>.guard`` beside the segments.

Caches as long as the log reaches back to where the one before was taken: a missing or
damaged one costs a longer replay. What a snapshot knows of segments that retention
removed is nowhere else, so the log makes one durable before it lets segments go, and
removes older ones only when a newer one is durable.
"""

from __future__ import annotations

import contextlib

from tidelog_broker.storage.append_guard import AppendGuard, GuardLimits
from tidelog_broker.storage.files import Files, Held, OpenFiles, read_file, write_all

SNAPSHOTS_KEPT = 2
"""The newest, and one that still fits when the log is cut back behind that."""

SUFFIX = ".guard"


def write_guard_snapshot(files: OpenFiles, folder: str, guard: AppendGuard) -> Held:
    """Writes the guard's state beside the log; the file, held open until it is synced."""
    data = guard.snapshot()
    held = files.acquire(_path(folder, guard.offset), create=True)
    try:
        write_all(held.file, [data], 0)
        held.file.truncate(len(data))
    except BaseException:
        files.release(held)
        raise
    return held


def remove_older_snapshots(files: OpenFiles, folder: str, durable: int) -> None:
    """Once the snapshot at `durable` is on disk: removes all before it but the last."""
    older = [offset for offset in _offsets(files.files, folder) if offset <= durable]
    for offset in older[:-SNAPSHOTS_KEPT]:
        _remove(files, folder, offset)


def load_guard_snapshot(
    files: Files, folder: str, limits: GuardLimits, *, at_most: int
) -> AppendGuard | None:
    """The newest sound snapshot that does not lie above `at_most`."""
    for offset in reversed(_offsets(files, folder)):
        if offset <= at_most:
            # One that cannot be read is as good as none.
            with contextlib.suppress(OSError):
                guard = AppendGuard.restore(read_file(files, _path(folder, offset)), limits)
                if guard is not None and guard.offset == offset:
                    return guard
    return None


def remove_guard_snapshots(files: OpenFiles, folder: str, *, above: int) -> bool:
    """Removes snapshots of a part of the log that is no more; whether there were any.

    The caller syncs the folder before anything is appended: a snapshot that came back
    would describe another history of these offsets.
    """
    gone = [offset for offset in _offsets(files.files, folder) if offset > above]
    for offset in gone:
        _remove(files, folder, offset)
    return bool(gone)


def _remove(files: OpenFiles, folder: str, offset: int) -> None:
    files.forget(_path(folder, offset))
    files.files.remove(_path(folder, offset))


def _path(folder: str, offset: int) -> str:
    return f"{folder}/{offset:020d}{SUFFIX}"


def _offsets(files: Files, folder: str) -> list[int]:
    names = [name.removesuffix(SUFFIX) for name in files.list(folder) if name.endswith(SUFFIX)]
    return sorted(int(name) for name in names if name.isdigit())

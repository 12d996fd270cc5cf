"""Snapshots of the append guard: ``<offset>.guard`` beside the segments, and when one is due.

Neighbours: `append_guard` says what is in one, `reading` replays the batches behind it,
`unsynced` keeps new ones until they are synced.

They are caches as long as the log reaches back to where the one before was taken: a missing or
damaged one costs a longer replay. What a snapshot knows of segments that retention
removed is nowhere else, so the log makes one durable before it lets segments go, and
removes older ones only when a newer one is durable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from tidelog_broker.storage.files.open_files import Held, OpenFiles
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.whole_files import read_file, write_all
from tidelog_broker.storage.guard.append_guard import AppendGuard, GuardLimits
from tidelog_broker.storage.guard.replay import replay
from tidelog_broker.storage.segments.segment import Segment

SNAPSHOTS_KEPT = 2
"""The newest, and one that still fits when the log is cut back behind that."""

SNAPSHOT_BATCHES = 20_000
"""After this many batches without one the guard is snapshotted, so that recovery replays few."""

SNAPSHOT_BYTES = 256 << 20
"""… or after this many bytes."""

SUFFIX = ".guard"


class GuardSnapshots:
    """Those of one log: what was appended since the last, and which is on disk."""

    __slots__ = ("_batches", "_bytes", "_files", "_folder", "durable_offset")

    def __init__(self, files: OpenFiles, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._batches = 0
        """Appended since the last snapshot."""
        self._bytes = 0
        self.durable_offset = -1
        """Of the newest snapshot known to be on disk; −1: none is known."""

    @property
    def outdated(self) -> bool:
        """The guard changed since the last snapshot."""
        return self._batches > 0

    def appended(self, batches: int, size: int) -> bool:
        """Counts what was appended; whether a snapshot is due."""
        self._batches += batches
        self._bytes += size
        return self._batches >= SNAPSHOT_BATCHES or self._bytes >= SNAPSHOT_BYTES

    def write(self, guard: AppendGuard) -> Held | None:
        """Writes a snapshot; the file, held open until it is synced, None if the disk does not take it."""
        self._batches = self._bytes = 0
        with contextlib.suppress(OSError):
            return write_guard_snapshot(self._files, self._folder, guard)
        return None

    def synced(self, offset: int) -> None:
        """The snapshot at `offset` is on disk: older ones go, as far as the disk lets them."""
        self.durable_offset = offset
        with contextlib.suppress(OSError):
            remove_older_snapshots(self._files, self._folder, offset)

    def log_was_cut(self) -> None:
        """Snapshots of what was cut off are gone, and the guard is made again."""
        self._batches = self._bytes = 0
        self.durable_offset = -1

    def rebuild(self, segments: Sequence[Segment], limits: GuardLimits) -> tuple[AppendGuard, bool]:
        """The guard at the log's end: the newest snapshot that fits, plus the batches behind it (4.9).

        And whether it saw all of these; else it lacks what was damaged.
        """
        end, first = segments[-1].next_offset, segments[0].base_offset
        guard = load_guard_snapshot(self._files.files, self._folder, limits, at_most=end)
        if guard is None:
            guard = AppendGuard(limits, first)
        before = guard.offset = max(guard.offset, first)
        whole = replay(guard, segments)
        # A long replay is worth a snapshot, as so many appends would be.
        self._batches = 0 if guard.offset == before else SNAPSHOT_BATCHES // 2
        guard.offset = end
        return guard, whole


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

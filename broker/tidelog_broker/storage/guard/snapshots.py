"""Snapshots of the append guard, in ``<offset>.guard`` beside the segments; decides when a snapshot is due.

Neighbours: `append_guard` defines the content, `replay` replays the batches behind a snapshot,
`unsynced` keeps new snapshots until they are synced.

A snapshot is a cache while the log still has the batches since the previous snapshot: if it is missing or
damaged, only the replay takes longer. But after retention has removed segments, only the snapshot holds
their part of the state. So the log makes a snapshot durable before it removes segments, and removes older
snapshots only when a newer one is durable.
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
"""The newest, and an older one for the case that the log is cut back to before the newest."""

SNAPSHOT_BATCHES = 20_000
"""A snapshot is due after this many batches, so that recovery replays few batches."""

SNAPSHOT_BYTES = 256 << 20
"""… or after this many bytes."""

SUFFIX = ".guard"


class GuardSnapshots:
    """The guard snapshots of one log: counts appends since the last one, knows the newest on disk."""

    __slots__ = ("_batches", "_bytes", "_files", "_folder", "durable_offset")

    def __init__(self, files: OpenFiles, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._batches = 0
        """Batches appended since the last snapshot."""
        self._bytes = 0
        self.durable_offset = -1
        """Offset of the newest snapshot that is known to be on disk; −1: no snapshot is known."""

    @property
    def outdated(self) -> bool:
        """Whether the guard changed since the last snapshot."""
        return self._batches > 0

    def appended(self, batches: int, size: int) -> bool:
        """Counts appended batches and bytes; returns whether a snapshot is due."""
        self._batches += batches
        self._bytes += size
        return self._batches >= SNAPSHOT_BATCHES or self._bytes >= SNAPSHOT_BYTES

    def write(self, guard: AppendGuard) -> Held | None:
        """Writes a snapshot; returns its file, held open until it is synced, or None if the write failed."""
        self._batches = self._bytes = 0
        with contextlib.suppress(OSError):
            return write_guard_snapshot(self._files, self._folder, guard)
        return None

    def synced(self, offset: int) -> None:
        """The snapshot at `offset` is on disk: removes older snapshots, ignoring errors of the disk."""
        self.durable_offset = offset
        with contextlib.suppress(OSError):
            remove_older_snapshots(self._files, self._folder, offset)

    def log_was_cut(self) -> None:
        """The log was cut: snapshots of the removed part are gone, and the guard is rebuilt."""
        self._batches = self._bytes = 0
        self.durable_offset = -1

    def rebuild(self, segments: Sequence[Segment], limits: GuardLimits) -> tuple[AppendGuard, bool]:
        """Rebuilds the guard at the log's end from the newest usable snapshot and later batches (4.9).

        Also returns whether it saw all these batches; if not, the guard lacks the damaged batches.
        """
        end, first = segments[-1].next_offset, segments[0].base_offset
        guard = load_guard_snapshot(self._files.files, self._folder, limits, at_most=end)
        if guard is None:
            guard = AppendGuard(limits, first)
        before = guard.offset = max(guard.offset, first)
        whole = replay(guard, segments)
        # A replay counts as half of the appends that make a snapshot due, so that the next one comes sooner.
        self._batches = 0 if guard.offset == before else SNAPSHOT_BATCHES // 2
        guard.offset = end
        return guard, whole


def write_guard_snapshot(files: OpenFiles, folder: str, guard: AppendGuard) -> Held:
    """Writes the guard's state beside the log; returns the file, held open until it is synced."""
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
    """Removes the snapshots before the one at `durable`, which is on disk, except the last of them."""
    older = [offset for offset in _offsets(files.files, folder) if offset <= durable]
    for offset in older[:-SNAPSHOTS_KEPT]:
        _remove(files, folder, offset)


def load_guard_snapshot(
    files: Files, folder: str, limits: GuardLimits, *, at_most: int
) -> AppendGuard | None:
    """The newest sound snapshot at or below offset `at_most`; None if there is none."""
    for offset in reversed(_offsets(files, folder)):
        if offset <= at_most:
            # A snapshot that cannot be read counts as missing.
            with contextlib.suppress(OSError):
                guard = AppendGuard.restore(read_file(files, _path(folder, offset)), limits)
                if guard is not None and guard.offset == offset:
                    return guard
    return None


def remove_guard_snapshots(files: OpenFiles, folder: str, *, above: int) -> bool:
    """Removes snapshots of a removed part of the log, above offset `above`; returns whether there were any.

    The caller syncs the folder before the next append: if such a snapshot reappeared after a crash, it
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

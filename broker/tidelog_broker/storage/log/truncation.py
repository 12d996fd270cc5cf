"""The steps that cut a log back to an offset: find the place of the cut, then change file after file (R1).

The order of the steps is safe: a crash in between leaves a log that recovery understands.
Neighbours: `cutter` holds the locks during a cut, saves the lower recovery point first, and changes
history and memory to match; `scan` finds batches around damage; `recovery_scan` cuts the tail that a
crash left, before the log is open.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.errors import DataCorrupt
from tidelog_broker.storage.files.open_files import OpenFiles
from tidelog_broker.storage.guard.snapshots import remove_guard_snapshots
from tidelog_broker.storage.log.unsynced import Unsynced
from tidelog_broker.storage.points import RecoveryPoint
from tidelog_broker.storage.segments.scan import Sound, scan
from tidelog_broker.storage.segments.segment import Segment


class Cut(NamedTuple):
    """The place where a log will end."""

    kept: list[Segment]
    """The segments that stay, oldest first. The last is cut, the rest stay whole."""
    gone: list[Segment]
    position: int
    """The byte position of the cut in the last kept segment."""
    end_offset: int

    @property
    def recovery_point(self) -> RecoveryPoint:
        """The highest recovery point that the cut log can have."""
        return RecoveryPoint(self.end_offset, self.kept[-1].base_offset, self.position)


def cut_at(segments: Sequence[Segment], offset: int) -> Cut:
    """The smallest cut that leaves no record at or above `offset`."""
    at = max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0)
    position, end = boundary_at(segments[at], offset)
    return Cut([*segments[: at + 1]], [*segments[at + 1 :]], position, end)


def boundary_at(segment: Segment, offset: int) -> tuple[int, int]:
    """Where to cut a segment so that no record at or above `offset` is left: (position, new end).

    The cut is at the start of the batch that holds `offset`, or before the damage that holds it.
    """
    if offset <= segment.base_offset:
        return 0, segment.base_offset
    try:
        position = segment.locate(offset)
        if position >= segment.size:
            return segment.size, segment.next_offset
        header = segment.header_at(position)
        if header is not None and header.base_offset <= offset:
            return position, header.base_offset
    except DataCorrupt:
        pass
    position, end = 0, segment.base_offset
    with segment.opened() as file:
        for found in scan(file, 0, segment.size, *segment.key, segment.base_offset):
            if isinstance(found, Sound):
                if found.header.base_offset <= offset < found.header.next_offset:
                    return found.position, found.header.base_offset
                if found.header.base_offset > offset:
                    break
                position, end = found.position + found.header.length, found.header.next_offset
    return position, end


def cut_files(files: OpenFiles, folder: str, cut: Cut, unsynced: Unsynced) -> None:
    """Carries out a cut, durably; raises OSError. Removes the later segments first, from the newest back."""
    for segment in reversed(cut.gone):
        unsynced.drop_segment(segment)
        segment.remove()
        files.files.sync_dir(folder)
    last = cut.kept[-1]
    unsynced.drop_segment(last)
    if files.files.exists(last.path):
        last.truncate(cut.position, cut.end_offset)
    unsynced.drop_snapshots()
    remove_guard_snapshots(files, folder, above=cut.end_offset)
    unsynced.sync_folder()
    unsynced.sync_epochs()


def remove_all(files: OpenFiles, folder: str, segments: Iterable[Segment]) -> None:
    """Removes all segments and guard snapshots of a log, durably; raises OSError."""
    for segment in segments:
        segment.remove()
    remove_guard_snapshots(files, folder, above=-1)
    files.files.sync_dir(folder)

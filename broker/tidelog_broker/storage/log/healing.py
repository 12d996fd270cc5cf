"""The steps that replace rotten batches by the same batches from another replica (DESIGN 4, 2c and 4.8).

The segment is copied into a new file with sound batches in the place of the damaged bytes. Then that
file takes the segment's name, so a crash leaves either the old file or the new file, whole. Only a closed
segment that is wholly on disk is changed, so no append writes to it during the copy; reads that have the
old file open continue in it. Batches are accepted only if both CRCs are right, their offsets follow each
other, and each batch has the epoch that this log's own history has at its offset: within an epoch there is
only one batch at an offset (R1).

Neighbours: `healer` puts the new file in its place, `scan` finds the damage again, `upkeep.healer` requests
batches from the other replicas.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from tidelog.errors import DataCorrupt
from tidelog_broker.storage.files.protocol import Bytes, File, Files
from tidelog_broker.storage.files.whole_files import write_all
from tidelog_broker.storage.folder.leader_epochs import LeaderEpochs
from tidelog_broker.storage.log.replicated import Continuation, OutOfSequence, check_received
from tidelog_broker.storage.segments.scan import DamagedRange, Sound, scan
from tidelog_broker.storage.segments.segment import Segment

COPY_BYTES = 4 << 20
"""The bytes that are copied at a time."""

SEGMENT_BYTES_HARD_MAX = (4 << 30) - 1
"""The limit of a file, because a position has 32 bits."""


class Hole(NamedTuple):
    """The place of damaged bytes in a segment's file."""

    position: int
    end: int
    size: int
    """The size of the whole file."""


def find_hole(segment: Segment, damage: DamagedRange) -> Hole | None:
    """Where the damaged range lies in the file; None: the range is sound now, or its bounds have changed.

    Reads the whole segment. Raises OSError.
    """
    size, end_offset = segment.extent()
    position, offset = 0, segment.base_offset
    with segment.opened() as file:
        size = min(size, file.size())
        for found in scan(file, 0, size, *segment.key, segment.base_offset):
            if not isinstance(found, Sound):
                continue
            header = found.header
            if header.base_offset >= damage.end:
                return Hole(position, found.position, size) if offset == damage.start else None
            if header.next_offset <= damage.start:
                position, offset = found.position + header.length, header.next_offset
    whole = offset == damage.start and damage.end == end_offset
    return Hole(position, size, size) if whole else None


def check_for_range(
    data: Bytes, segment: Segment, epochs: LeaderEpochs, damage: DamagedRange, leader_epoch: int
) -> int:
    """The offset where the batches in `data` end, if they belong at the beginning of the range.

    Raises `DataCorrupt` and `OutOfSequence`.
    """
    before = epochs.epoch_at(damage.start - 1)
    received = check_received(data, segment.key, Continuation(damage.start, before, leader_epoch))
    for one in received:
        header = one.header
        if header.next_offset > damage.end or not epochs.knows(header.leader_epoch, header.base_offset):
            raise OutOfSequence(
                f"offsets {header.base_offset}–{header.next_offset - 1} of leader epoch "
                f"{header.leader_epoch} do not belong in the damaged range {damage.start}–{damage.end - 1}"
            )
    return received[-1].header.next_offset


def write_healed(
    files: Files, path: str, segment: Segment, hole: Hole, data: Bytes, *, complete: bool
) -> int:
    """Writes the segment with `data` in the hole to `path`, durably; returns the size of the new file.

    Not `complete`: more batches will follow after `data`; until then there are zeros. Raises OSError and
    `DataCorrupt`, and then leaves no file.
    """
    behind = hole.position + len(data)
    following = behind if complete else max(hole.end, behind)
    total = following + hole.size - hole.end
    if total > SEGMENT_BYTES_HARD_MAX:
        raise DataCorrupt(f"{segment.path} would have {total} bytes")
    if files.exists(path):
        files.remove(path)
    try:
        copy = files.open(path, create=True)
        try:
            with segment.opened() as source:
                _copy(source, 0, hole.position, copy, 0)
                write_all(copy, [data], hole.position)
                copy.truncate(total)
                _copy(source, hole.end, hole.size, copy, following)
            copy.datasync()
        finally:
            copy.close()
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(path)
        raise
    return total


def _copy(source: File, start: int, end: int, target: File, at: int) -> None:
    for position in range(start, end, COPY_BYTES):
        piece = source.pread(min(COPY_BYTES, end - position), position)
        write_all(target, [piece], at + position - start)

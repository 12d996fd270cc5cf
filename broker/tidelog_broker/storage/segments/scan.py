"""Reads a segment that may be damaged: checks every batch and steps over damage.

`recovery` uses it for the bytes past the recovery point, `truncation` to cut in front of damage, and
`log` when a read meets bytes that fail their checks. A batch begins at a multiple of 8 bytes, and its
header has a CRC that binds it to its partition. So the next sound batch behind damage can be found.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from tidelog.errors import CorruptBatch, DataCorrupt
from tidelog.records import HEADER_BYTES, BatchHeader, header_crc, verify_batch
from tidelog.records.layout import ALIGNMENT, MAGIC, check_framing
from tidelog_broker.storage.files.protocol import File
from tidelog_broker.storage.files.torn import lacks_a_sector
from tidelog_broker.storage.segments.index import SparseIndex
from tidelog_broker.storage.segments.segment import Segment

SEARCH_BYTES = 4 << 20
"""Size of one read in the search for the next batch behind damage."""

UNREADABLE_STEP_BYTES = 4096
"""The search skips this much at a time where the disk cannot read."""


class DamagedRange(NamedTuple):
    """Offsets that cannot be read, between readable batches or up to the segment's end."""

    start: int
    end: int
    """The first offset after the range."""


class Sound(NamedTuple):
    """A whole batch whose checks hold."""

    position: int
    header: BatchHeader


class Unsound(NamedTuple):
    """Bytes that are no sound batch, up to the next sound batch."""

    position: int
    reason: str
    cut_short: bool
    """The file seems to end inside a batch that was being written."""
    next_position: int | None
    """Where the next sound batch begins; None: there is none."""


def scan(
    file: File, start: int, end: int, stream_id: bytes, partition: int, expected_offset: int
) -> Iterator[Sound | Unsound]:
    """Yields every batch from the boundary `start` up to the file's `end`, and the damage between them."""
    position = start
    while position < end:
        found = _check_one(file, position, end, stream_id, partition, expected_offset)
        if isinstance(found, Sound):
            yield found
            position += found.header.length
            expected_offset = found.header.next_offset
            continue
        following = _next_sound(file, position + ALIGNMENT, end, stream_id, partition, expected_offset)
        yield found._replace(next_position=following)
        if following is None:
            return
        position = following
        expected_offset = -1


def may_be_torn(file: File, found: Unsound, end: int, stream_id: bytes, partition: int) -> bool:
    """Whether unsound bytes look like a write that a power loss cut short, and not like rot.

    It looks at the header or, if the header's checksum holds, at the whole batch.
    """
    position = found.position
    raw = file.pread(min(HEADER_BYTES, end - position), position)
    if len(raw) < HEADER_BYTES:
        return True
    header = BatchHeader.unpack(raw)
    if header_crc(stream_id, partition, raw) == header.header_crc:
        if header.length > end - position:
            return True
        raw = file.pread(header.length, position)
    return lacks_a_sector(raw, position)


def _check_one(
    file: File, position: int, end: int, stream_id: bytes, partition: int, expected_offset: int
) -> Sound | Unsound:
    try:
        return _check_readable(file, position, end, stream_id, partition, expected_offset)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return Unsound(position, f"the disk cannot read it: {error.strerror}", False, None)


def _check_readable(
    file: File, position: int, end: int, stream_id: bytes, partition: int, expected_offset: int
) -> Sound | Unsound:
    raw = file.pread(min(HEADER_BYTES, end - position), position)
    if len(raw) < HEADER_BYTES:
        return Unsound(position, f"the file ends after {len(raw)} bytes of a header", True, None)
    header = BatchHeader.unpack(raw)
    header_holds = header_crc(stream_id, partition, raw) == header.header_crc
    try:
        check_framing(header, end - position)
    except CorruptBatch as error:
        return Unsound(position, str(error), header_holds and header.length > end - position, None)
    if not header_holds:
        return Unsound(position, "the header CRC does not hold", False, None)
    if expected_offset >= 0 and (
        header.base_offset < expected_offset
        or (header.base_offset > expected_offset and not header.compacted)
    ):
        reason = f"base offset {header.base_offset} where {expected_offset} is expected"
        return Unsound(position, reason, False, None)
    try:
        verify_batch(pa.py_buffer(file.pread(header.length, position)), header, stream_id, partition)
    except DataCorrupt as error:
        return Unsound(position, str(error), False, None)
    return Sound(position, header)


def _next_sound(
    file: File, position: int, end: int, stream_id: bytes, partition: int, at_least: int
) -> int | None:
    """The next position where a sound batch begins whose offset is not below `at_least`."""
    while position + HEADER_BYTES <= end:
        window = _search_window(file, position, end)
        at = window.find(MAGIC)
        while at >= 0:
            if (position + at) % ALIGNMENT == 0:
                found = _check_one(file, position + at, end, stream_id, partition, -1)
                if isinstance(found, Sound) and found.header.base_offset >= at_least:
                    return position + at
            at = window.find(MAGIC, at + 1)
        if not window:
            position += UNREADABLE_STEP_BYTES - position % UNREADABLE_STEP_BYTES
        elif position + len(window) >= end:
            return None
        else:
            position += max(len(window) - ALIGNMENT, ALIGNMENT)
    return None


def _search_window(file: File, position: int, end: int) -> bytes:
    """The bytes that can be read from `position` on; empty if the disk cannot read there."""
    for length in (SEARCH_BYTES, UNREADABLE_STEP_BYTES - position % UNREADABLE_STEP_BYTES):
        try:
            return file.pread(min(length, end - position), position)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
    return b""


@dataclass(slots=True)
class SegmentScan:
    """The result of the scan of a whole segment."""

    bytes: int
    """The segment's size when the scan began."""
    index: SparseIndex
    damaged: list[DamagedRange] = field(default_factory=list)


def scan_segment(segment: Segment) -> SegmentScan:
    """Scans a whole segment; returns the damage, and an index that also reaches behind it."""
    size, end_offset = segment.extent()
    result = SegmentScan(size, SparseIndex(segment.base_offset))
    expected, largest, after_damage = segment.base_offset, None, False
    with segment.opened() as file:
        for found in scan(file, 0, size, *segment.key, segment.base_offset):
            if isinstance(found, Unsound):
                after_damage = True
                continue
            header = found.header
            if after_damage:
                result.damaged.append(DamagedRange(expected, header.base_offset))
            largest = header.timestamp_max_us if largest is None else max(largest, header.timestamp_max_us)
            result.index.note(
                header.base_offset - segment.base_offset, found.position, largest, always=after_damage
            )
            expected, after_damage = header.next_offset, False
    if expected < end_offset:
        result.damaged.append(DamagedRange(expected, end_offset))
    return result

"""Reads verified batches from segments, by offset and by time.

This module never returns a batch that fails its checks (2c). `log.reader` knows which ranges are
damaged and decides what happens when a read meets damage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import DataCorrupt, TidelogError
from tidelog.records import HEADER_BYTES, BatchHeader, decode_batch, verify_batch
from tidelog.records.layout import check_framing
from tidelog_broker.storage.files.protocol import Bytes
from tidelog_broker.storage.segments.segment import Segment


class Chunk(NamedTuple):
    """Whole batches, read and verified."""

    parts: Sequence[Bytes]
    bytes: int
    next_offset: int
    leader_epoch: int
    """Leader epoch of the last batch."""
    place: tuple[int, int]
    """Segment base, and the position behind the chunk, where the next read may begin."""


def read_chunk(
    segment: Segment, offset: int, bytes_max: int, limit: int, place: tuple[int, int] | None
) -> Chunk | None:
    """Reads whole batches below `limit`, from the batch that holds `offset` on.

    None: the first batch ends above `limit`. Raises `DataCorrupt` if the first batch is damaged or missing.
    """
    position = None
    if place is not None and place[0] == segment.base_offset:
        header = segment.header_at(place[1])
        if header is not None and header.base_offset == offset:
            position = place[1]
    if position is None:
        position = segment.locate(offset)
    data = segment.pread(max(bytes_max, HEADER_BYTES), position)
    if len(data) < HEADER_BYTES:
        raise DataCorrupt(f"{segment.path} ends before offset {offset}", offset=offset)
    length = BatchHeader.unpack(data).length
    if length > len(data):
        # At least one batch is returned, however large; the header's own CRC proves its length.
        if segment.header_at(position) is None:
            raise DataCorrupt(f"{segment.path} at {position}: the header CRC does not hold", offset=offset)
        data = segment.pread(length, position)
    return _verified(data, segment, position, offset, limit)


def _verified(data: bytes, segment: Segment, position: int, offset: int, limit: int) -> Chunk | None:
    view = memoryview(data)
    at, epoch, wanted = 0, 0, offset
    while len(data) - at >= HEADER_BYTES:
        header = BatchHeader.unpack(data, at)
        try:
            check_framing(header, segment.size - position - at)
            if at + header.length > len(data):
                if at:
                    break
                raise DataCorrupt(
                    f"the header says {header.length} bytes, but only {len(data)} are there", offset=wanted
                )
            verify_batch(view[at : at + header.length], header, *segment.key)
            if header.next_offset <= wanted or (header.base_offset > wanted and not header.compacted):
                raise DataCorrupt(f"offset {wanted} is missing", offset=wanted)
        except TidelogError as error:
            if at:
                break
            raise DataCorrupt(f"{segment.path} at {position}: {error}", offset=wanted) from None
        if header.next_offset > limit:
            break
        at += header.length
        wanted, epoch = header.next_offset, header.leader_epoch
    if at == 0:
        return None
    return Chunk([view[:at]], at, wanted, epoch, (segment.base_offset, position + at))


def first_at_time(segments: Iterable[Segment], timestamp_us: int, at_least: int) -> int | None:
    """The offset of the first record at or after a time, not below `at_least`; None: there is none (F7)."""
    for segment in segments:
        if segment.next_offset <= at_least or segment.size == 0:
            continue
        with contextlib.suppress(FileNotFoundError):
            segment.load_times()
            if segment.timestamp_max_us is None or segment.timestamp_max_us < timestamp_us:
                continue
            found = _first_in_segment(segment, timestamp_us, at_least)
            if found is not None:
                return found
    return None


def _first_in_segment(segment: Segment, timestamp_us: int, at_least: int) -> int | None:
    """As `first_at_time`, in one segment.

    Skips batches that fail their checks, because they cannot be read either.
    """
    for position, header in segment.reaching(timestamp_us, at_least):
        batch = segment.pread(header.length, position)
        try:
            verify_batch(batch, header, *segment.key)
        except DataCorrupt:
            continue
        offset = _first_in_batch(decode_batch(batch, header), header, timestamp_us, at_least)
        if offset is not None:
            return offset
    return None


def _first_in_batch(
    columns: pa.RecordBatch, header: BatchHeader, timestamp_us: int, at_least: int
) -> int | None:
    """As `first_at_time`, in one batch. Makes no object per record: a batch may have a million records."""
    wanted = pc.greater_equal(columns.column("timestamp").cast("int64"), timestamp_us)
    lowest = max(0, at_least - header.base_offset)
    if header.compacted:
        deltas = columns.column("offset_delta")
        wanted = pc.and_(wanted, pc.greater_equal(deltas, lowest))
        row = int(pc.index(wanted, True).as_py())
        return None if row < 0 else header.base_offset + int(deltas[row].as_py())
    row = int(pc.index(wanted.slice(lowest), True).as_py()) if lowest < len(wanted) else -1
    return None if row < 0 else header.base_offset + lowest + row

"""Finds a place in a log by the sizes of its batches, from indexes and headers: no body is read.

Neighbour: `reading` finds batches by offset and by time.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog_broker.storage.segments.segment import Segment


def edge_after_bytes(segments: Sequence[Segment], offset: int, bytes_max: int) -> int:
    """The offset behind the whole batches that fit into `bytes_max`, at least one batch.

    Counts from the batch that holds `offset`, which lies in the first of the `segments`. Damaged
    bytes count too. Raises `DataCorrupt` if the first batch cannot be found.
    """
    position, left = segments[0].locate(offset), bytes_max
    reached = offset
    for segment in segments:
        size, next_offset = segment.extent()
        if size - position > left:
            return _edge_in_segment(segment, position, position + left, offset, reached)
        left -= size - position
        reached, position = max(reached, next_offset), 0
    return reached


def _edge_in_segment(segment: Segment, start: int, end: int, offset: int, reached: int) -> int:
    """As `edge_after_bytes`, in the segment where the bytes end: they are those from `start` to `end`.

    `reached` is where the segment before it ends, or `offset`.
    """
    at = segment.index.position_at_most(end)
    if at > start and segment.header_at(at) is None:
        # The index is a cache, and this one is wrong.
        segment.rebuild_index()
        at = segment.index.position_at_most(end)
    some = reached > offset
    for position, header in segment.walk_past_damage(max(at, start)):
        if position > start or some:
            if position > end:
                break
            reached = max(reached, header.base_offset)
            if position + header.length > end:
                break
        reached = max(reached, header.next_offset)
    return reached

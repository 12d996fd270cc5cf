"""Checks a segment piece by piece, to find rot in cold data while other replicas are whole (DESIGN 4.8).

It checks every byte of a batch, header and body, as a reader does. Neighbours: `scan` tells sound batches
from damage, `log.damage` records the damage that a piece has, `upkeep.scrubber` sets the pace.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog_broker.storage.segments.scan import Unsound, scan
from tidelog_broker.storage.segments.segment import Segment


class Place(NamedTuple):
    """How far a segment was checked: every batch in front of it is sound."""

    position: int
    offset: int
    """Base offset of the batch that begins there."""


class Piece(NamedTuple):
    """The result of checking one piece."""

    place: Place
    """The place behind the piece."""
    bytes: int
    """Bytes that were checked."""
    sound: bool
    done: bool
    """The segment's end was reached."""


def beginning_of(segment: Segment) -> Place:
    return Place(0, segment.base_offset)


def check_piece(segment: Segment, place: Place, bytes_max: int) -> Piece:
    """Checks the batches of a segment from a place on, about `bytes_max` bytes; stops at damage.

    Reads a closed segment from the disk, not from the page cache. Raises OSError.
    """
    size, end_offset = segment.extent()
    position, offset = place
    with segment.opened() as file:
        if segment.closed:
            file.drop_cache(position, min(bytes_max, size - position))
        for found in scan(file, position, size, *segment.key, offset):
            if isinstance(found, Unsound):
                return Piece(Place(position, offset), position - place.position, sound=False, done=False)
            position, offset = found.position + found.header.length, found.header.next_offset
            if position - place.position >= bytes_max:
                break
        if segment.closed:
            # No reader asked for this piece, so it must not fill the page cache.
            file.drop_cache(place.position, position - place.position)
    done = position >= size
    sound = not done or offset >= end_offset
    return Piece(Place(position, offset), position - place.position, sound, done)

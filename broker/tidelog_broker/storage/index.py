"""Sparse indexes of a segment: offset → position and timestamp → offset.

Both are caches (DESIGN 4.1): they say where to start walking the batch headers, never
what is there. A wrong or missing index costs time, not truth; whoever uses an entry
checks the header that it points to and rebuilds the index when it does not fit.

On disk: ``.index`` holds (u32 offset relative to the segment's base, u32 position),
``.timeindex`` (i64 largest timestamp in the segment up to and including that batch, µs;
u32 relative offset), little-endian, one entry of each per indexed batch. The last batch
of a closed segment always has one, so a short index shows.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right

INDEX_INTERVAL_BYTES = 4096
"""A batch gets an entry when this much log lies between it and the last entry."""

_OFFSET_ENTRY = struct.Struct("<II")
_TIME_ENTRY = struct.Struct("<qI")


class SparseIndex:
    """The entries of one segment, in parallel arrays."""

    __slots__ = ("_maxima", "_positions", "_relative", "saved")

    def __init__(self) -> None:
        self._relative = array("I")
        self._positions = array("I")
        self._maxima = array("q")
        self.saved = 0
        """Entries that are in the files."""

    def __len__(self) -> int:
        return len(self._relative)

    @property
    def last_position(self) -> int:
        """Position of the last indexed batch, −1 if there is none."""
        return self._positions[-1] if self._positions else -1

    @property
    def last_maximum(self) -> int | None:
        """Largest timestamp up to the last indexed batch. µs."""
        return self._maxima[-1] if self._maxima else None

    def note(self, relative: int, position: int, maximum: int, *, always: bool = False) -> None:
        """Offers a batch; it gets an entry if the interval has passed or `always`."""
        if self._positions:
            last = self._positions[-1]
            if position == last or (position - last < INDEX_INTERVAL_BYTES and not always):
                return
        self._relative.append(relative)
        self._positions.append(position)
        self._maxima.append(maximum)

    def position_at_or_before(self, relative: int) -> int:
        """Where to start looking for a relative offset; 0 when no entry lies before it."""
        at = bisect_right(self._relative, relative) - 1
        return self._positions[at] if at >= 0 else 0

    def position_before_time(self, timestamp_us: int) -> int:
        """Where to start looking for the first batch that reaches a timestamp."""
        at = bisect_left(self._maxima, timestamp_us) - 1
        return self._positions[at] if at >= 0 else 0

    def cut(self, position: int) -> None:
        """Forgets the batches from `position` on."""
        keep = bisect_left(self._positions, position)
        del self._relative[keep:], self._positions[keep:], self._maxima[keep:]
        self.saved = min(self.saved, keep)

    def unsaved(self) -> tuple[bytes, bytes]:
        """What the two files lack, as bytes."""
        places = range(self.saved, len(self._relative))
        return (
            b"".join(_OFFSET_ENTRY.pack(self._relative[i], self._positions[i]) for i in places),
            b"".join(_TIME_ENTRY.pack(self._maxima[i], self._relative[i]) for i in places),
        )

    @classmethod
    def load(cls, offsets: bytes, times: bytes, end_position: int) -> SparseIndex | None:
        """The index that two files hold, up to `end_position`; None if they make no sense."""
        index = cls()
        count = min(len(offsets) // _OFFSET_ENTRY.size, len(times) // _TIME_ENTRY.size)
        pairs = _OFFSET_ENTRY.iter_unpack(offsets[: count * _OFFSET_ENTRY.size])
        triples = _TIME_ENTRY.iter_unpack(times[: count * _TIME_ENTRY.size])
        before = (-1, -1, None)
        for (relative, position), (maximum, same) in zip(pairs, triples, strict=True):
            if position >= end_position:
                break
            if same != relative or relative <= before[0] or position <= before[1]:
                return None
            if before[2] is not None and maximum < before[2]:
                return None
            before = (relative, position, maximum)
            index._relative.append(relative)
            index._positions.append(position)
            index._maxima.append(maximum)
        index.saved = len(index)
        return index

    @property
    def saved_bytes(self) -> tuple[int, int]:
        """Where the unsaved entries go in the two files. Bytes."""
        return self.saved * _OFFSET_ENTRY.size, self.saved * _TIME_ENTRY.size

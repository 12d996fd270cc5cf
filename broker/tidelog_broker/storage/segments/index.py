"""Sparse indexes of a segment: offset → position and timestamp → offset.

Both are caches (DESIGN 4.1): they say where a walk over the batch headers starts, never what is
there. A missing, short or wrong index costs time, but never makes a result wrong.

On disk, little-endian, each file has one entry for each indexed batch: ``.index`` (u32 offset
relative to the segment's base, u32 position), ``.timeindex`` (i64 largest timestamp in
the segment up to and including that batch, µs; u32 relative offset; u32 check). The
check is a CRC-32C over all entries of both files so far; it begins with the segment's base
offset. If an entry's check holds, all entries up to it are right.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right

from tidelog.records.checksum import crc32c

INDEX_INTERVAL_BYTES = 32 << 10
"""A batch gets an entry if it lies at least this far behind the last indexed batch."""

RELATIVE_OFFSET_MAX = (1 << 32) - 1
"""Largest offset relative to the segment's base, which an index entry can hold."""

_OFFSET_ENTRY = struct.Struct("<II")

_TIME_ENTRY = struct.Struct("<qI")

_CHECK = struct.Struct("<I")

_TIME_ENTRY_BYTES = _TIME_ENTRY.size + _CHECK.size

_ENTRY_BYTES_IN_MEMORY = 16


class SparseIndex:
    """The entries of one segment, in parallel arrays."""

    __slots__ = ("_check", "_maxima", "_positions", "_relative", "saved", "stale")

    def __init__(self, base_offset: int) -> None:
        self._relative = array("I")
        self._positions = array("I")
        self._maxima = array("q")
        self._check = crc32c(base_offset.to_bytes(8, "little"))
        """The check of the last saved entry."""
        self.saved = 0
        """Number of entries that are in the files."""
        self.stale = False
        """The files hold more than the saved entries, and the rest of their content is wrong."""

    def __len__(self) -> int:
        return len(self._relative)

    @property
    def memory_bytes(self) -> int:
        """The approximate size in memory."""
        return 400 + _ENTRY_BYTES_IN_MEMORY * len(self)

    @property
    def last_position(self) -> int:
        """Position of the last indexed batch; −1 if there is none."""
        return self._positions[-1] if self._positions else -1

    @property
    def last_maximum(self) -> int | None:
        """Largest timestamp up to the last indexed batch. µs."""
        return self._maxima[-1] if self._maxima else None

    def note(self, relative: int, position: int, maximum: int, *, always: bool = False) -> None:
        """Adds an entry for a batch if the interval since the last entry has passed, or if `always`."""
        if self._positions:
            last = self._positions[-1]
            if position <= last or (position - last < INDEX_INTERVAL_BYTES and not always):
                return
        self._relative.append(relative)
        self._positions.append(position)
        self._maxima.append(maximum)

    def position_at_or_before(self, relative: int) -> int:
        """The position where a search for a relative offset starts; 0 if no entry lies before it."""
        at = bisect_right(self._relative, relative) - 1
        return self._positions[at] if at >= 0 else 0

    def position_before_time(self, timestamp_us: int) -> int:
        """The position where a search for the first batch that reaches a timestamp starts."""
        at = bisect_left(self._maxima, timestamp_us) - 1
        return self._positions[at] if at >= 0 else 0

    def position_at_most(self, position: int) -> int:
        """The last position of an indexed batch that is not behind a position; 0 if there is none."""
        at = bisect_right(self._positions, position) - 1
        return self._positions[at] if at >= 0 else 0

    def position_after(self, position: int) -> int | None:
        """The position of the next indexed batch behind a position; None if there is none."""
        at = bisect_right(self._positions, position)
        return self._positions[at] if at < len(self._positions) else None

    def extend_from(self, other: SparseIndex, position: int) -> None:
        """Appends the entries of `other` from a position on."""
        start = bisect_left(other._positions, position)
        self._relative += other._relative[start:]
        self._positions += other._positions[start:]
        self._maxima += other._maxima[start:]

    def unsaved(self) -> tuple[bytes, bytes, int]:
        """The entries that the two files lack, as bytes, and the check to pass to `was_saved`."""
        offsets, times, check = bytearray(), bytearray(), self._check
        for i in range(self.saved, len(self._relative)):
            place = _OFFSET_ENTRY.pack(self._relative[i], self._positions[i])
            time = _TIME_ENTRY.pack(self._maxima[i], self._relative[i])
            check = crc32c(place + time, check)
            offsets += place
            times += time
            times += _CHECK.pack(check)
        return bytes(offsets), bytes(times), check

    def was_saved(self, check: int) -> None:
        """Records that all entries are in the files."""
        self.saved, self._check, self.stale = len(self._relative), check, False

    @property
    def saved_bytes(self) -> tuple[int, int]:
        """The positions of the unsaved entries in the two files. Bytes."""
        return self.saved * _OFFSET_ENTRY.size, self.saved * _TIME_ENTRY_BYTES

    @classmethod
    def load(cls, base_offset: int, offsets: bytes, times: bytes, end_position: int) -> SparseIndex:
        """Reads the entries of a segment that ends at `end_position`, up to the first wrong check."""
        index = cls(base_offset)
        check = index._check
        count = min(len(offsets) // _OFFSET_ENTRY.size, len(times) // _TIME_ENTRY_BYTES)
        for number in range(count):
            at, time_at = number * _OFFSET_ENTRY.size, number * _TIME_ENTRY_BYTES
            place = offsets[at : at + _OFFSET_ENTRY.size]
            time = times[time_at : time_at + _TIME_ENTRY.size]
            found = crc32c(place + time, check)
            relative, position = _OFFSET_ENTRY.unpack(place)
            if found != _CHECK.unpack_from(times, time_at + _TIME_ENTRY.size)[0] or position >= end_position:
                break
            check = found
            index._relative.append(relative)
            index._positions.append(position)
            index._maxima.append(_TIME_ENTRY.unpack(time)[0])
        index.saved, index._check = len(index), check
        index.stale = (len(offsets), len(times)) != index.saved_bytes
        return index

"""Sparse indexes of a segment: offset → position and timestamp → offset.

Both are caches (DESIGN 4.1): they say where to start walking the batch headers, never
what is there. Missing, short or wrong ones cost time, not truth.

On disk, little-endian, one entry of each for an indexed batch: ``.index`` (u32 offset
relative to the segment's base, u32 position), ``.timeindex`` (i64 largest timestamp in
the segment up to and including that batch, µs; u32 relative offset; u32 check). The
check is a CRC-32C that goes on from entry to entry, over the entries of both files,
beginning with the segment's base offset: what holds is right as a whole up to there.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right

from tidelog.records.checksum import crc32c

INDEX_INTERVAL_BYTES = 32 << 10
"""A batch gets an entry when this much log lies between it and the last entry."""

RELATIVE_OFFSET_MAX = (1 << 32) - 1
"""Offsets in a segment are kept relative to its base."""

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
        """Entries that are in the files."""
        self.stale = False
        """The files hold more than the saved entries, and that is wrong."""

    def __len__(self) -> int:
        return len(self._relative)

    @property
    def memory_bytes(self) -> int:
        """About."""
        return 400 + _ENTRY_BYTES_IN_MEMORY * len(self)

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
            if position <= last or (position - last < INDEX_INTERVAL_BYTES and not always):
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

    def position_after(self, position: int) -> int | None:
        """The next indexed batch behind a position."""
        at = bisect_right(self._positions, position)
        return self._positions[at] if at < len(self._positions) else None

    def extend_from(self, other: SparseIndex, position: int) -> None:
        """Takes over the entries of `other` from a position on."""
        start = bisect_left(other._positions, position)
        self._relative += other._relative[start:]
        self._positions += other._positions[start:]
        self._maxima += other._maxima[start:]

    def unsaved(self) -> tuple[bytes, bytes, int]:
        """What the two files lack, as bytes, and the check to give to `was_saved`."""
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
        """All entries are in the files."""
        self.saved, self._check, self.stale = len(self._relative), check, False

    @property
    def saved_bytes(self) -> tuple[int, int]:
        """Where the unsaved entries go in the two files. Bytes."""
        return self.saved * _OFFSET_ENTRY.size, self.saved * _TIME_ENTRY_BYTES

    @classmethod
    def load(cls, base_offset: int, offsets: bytes, times: bytes, end_position: int) -> SparseIndex:
        """What two files hold of a segment that ends at `end_position`, as far as the checks hold."""
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

"""The reader of a partition's log: verified batches by offset and by time.

Any number of threads may read at the same time, beside a writer. Neighbours: batches come from `tail_cache`
or from `segments.reading`; `damage` refuses ranges that cannot be read.
"""

from __future__ import annotations

from bisect import bisect_right

from tidelog.errors import DataCorrupt, OffsetOutOfRange
from tidelog_broker.storage.log.damage import LogDamage
from tidelog_broker.storage.log.state import LogState
from tidelog_broker.storage.segments.reading import Chunk, first_at_time, read_chunk
from tidelog_broker.storage.segments.sizes import edge_after_bytes


class LogReader:
    """Reads the batches of one log. Offsets are of records; sizes are bytes."""

    __slots__ = ("_damage", "_state")

    def __init__(self, state: LogState, damage: LogDamage) -> None:
        self._state = state
        self._damage = damage

    def read_cached(self, offset: int, bytes_max: int, limit: int) -> Chunk | None:
        """Batches from memory; the first begins at `offset`. None: not cached."""
        return self._state.tail.read(offset, bytes_max, limit)

    def is_cached(self, offset: int) -> bool:
        """Whether a batch that begins at `offset` is in memory."""
        return self._state.tail.holds(offset)

    def read(
        self, offset: int, bytes_max: int, limit: int, place: tuple[int, int] | None = None
    ) -> Chunk | None:
        """Verified whole batches below `limit`; the first holds `offset`. None: there is none.

        Returns about `bytes_max` bytes, but at least one batch. `place` is the hint of an earlier
        chunk. Raises `OffsetOutOfRange` below the LSO, and `DataCorrupt` for a range whose
        bytes fail their checks.
        """
        self._refuse_below_start(offset)
        return self._read(offset, bytes_max, limit, place)

    def read_stored(self, offset: int, bytes_max: int, limit: int) -> Chunk | None:
        """Like `read`, for another replica: also returns batches below the LSO, if they are still stored."""
        return self._read(offset, bytes_max, limit, None)

    def find_time(self, timestamp_us: int, limit: int) -> int | None:
        """The offset of the first record below `limit` at or after a time; None: no such record yet (F7)."""
        found = first_at_time(self._state.segments, timestamp_us, self._state.start_offset)
        return found if found is not None and found < limit else None

    def after_bytes(self, offset: int, bytes_max: int, limit: int) -> int:
        """The edge of a batch behind about `bytes_max` bytes from `offset` on, at least one batch.

        `limit` if fewer bytes are below it. Raises `OffsetOutOfRange` below the LSO, and `DataCorrupt` if
        `offset` is in a range that cannot be read.
        """
        self._refuse_below_start(offset)
        if offset >= limit:
            return offset
        segments = self._state.segments
        at = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
        self._damage.refuse(offset)
        try:
            try:
                found = edge_after_bytes(segments[at:], offset, bytes_max)
            except DataCorrupt:
                self._damage.map_segment(segments[at])
                self._damage.refuse(offset)
                found = edge_after_bytes(segments[at:], offset, bytes_max)
        except FileNotFoundError:
            self._refuse_below_start(offset)
            raise DataCorrupt(f"a segment behind offset {offset} is gone", offset=offset) from None
        return min(found, limit)

    def bytes_from(self, offset: int) -> int:
        """About how many bytes lie from `offset` to the end.

        The estimate is rather too high, because no index is loaded.
        """
        total = 0
        for segment in reversed(self._state.segments):
            total += segment.size
            if segment.base_offset <= offset:
                break
        active = self._state.active
        if active.base_offset < offset and active.size:
            return active.size - active.index.position_at_or_before(offset - active.base_offset)
        return 0 if offset >= active.next_offset else total

    def _read(self, offset: int, bytes_max: int, limit: int, place: tuple[int, int] | None) -> Chunk | None:
        if offset >= min(limit, self._state.end_offset):
            return None
        segments = self._state.segments
        at = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
        if at < 0:
            raise DataCorrupt(f"no segment holds offset {offset}", offset=offset)
        self._damage.refuse(offset)
        segment = segments[at]
        try:
            try:
                return read_chunk(segment, offset, bytes_max, limit, place)
            except DataCorrupt:
                # Scans the file once, to find the readable batches after the damage.
                self._damage.map_segment(segment)
                self._damage.refuse(offset)
                return read_chunk(segment, offset, bytes_max, limit, None)
        except FileNotFoundError:
            self._refuse_below_start(offset)
            raise DataCorrupt(f"{segment.path} is gone", offset=offset) from None

    def _refuse_below_start(self, offset: int) -> None:
        state = self._state
        if offset < state.start_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is below the log start offset {state.start_offset}",
                log_start_offset=state.start_offset,
                log_end_offset=state.end_offset,
            )

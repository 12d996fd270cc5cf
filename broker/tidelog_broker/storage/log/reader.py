"""The reading side of a partition's log: verified batches by offset and time, and where damage is known.

Any number of readers, beside a writer. Neighbours: `writer` adds what is to be read,
`tail_cache` and `reading` are the two ways in which batches come out again, `scan` maps
damage.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from tidelog.errors import DataCorrupt, OffsetOutOfRange
from tidelog_broker.storage.files.open_files import OpenFiles
from tidelog_broker.storage.folder.damage_list import save_damage
from tidelog_broker.storage.log.tail_cache import LogTail, TailCache
from tidelog_broker.storage.segments.reading import Chunk, first_at_time, read_chunk
from tidelog_broker.storage.segments.scan import DamagedRange, scan_segment
from tidelog_broker.storage.segments.segment import Segment

log = structlog.get_logger(__name__)

RANGES_TOLD_MAX: Final = 20
"""Damaged ranges in one line of the broker's log."""


class ReadableLog:
    """See the module. Offsets are of records; sizes are bytes."""

    __slots__ = (
        "_damage_saving", "_damaged", "_files", "_lock", "_tail", "folder", "segments", "start_offset",
    )  # fmt: skip

    def __init__(
        self, files: OpenFiles, cache: TailCache, folder: str, segments: list[Segment], start_offset: int
    ) -> None:
        self._files = files
        self.folder = folder
        self._damage_saving = threading.Lock()
        """Over the list of damage on disk. Taken before `_lock`."""
        self._tail = LogTail(cache)
        self._lock = threading.Lock()
        """Over what readers and a flush take from the writer; held for moments. Taken last."""
        self.segments = segments
        """Oldest first; the last is the active one; never empty. Replaced, never changed."""
        self.start_offset = start_offset
        """LSO."""
        self.damaged = []

    @property
    def damaged(self) -> list[DamagedRange]:
        """What is known to be unreadable. Replaced, never changed."""
        return self._damaged

    @damaged.setter
    def damaged(self, ranges: list[DamagedRange]) -> None:
        self._damaged = ranges
        if ranges:
            self._files.damaged_folders[self.folder] = None
        else:
            self._files.damaged_folders.pop(self.folder, None)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def end_offset(self) -> int:
        """LEO: the offset that the next record gets."""
        return self.segments[-1].next_offset

    @property
    def bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def bytes_from(self, offset: int) -> int:
        """About how many bytes lie from `offset` to the end; rather too many, as no index is loaded."""
        total = 0
        for segment in reversed(self.segments):
            total += segment.size
            if segment.base_offset <= offset:
                break
        active = self.active
        if active.base_offset < offset and active.size:
            return active.size - active.index.position_at_or_before(offset - active.base_offset)
        return 0 if offset >= active.next_offset else total

    def read_cached(self, offset: int, bytes_max: int, limit: int) -> Chunk | None:
        """Batches from memory, from one that begins at `offset` on; None: not cached."""
        return self._tail.read(offset, bytes_max, limit)

    def is_cached(self, offset: int) -> bool:
        """Whether a batch that begins at `offset` is in memory."""
        return self._tail.holds(offset)

    def read(
        self, offset: int, bytes_max: int, limit: int, place: tuple[int, int] | None = None
    ) -> Chunk | None:
        """Verified whole batches from the one that holds `offset` on, below `limit`; None: nothing there.

        About `bytes_max` bytes, but at least one batch. `place` is an earlier chunk's
        hint. Raises `OffsetOutOfRange` below the LSO and `DataCorrupt` for a range whose
        bytes fail their checks.
        """
        self._refuse_below_start(offset)
        return self._read(offset, bytes_max, limit, place)

    def read_stored(self, offset: int, bytes_max: int, limit: int) -> Chunk | None:
        """As `read`, for another replica: what lies below the LSO too, as long as it is there."""
        return self._read(offset, bytes_max, limit, None)

    def _read(self, offset: int, bytes_max: int, limit: int, place: tuple[int, int] | None) -> Chunk | None:
        if offset >= min(limit, self.end_offset):
            return None
        segments = self.segments
        at = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
        if at < 0:
            raise DataCorrupt(f"no segment holds offset {offset}", offset=offset)
        self._refuse_damaged(offset)
        segment = segments[at]
        try:
            try:
                return read_chunk(segment, offset, bytes_max, limit, place)
            except DataCorrupt:
                # The file is looked through once, so that what is readable behind the damage is found.
                self.map_damage(segment)
                self._refuse_damaged(offset)
                return read_chunk(segment, offset, bytes_max, limit, None)
        except FileNotFoundError:
            self._refuse_below_start(offset)
            raise DataCorrupt(f"{segment.path} is gone", offset=offset) from None

    def _refuse_below_start(self, offset: int) -> None:
        if offset < self.start_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is below the log start offset {self.start_offset}",
                log_start_offset=self.start_offset,
                log_end_offset=self.end_offset,
            )

    def _refuse_damaged(self, offset: int) -> None:
        for damage in self.damaged:
            if damage.start <= offset < damage.end:
                raise DataCorrupt(
                    f"offsets {damage.start}–{damage.end - 1} are damaged on this broker's disk; "
                    f"offset {damage.end} can be read",
                    damaged_start=damage.start,
                    damaged_end=damage.end,
                )

    def map_damage(self, segment: Segment) -> None:
        """Looks through a whole segment for what cannot be read; the broker's log says what is new.

        Reads past it are possible from then on, and the next start knows of it. Raises OSError.
        """
        history = self._tail.history
        found = scan_segment(segment)
        with self._damage_saving:
            with self._lock:
                if history != self._tail.history or segment not in self.segments:
                    return  # The log was cut meanwhile: what was seen is not there any more.
                others = [d for d in self.damaged if not segment.base_offset <= d.start < segment.next_offset]
                before, self.damaged = self.damaged, sorted([*others, *found.damaged])
                segment.adopt_index(found.index, found.bytes)
            if before == self.damaged:
                return
            with contextlib.suppress(OSError):
                # Then the next start finds it by itself.
                save_damage(self._files.files, self.folder, self.damaged)
        known = set(before)
        self._tell_damage([one for one in found.damaged if one not in known and not _is_within(one, before)])

    def know_damage(self, ranges: Iterable[DamagedRange]) -> None:
        """At a start: what earlier runs found and what this one did, as far as it is of this log.

        Raises OSError.
        """
        before = self.damaged
        self.damaged = [one for one in sorted(set(ranges)) if self.start_offset < one.end <= self.end_offset]
        if self.damaged != before:
            save_damage(self._files.files, self.folder, self.damaged)
        self._tell_damage(self.damaged)

    def _tell_damage(self, ranges: Sequence[DamagedRange]) -> None:
        if ranges:
            log.error(
                "rot was found on this broker's disk; these offsets cannot be read until they are healed",
                folder=self.folder, ranges=len(ranges),
                damaged=[list(one) for one in ranges[:RANGES_TOLD_MAX]],
            )  # fmt: skip

    def _forget_damage(self, end_offset: int) -> None:
        """Before what lies at `end_offset` and above goes: an entry must not speak for what comes there
        next. Raises OSError."""
        with self._damage_saving:
            with self._lock:
                # A look for damage that is under way sees what is about to go.
                self._tail.begin_history()
                before = self.damaged
                self.damaged = [damage for damage in before if damage.end <= end_offset]
            if before != self.damaged:
                save_damage(self._files.files, self.folder, self.damaged)

    def find_time(self, timestamp_us: int, limit: int) -> int | None:
        """The offset of the first record at or after a time, below `limit`; None: none yet (F7)."""
        found = first_at_time(self.segments, timestamp_us, self.start_offset)
        return found if found is not None and found < limit else None


def _is_within(damage: DamagedRange, known: Iterable[DamagedRange]) -> bool:
    """Whether it is what healing left of a range that was known."""
    return any(one.start <= damage.start and damage.end <= one.end for one in known)

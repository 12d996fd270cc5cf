"""The known damaged ranges of one log, in memory and on disk (DESIGN 4, 2c).

Neighbours: `segments.scan` finds damage, `folder.damage_list` is the list on disk, `reader` refuses to read
the ranges, and `healer` replaces them by sound batches.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from tidelog.errors import DataCorrupt
from tidelog_broker.storage.folder.damage_list import save_damage
from tidelog_broker.storage.log.state import LogState
from tidelog_broker.storage.segments.scan import DamagedRange, scan_segment
from tidelog_broker.storage.segments.segment import Segment

log = structlog.get_logger(__name__)

RANGES_LOGGED_MAX: Final = 20
"""The most damaged ranges in one line of the broker's log."""


class LogDamage:
    """The damaged ranges of one log: finds, refuses, saves and forgets them."""

    __slots__ = ("_state", "saving")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self.saving = threading.Lock()
        """Protects the list of damage on disk. Taken before `LogState.lock`."""

    def refuse(self, offset: int) -> None:
        """Raises `DataCorrupt` if `offset` lies in a range that is known to be damaged."""
        for damage in self._state.damaged:
            if damage.start <= offset < damage.end:
                raise DataCorrupt(
                    f"offsets {damage.start}–{damage.end - 1} are damaged on this broker's disk; "
                    f"offset {damage.end} can be read",
                    damaged_start=damage.start,
                    damaged_end=damage.end,
                )

    def map_segment(self, segment: Segment) -> None:
        """Scans a whole segment for damage, and logs the damage that is new.

        After that, reads past the damage are possible, and the next start knows the damage. Raises OSError.
        """
        state = self._state
        history = state.tail.history
        found = scan_segment(segment)
        with self.saving:
            with state.lock:
                if history != state.tail.history or segment not in state.segments:
                    return  # The log was cut during the scan, so its result is outdated.
                others = [
                    d for d in state.damaged if not segment.base_offset <= d.start < segment.next_offset
                ]
                before, state.damaged = state.damaged, sorted([*others, *found.damaged])
                segment.adopt_index(found.index, found.bytes)
            if before == state.damaged:
                return
            with contextlib.suppress(OSError):
                # Without the list, the next start finds the damage only when a read meets it.
                save_damage(state.files.files, state.folder, state.damaged)
        known = set(before)
        self._warn([one for one in found.damaged if one not in known and not _is_within(one, before)])

    def know(self, ranges: Iterable[DamagedRange]) -> None:
        """Sets the ranges at a start: those that earlier runs found and those that this start found.

        Keeps only ranges that lie in this log. Raises OSError.
        """
        state = self._state
        before = state.damaged
        state.damaged = [
            one for one in sorted(set(ranges)) if state.start_offset < one.end <= state.end_offset
        ]
        if state.damaged != before:
            save_damage(state.files.files, state.folder, state.damaged)
        self._warn(state.damaged)

    def forget_from(self, end_offset: int) -> None:
        """Removes ranges that end above `end_offset`, before the records from there on are removed.

        An entry must not describe the records that are written there next. Raises OSError.
        """
        state = self._state
        with self.saving:
            with state.lock:
                # The result of a running scan becomes invalid: it reads records that will be removed.
                state.tail.begin_history()
                before = state.damaged
                state.damaged = [damage for damage in before if damage.end <= end_offset]
            if before != state.damaged:
                save_damage(state.files.files, state.folder, state.damaged)

    def _warn(self, ranges: Sequence[DamagedRange]) -> None:
        if ranges:
            log.error(
                "data on this broker's disk is damaged: these offsets cannot be read until they are healed",
                folder=self._state.folder, ranges=len(ranges),
                damaged=[list(one) for one in ranges[:RANGES_LOGGED_MAX]],
            )  # fmt: skip


def _is_within(damage: DamagedRange, known: Iterable[DamagedRange]) -> bool:
    """Whether `damage` is the rest of a known range that was partly healed."""
    return any(one.start <= damage.start and damage.end <= one.end for one in known)

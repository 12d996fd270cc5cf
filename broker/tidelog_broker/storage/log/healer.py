"""The healer of a partition's log: replaces damaged batches by sound batches (DESIGN 4, 2c).

It works beside appends and reads, and keeps them off only for the moment in which the new file takes the
name of the old file. Neighbours: `healing` has the steps, `damage` has the ranges.
"""

from __future__ import annotations

from bisect import bisect_right

from tidelog_broker.storage.files.protocol import Bytes
from tidelog_broker.storage.log.damage import LogDamage
from tidelog_broker.storage.log.guarding import LogGuard
from tidelog_broker.storage.log.healing import check_for_range, find_hole, write_healed
from tidelog_broker.storage.log.state import LogState
from tidelog_broker.storage.segments.scan import DamagedRange


class LogHealer:
    """Repairs the damaged ranges of one log."""

    __slots__ = ("_damage", "_guard", "_state")

    def __init__(self, state: LogState, damage: LogDamage, guard: LogGuard) -> None:
        self._state = state
        self._damage = damage
        self._guard = guard

    def heal(self, damage: DamagedRange, data: Bytes, leader_epoch: int) -> int | None:
        """Replaces damaged batches by another replica's batches, from the beginning of the range on (2c).

        Returns the offset where the new batches end, durably. None: nothing was done, because the segment
        is not closed and on disk yet, or because the damage found there is not `damage`. `leader_epoch`:
        no batch may have a later epoch. Raises `DataCorrupt` and `OutOfSequence` for batches that do not
        belong there, and OSError; then nothing has changed.
        """
        state = self._state
        history, segments = state.tail.history, state.segments
        at = bisect_right(segments, damage.start, key=lambda segment: segment.base_offset) - 1
        if at < 0 or damage not in state.damaged:
            return None
        segment = segments[at]
        if not segment.closed or state.durable_offset < segment.next_offset:
            return None
        end = check_for_range(data, segment, state.epochs, damage, leader_epoch)
        hole = find_hole(segment, damage)
        if hole is None:
            self._damage.map_segment(segment)
            return None
        files, path = state.files.files, f"{segment.path}.tmp"
        size = write_healed(files, path, segment, hole, data, complete=end == damage.end)
        with state.syncing, state.writing:
            if state.closed or history != state.tail.history or segment not in state.segments:
                files.remove(path)
                return None
            files.rename(path, segment.path)
            segment.replaced(size)
        # The new name must be durable before the list forgets the damage. Writers do not wait for this.
        files.sync_dir(state.folder)
        self._damage.map_segment(segment)
        if self._guard.has_gaps:
            self._guard.rebuild_behind(damage.start)
        return end

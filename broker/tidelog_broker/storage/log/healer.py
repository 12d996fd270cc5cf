"""The side of a partition's log that mends: sound batches in the place of damaged ones (DESIGN 4, 2c).

Beside appends and readers, which it keeps off for the moment only in which the new file takes the
old one's name. Neighbours: `healing` has the steps, `reader` finds damage and knows of it.
"""

from __future__ import annotations

from bisect import bisect_right

from tidelog_broker.storage.files.protocol import Bytes
from tidelog_broker.storage.guard.snapshots import remove_guard_snapshots
from tidelog_broker.storage.log.healing import check_for_range, find_hole, write_healed
from tidelog_broker.storage.log.writer import WritableLog
from tidelog_broker.storage.segments.scan import DamagedRange


class HealableLog(WritableLog):
    """See the module."""

    __slots__ = ()

    def heal(self, damage: DamagedRange, data: Bytes, leader_epoch: int) -> int | None:
        """Puts another replica's batches in the place of damaged ones, from the range's beginning on (2c).

        Where they end, durably; None: nothing was done, because the segment is not closed and on
        disk yet, or something else than this damage was found there. `leader_epoch`: no batch is of
        a later one. Raises `DataCorrupt` and `OutOfSequence` for what does not belong there,
        and OSError; nothing has changed then.
        """
        history, segments = self._tail.history, self.segments
        at = bisect_right(segments, damage.start, key=lambda segment: segment.base_offset) - 1
        if at < 0 or damage not in self.damaged:
            return None
        segment = segments[at]
        if not segment.closed or self.durable_offset < segment.next_offset:
            return None
        end = check_for_range(data, segment, self.epochs, damage, leader_epoch)
        hole = find_hole(segment, damage)
        if hole is None:
            self.map_damage(segment)
            return None
        files, path = self._files.files, f"{segment.path}.tmp"
        size = write_healed(files, path, segment, hole, data, complete=end == damage.end)
        with self._syncing, self._writing:
            if self._closed or history != self._tail.history or segment not in self.segments:
                files.remove(path)
                return None
            files.rename(path, segment.path)
            segment.replaced(size)
        # Before the list forgets the damage. Writers do not wait for it.
        files.sync_dir(self.folder)
        self.map_damage(segment)
        if self._guard_has_gaps:
            self._forget_guard(damage.start)
        return end

    def _forget_guard(self, offset: int) -> None:
        """The next append has it made again, of all batches; what was saved behind `offset` lacks some."""
        with self._syncing, self._writing:
            with self._lock:
                self._unsynced.drop_snapshots()
                self._guard, self._guard_has_gaps = None, False
                self._snapshots.log_was_cut()
            remove_guard_snapshots(self._files, self.folder, above=offset)

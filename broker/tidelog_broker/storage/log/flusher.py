"""The flusher of a partition's log: makes appended batches durable and moves the recovery point.

One flush runs at a time, beside appends. Neighbours: `unsynced` has the files that a flush syncs,
`directory.store` flushes many logs at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tidelog_broker.storage.log.guarding import LogGuard
from tidelog_broker.storage.log.state import LogState
from tidelog_broker.storage.log.unsynced import Unsynced
from tidelog_broker.storage.points import RecoveryPoint


class LogFlusher:
    """Makes one log durable."""

    __slots__ = ("_guard", "_state")

    def __init__(self, state: LogState, guard: LogGuard) -> None:
        self._state = state
        self._guard = guard

    @property
    def unsynced_bytes(self) -> int:
        """About how many bytes a sync would make durable."""
        point = self._state.recovery_point
        behind = [segment for segment in self._state.segments if segment.base_offset >= point.segment_base]
        return max(0, sum(segment.size for segment in behind) - point.position)

    @property
    def unsynced(self) -> bool:
        """Whether records or their history wait for a flush."""
        return self._state.unsynced.any_records

    def sync(self) -> RecoveryPoint:
        """Makes everything durable that was appended before the call; returns the new recovery point.

        Raises OSError. After that, the state of the unsynced part is unknown, and the
        broker must stop (DESIGN 4.3): every later call raises `StorageFailure`.
        """
        with self.flushing() as unsynced:
            unsynced.sync()
        return self._state.recovery_point

    @contextlib.contextmanager
    def flushing(self) -> Iterator[Unsynced]:
        """Surrounds a flush: the `with` block must make durable everything that was appended before it.

        The block chooses how: `sync` flushes file by file, `LogStore.sync` flushes many logs at once. An
        OSError in the block is a failed flush, as in `sync`.
        """
        state = self._state
        with state.syncing:
            state.refuse_failed()
            with state.lock:
                # A closed log has released its unsynced files, so its recovery point stays.
                unsynced, active = state.take_unsynced(), state.segments[-1]
                point = state.recovery_point
                if not state.closed:
                    point = RecoveryPoint(active.next_offset, active.base_offset, active.size)
            try:
                yield unsynced
            except OSError as error:
                state.failed = error
                raise
            unsynced.release()
            if unsynced.epoch is not None:
                state.durable_epoch = unsynced.epoch
            state.recovery_point = point
            if unsynced.snapshot_offset is not None:
                self._guard.snapshots.synced(unsynced.snapshot_offset)

"""The flusher of a partition's log: what was appended becomes durable, and the recovery point moves.

One flush runs at a time, beside appends. Neighbours: `unsynced` is what a flush syncs, `directory.store`
flushes many logs at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tidelog_broker.storage.log.guarding import LogGuard
from tidelog_broker.storage.log.state import LogState
from tidelog_broker.storage.log.unsynced import Unsynced
from tidelog_broker.storage.points import RecoveryPoint


class LogFlusher:
    """Flushes of one log."""

    __slots__ = ("_guard", "_state")

    def __init__(self, state: LogState, guard: LogGuard) -> None:
        self._state = state
        self._guard = guard

    @property
    def unsynced_bytes(self) -> int:
        """Bytes that a sync would make durable, about."""
        point = self._state.recovery_point
        behind = [segment for segment in self._state.segments if segment.base_offset >= point.segment_base]
        return max(0, sum(segment.size for segment in behind) - point.position)

    @property
    def unsynced(self) -> bool:
        """Whether records or their history wait for a flush."""
        return self._state.unsynced.any_records

    def sync(self) -> RecoveryPoint:
        """Makes everything durable that was appended before the call; returns the new recovery point.

        Raises OSError; after that nothing about the unsynced part is known, and the
        broker must stop (DESIGN 4.3): every later call raises `StorageFailure`.
        """
        with self.flushing() as unsynced:
            unsynced.sync()
        return self._state.recovery_point

    @contextlib.contextmanager
    def flushing(self) -> Iterator[Unsynced]:
        """What was appended before the `with` block is durable once it ends: the block makes it so.

        With whatever it likes: `sync` flushes file by file, `LogStore.sync` many logs at once. An
        OSError in the block is a failed flush, see `sync`.
        """
        state = self._state
        with state.syncing:
            state.refuse_failed()
            with state.lock:
                # A closed log has let go of what was unsynced, and its recovery point stays.
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

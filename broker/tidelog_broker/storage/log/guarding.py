"""The append guard of one log: made from the log when it is first asked for, saved, made again after a cut.

Neighbours: `storage.guard` has the guard itself and its snapshots, `writer` asks it about each batch.
"""

from __future__ import annotations

from tidelog_broker.storage.guard.append_guard import AppendGuard
from tidelog_broker.storage.guard.snapshots import GuardSnapshots, remove_guard_snapshots
from tidelog_broker.storage.log.state import LogState


class LogGuard:
    """The guard of one log, if it is in memory, and its snapshots."""

    __slots__ = ("_guard", "_state", "has_gaps", "snapshots")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._guard: AppendGuard | None = None
        """None: not asked for yet, or the log was cut."""
        self.has_gaps = False
        """The guard lacks what damaged batches said; it is made again once they are healed."""
        self.snapshots = GuardSnapshots(state.files, state.folder)

    @property
    def loaded(self) -> AppendGuard | None:
        """The append guard, if it is in memory."""
        return self._guard

    @property
    def current(self) -> AppendGuard:
        """The append guard, brought up to the log's end when first asked for."""
        guard = self._guard
        if guard is None:
            state = self._state
            with state.writing:
                if self._guard is None:
                    self._guard, whole = self.snapshots.rebuild(state.segments, state.config.guard)
                    self.has_gaps = not whole
                guard = self._guard
        return guard

    def follow_config(self) -> None:
        """Takes the limits of the log's settings."""
        if self._guard is not None:
            self._guard.set_limits(self._state.config.guard)

    def save(self) -> None:
        """Snapshots the guard, if it changed and the disk takes it; durable with the next sync."""
        with self._state.writing:
            if self._guard is not None and self.snapshots.outdated:
                self.write_snapshot(self._guard)

    def write_snapshot(self, guard: AppendGuard) -> None:
        """Snapshots the guard, if the disk takes it; durable with the next sync. Under `writing`."""
        held = self.snapshots.write(guard)
        if held is not None:
            with self._state.lock:
                self._state.unsynced.add_snapshot(guard.offset, held)

    def forget(self) -> None:
        """The log is being cut: the next append has the guard made again."""
        self._guard = None

    def rebuild_behind(self, offset: int) -> None:
        """The next append makes the guard again, of all batches; snapshots behind `offset` lack some."""
        state = self._state
        with state.syncing, state.writing:
            with state.lock:
                state.unsynced.drop_snapshots()
                self._guard, self.has_gaps = None, False
                self.snapshots.log_was_cut()
            remove_guard_snapshots(state.files, state.folder, above=offset)

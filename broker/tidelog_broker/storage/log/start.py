"""The start of a partition's log (R11): moves the log start offset, then removes whole segments below it.

Neighbours: `directory.retention` says how far the start should move, `directory.checkpoint` makes it durable.
"""

from __future__ import annotations

from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.log.flusher import LogFlusher
from tidelog_broker.storage.log.guarding import LogGuard
from tidelog_broker.storage.log.state import LogState
from tidelog_broker.storage.segments.segment import Segment


class LogStart:
    """The start of one log, and the files below it."""

    __slots__ = ("_flusher", "_guard", "_state")

    def __init__(self, state: LogState, guard: LogGuard, flusher: LogFlusher) -> None:
        self._state = state
        self._guard = guard
        self._flusher = flusher

    def advance(self, offset: int) -> None:
        """Moves the LSO forward; it must be saved before. The files stay until `remove_files_below`."""
        state = self._state
        with state.lock:
            state.start_offset = max(state.start_offset, min(offset, state.end_offset))

    @property
    def has_files_below(self) -> bool:
        """Whether there are segments that `remove_files_below` would remove."""
        segments = self._state.segments
        return len(segments) > 1 and segments[0].next_offset <= self._state.start_offset

    def remove_files_below(self) -> int:
        """Unlinks segments wholly below the LSO, oldest first; returns their size in bytes.

        The LSO must be durable before (DESIGN 4, 2b). Raises OSError; then the segments that are left
        stay in the log, so the same call may be repeated. Raises `StorageFailure` if a flush fails.
        """
        state = self._state
        end = max(
            (s.next_offset for s in state.segments[:-1] if s.next_offset <= state.start_offset), default=0
        )
        if end and self._guard.snapshots.durable_offset < end:
            # Saves what the guard learned from these segments, unless the disk has no room for it.
            with state.writing:
                self._guard.write_snapshot(self._guard.current)
            try:
                self._flusher.sync()
            except OSError as error:
                raise StorageFailure(f"{state.folder}: a flush failed ({error})") from error
        gone = self._release_files_below()
        for number, segment in enumerate(gone):
            try:
                segment.remove()
            except OSError:
                self._keep_again(gone[number:])
                raise
        return sum(segment.size for segment in gone)

    def _release_files_below(self) -> list[Segment]:
        """Takes segments wholly below the LSO out of the log. Raises OSError, and then changes nothing."""
        state = self._state
        with state.syncing, state.writing:
            segments = state.segments
            gone = [one for one in segments[:-1] if one.next_offset <= state.start_offset]
            if not gone:
                return []
            # The history keeps the epochs of all records in the first file, even of those below the start.
            kept = state.epochs.forget_below(segments[len(gone)].base_offset)
            if kept is not None:
                state.replace_epochs(kept)
            with state.lock:
                state.segments = segments[len(gone) :]
                state.damaged = [d for d in state.damaged if d.end > state.start_offset]
            for segment in gone:
                state.unsynced.drop_segment(segment)
            return gone

    def _keep_again(self, left: list[Segment]) -> None:
        """Returns segments that could not be unlinked to the log, unless the log now begins elsewhere."""
        state = self._state
        with state.syncing, state.writing, state.lock:
            if state.segments[0].base_offset == left[-1].next_offset:
                state.segments = [*left, *state.segments]

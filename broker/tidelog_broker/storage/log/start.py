"""Where a partition's log begins (R11): the log start offset moves, then whole segments below it are removed.

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
        """Moves the LSO forward, which is saved by then; the files stay until `remove_files_below`."""
        state = self._state
        with state.lock:
            state.start_offset = max(state.start_offset, min(offset, state.end_offset))

    @property
    def has_files_below(self) -> bool:
        """Whether `remove_files_below` has anything to do."""
        segments = self._state.segments
        return len(segments) > 1 and segments[0].next_offset <= self._state.start_offset

    def remove_files_below(self) -> int:
        """Unlinks segments wholly below the LSO, oldest first; their bytes.

        The LSO must be durable before (DESIGN 4, 2b). Raises OSError; what is left then stays
        a part of the log, so that the same call may be repeated. Raises `StorageFailure`.
        """
        state = self._state
        end = max(
            (s.next_offset for s in state.segments[:-1] if s.next_offset <= state.start_offset), default=0
        )
        if end and self._guard.snapshots.durable_offset < end:
            # What the guard knows of these segments is kept, unless the disk has no room for it.
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
        """Takes segments wholly below the LSO out of the log. Raises OSError, and then it has all of them."""
        state = self._state
        with state.syncing, state.writing:
            segments = state.segments
            gone = [one for one in segments[:-1] if one.next_offset <= state.start_offset]
            if not gone:
                return []
            # Of what the first file still holds the history tells the epoch, below the start as well.
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
        """What could not be unlinked is part of the log again, unless the log begins elsewhere by now."""
        state = self._state
        with state.syncing, state.writing, state.lock:
            if state.segments[0].base_offset == left[-1].next_offset:
                state.segments = [*left, *state.segments]

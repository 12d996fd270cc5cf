"""A follower: it stores what its leader sends, and campaigns when the leader falls silent.

A learner is a follower that never campaigns. Neighbours: `log` merges entries, `campaigning` comes next.
"""

from __future__ import annotations

from typing import assert_never

from tidelog_broker.core.raft.errors import LogForgotten
from tidelog_broker.core.raft.messages import (
    AppendRequest,
    AppendResponse,
    FromRaftLeader,
    HeartbeatRequest,
    HeartbeatResponse,
    SnapshotRequest,
)
from tidelog_broker.core.raft.state import RaftState
from tidelog_broker.core.raft.transitions import BecomeCandidate, Transition


class RaftFollower:
    """A follower or a learner in one term."""

    __slots__ = ("_silence", "_state", "_timeout")

    def __init__(self, state: RaftState) -> None:
        self._state = state
        self._silence = 0
        """Ticks since the last message from the leader."""
        self._timeout = state.election_timeout()
        """Ticks of silence after which it campaigns, if it may."""

    def tick(self) -> Transition | None:
        self._silence += 1
        if self._silence >= self._timeout and self._state.may_campaign:
            return BecomeCandidate(pre=True)
        return None

    @property
    def hears_leader(self) -> bool:
        """The last message from the leader is recent enough to refuse votes to other nodes (check-quorum)."""
        return self._silence < self._state.times.election

    def restart_timeout(self) -> None:
        """After a vote for another node, or when the leader's process is gone."""
        self._silence = 0
        self._timeout = self._state.election_timeout()

    def receive(self, message: FromRaftLeader) -> None:
        """A message from the leader of this term."""
        self._silence = 0
        match message:
            case AppendRequest():
                self._append(message)
            case HeartbeatRequest():
                self._heartbeat(message)
            case SnapshotRequest():
                self._restore(message)
            case _:
                assert_never(message)

    def _heartbeat(self, request: HeartbeatRequest) -> None:
        state, log = self._state, self._state.log
        if request.commit > log.last_index:
            raise LogForgotten(
                f"the metadata log here ends at entry {log.last_index}, and this broker "
                f"acknowledged entry {request.commit}"
            )
        log.commit = max(log.commit, request.commit)
        state.send(HeartbeatResponse(state.term, state.me, request.source, round=request.round))

    def _append(self, request: AppendRequest) -> None:
        log = self._state.log
        if request.previous_index < log.commit:
            # Committed entries are the same everywhere: this is an old message, or the leader does not know
            # yet how far this log reaches.
            self._acknowledge(request, log.commit)
        elif log.agrees(request.previous_index, request.previous_term):
            last = log.merge(request.previous_index, request.entries)
            log.commit = max(log.commit, min(request.commit, last))
            self._acknowledge(request, last)
        else:
            self._reject(request)

    def _reject(self, request: AppendRequest) -> None:
        state, log = self._state, self._state.log
        nearest = min(request.previous_index, log.last_index)
        index, term = log.last_possible_agreement(nearest, request.previous_term)
        state.send(
            AppendResponse(
                state.term,
                state.me,
                request.source,
                index=request.previous_index,
                rejected=True,
                hint_index=index,
                hint_term=term,
            )
        )

    def _restore(self, request: SnapshotRequest) -> None:
        log, snapshot = self._state.log, request.snapshot
        if snapshot.index > log.commit:
            if log.agrees(snapshot.index, snapshot.term):
                # This log has the entries already; the snapshot only says that they are committed.
                log.commit = snapshot.index
            else:
                log.restore(snapshot)
        self._acknowledge(request, log.commit)

    def _acknowledge(self, request: AppendRequest | SnapshotRequest, index: int) -> None:
        state = self._state
        state.send(AppendResponse(state.term, state.me, request.source, index=index))

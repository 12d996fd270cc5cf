"""A follower: takes what its leader sends, and wakes up when that stops.

Neighbours: `log` merges, `campaigning` is what it wakes up to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from tidelog_broker.core.raft.errors import LogForgotten
from tidelog_broker.core.raft.messages import (
    AppendRequest,
    AppendResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    SnapshotRequest,
)

if TYPE_CHECKING:
    from tidelog_broker.core.raft.node import RaftNode


class RaftFollower:
    """See the module. A learner is one that never wakes up."""

    __slots__ = ("_node", "_patience", "_silence")

    def __init__(self, node: RaftNode) -> None:
        self._node = node
        self._silence = 0
        """Ticks since its leader said something."""
        self._patience = node.patience()
        """Ticks of silence after which it campaigns, if it may."""

    def tick(self) -> None:
        self._silence += 1
        if self._silence >= self._patience and self._node.may_campaign:
            self._node.begin_campaign(pre=True)

    def saved(self) -> None:
        """Nothing waits for the disk but answers."""

    def leader_refused(self) -> None:
        """Its leader's process is gone: it campaigns soon."""
        self.wait_again()

    def hears_leader(self) -> bool:
        """Heard lately enough to stand by its leader (check-quorum)."""
        return self._silence < self._node.times.election

    def wait_again(self) -> None:
        self._silence = 0
        self._patience = self._node.patience()

    def hear(self, message: AppendRequest | HeartbeatRequest | SnapshotRequest) -> None:
        """The leader of this term says something."""
        self._silence = 0
        match message:
            case AppendRequest():
                self._append(message)
            case HeartbeatRequest():
                log = self._node.log
                if message.commit > log.last_index:
                    raise LogForgotten(
                        f"the metadata log here ends at entry {log.last_index}, and this broker "
                        f"acknowledged entry {message.commit}"
                    )
                log.commit = max(log.commit, message.commit)
                self._node.say(
                    HeartbeatResponse(self._node.term, self._node.me, message.source, round=message.round)
                )
            case SnapshotRequest():
                self._restore(message)
            case _:
                assert_never(message)

    def _append(self, request: AppendRequest) -> None:
        log = self._node.log
        if request.previous_index < log.commit:
            # What is committed is the same everywhere: an old message, or a leader that does not know yet.
            self._answer(request, log.commit)
        elif log.agrees(request.previous_index, request.previous_term):
            last = log.merge(request.previous_index, request.entries)
            log.commit = max(log.commit, min(request.commit, last))
            self._answer(request, last)
        else:
            nearest = min(request.previous_index, log.last_index)
            index, term = log.last_possible_agreement(nearest, request.previous_term)
            self._node.say(
                AppendResponse(
                    self._node.term,
                    self._node.me,
                    request.source,
                    index=request.previous_index,
                    rejected=True,
                    hint_index=index,
                    hint_term=term,
                )
            )

    def _restore(self, request: SnapshotRequest) -> None:
        log, snapshot = self._node.log, request.snapshot
        if snapshot.index > log.commit:
            if log.agrees(snapshot.index, snapshot.term):
                # The entries are here already; the image tells only that they are committed.
                log.commit = snapshot.index
            else:
                log.restore(snapshot)
        self._answer(request, log.commit)

    def _answer(self, request: AppendRequest | SnapshotRequest, index: int) -> None:
        self._node.say(AppendResponse(self._node.term, self._node.me, request.source, index=index))

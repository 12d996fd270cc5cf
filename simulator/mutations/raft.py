"""Bugs in the metadata log: votes, commits, and promises before they are on the disk (Raft, M1, M2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from msgspec.structs import replace

from simulator.mutations.plant import mutation, patched
from tidelog_broker.core.raft.leading import Leader
from tidelog_broker.core.raft.node import RaftNode
from tidelog_broker.core.raft.quorum import quorum_index
from tidelog_broker.core.raft.state import RaftState


@mutation("Raft 5.2", "votes")
def the_vote_is_forgotten_on_restart() -> Iterator[None]:
    begin = RaftNode.__init__

    def forget(self: RaftNode, me: Any, storage: Any, hard_state: Any, *rest: Any, **options: Any) -> None:
        begin(self, me, storage, hard_state._replace(vote=None), *rest, **options)

    with patched((RaftNode, "__init__", forget)):
        yield


@mutation("Raft 5.4.1")
def a_vote_is_given_to_a_shorter_log() -> Iterator[None]:
    def grants(request: Any, *, term: int, vote: Any, leader: Any, log: Any) -> bool:
        free = (
            request.term > term
            if request.pre
            else vote == request.source or (vote is None and leader is None)
        )
        return free and log.last_index > 0

    with mock.patch("tidelog_broker.core.raft.stepping.grants", grants):
        yield


@mutation("M1", "lost disks")
def an_empty_directory_votes() -> Iterator[None]:
    def grants(request: Any, *, term: int, vote: Any, leader: Any, log: Any) -> bool:
        free = (
            request.term > term
            if request.pre
            else vote == request.source or (vote is None and leader is None)
        )
        return free and (request.last_term, request.last_index) >= (log.last_term, log.last_index)

    def anybody(self: RaftNode, message: Any) -> None:
        # It also answers for the disk that it had before (M2).
        step(self, replace(message, target=self.me))

    step = RaftNode.step
    with (
        mock.patch("tidelog_broker.core.raft.stepping.grants", grants),
        patched((RaftNode, "step", anybody)),
    ):
        yield


@mutation("Raft 5.4.2", "votes")
def an_older_terms_entry_is_committed_by_count() -> Iterator[None]:
    def commit(self: Leader) -> Any:
        log = self._state.log
        reached = {peer: progress.match for peer, progress in self.progress.items()}
        reached[self._state.me] = log.saved_index
        log.commit = max(log.commit, quorum_index(self._state.configuration.voters, reached))
        return original(self)

    original = Leader._commit
    with patched((Leader, "_commit", commit)):
        yield


@mutation("Raft, persist first")
def an_answer_is_sent_before_it_is_on_disk() -> Iterator[None]:
    def at_once(self: RaftState, message: Any) -> None:
        self.outbox.send_now(message)

    with patched((RaftState, "send", at_once)):
        yield


@mutation("M2", "lost disks")
def a_voters_new_disk_is_taken_for_its_old_one() -> Iterator[None]:
    from tidelog_broker.model import Voter

    def forgetful(broker_id: int, directory_id: bytes) -> Voter:
        return Voter(broker_id, bytes([broker_id]) * 16)

    with mock.patch("tidelog_broker.quorum.quorum_controller.Voter", forgetful):
        yield

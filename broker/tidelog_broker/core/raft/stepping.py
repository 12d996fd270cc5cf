"""What a message does: whose word counts, by its term, and which role it is for.

Neighbours: `voting` says who gets a vote, the roles (`following`, `campaigning`, `leading`)
do what is meant for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from tidelog_broker.core.raft.campaigning import Campaign
from tidelog_broker.core.raft.following import RaftFollower
from tidelog_broker.core.raft.leading import Leader
from tidelog_broker.core.raft.messages import (
    AppendRequest,
    AppendResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    Message,
    SnapshotRequest,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog_broker.core.raft.voting import grants

if TYPE_CHECKING:
    from tidelog_broker.core.raft.node import RaftNode


def step(node: RaftNode, message: Message) -> None:
    """A message arrives."""
    if message.target != node.me:
        # Meant for an earlier disk of this broker (M2).
        return
    if message.term < node.term:
        _answer_from_the_past(node, message)
    elif message.term == node.term or _new_term(node, message):
        _handle(node, message)


def _new_term(node: RaftNode, message: Message) -> bool:
    """Takes in the later term of a message; False: nothing more is made of it."""
    match message:
        case VoteRequest():
            if not message.transfer and _hears_leader(node):
                _vote(node, message, granted=False)
                return False
            if not message.pre:
                node.follow(message.term, None)
        case VoteResponse(pre=True, granted=True):
            # The term that was asked about, which nobody is in yet.
            pass
        case AppendRequest() | HeartbeatRequest() | SnapshotRequest():
            node.follow(message.term, message.source)
        case _:
            node.follow(message.term, None)
    return True


def _hears_leader(node: RaftNode) -> bool:
    """Check-quorum: a leader that is heard is not voted out, unless its machine says that it is gone."""
    return node.leader is not None and not node.leader_refused and node.role.hears_leader()


def _answer_from_the_past(node: RaftNode, message: Message) -> None:
    """Tells a sender that is behind of the term of now; else an isolated node would never come back."""
    match message:
        case VoteRequest():
            _vote(node, message, granted=False)
        case AppendRequest() | HeartbeatRequest() | SnapshotRequest():
            node.say(AppendResponse(node.term, node.me, message.source, index=0, rejected=True))
        case _:
            # An answer to what this node asked in an earlier term.
            pass


def _handle(node: RaftNode, message: Message) -> None:
    """A message of the term of now, or a question about the next."""
    match message:
        case VoteRequest():
            _consider(node, message)
        case AppendRequest() | HeartbeatRequest() | SnapshotRequest():
            _hear(node, message)
        case TimeoutNow():
            if node.may_campaign and isinstance(node.role, RaftFollower):
                node.begin_campaign(pre=False, transfer=True)
        case VoteResponse():
            if isinstance(node.role, Campaign):
                node.role.voted(message)
        case AppendResponse() | HeartbeatResponse():
            if isinstance(node.role, Leader):
                node.role.answered(message)
        case _:
            assert_never(message)


def _hear(node: RaftNode, message: AppendRequest | HeartbeatRequest | SnapshotRequest) -> None:
    """The leader of this term says something."""
    assert node.leader in (None, message.source), f"two leaders in term {node.term}: {node!r}, {message}"
    if not isinstance(node.role, RaftFollower) or node.leader is None:
        node.follow(node.term, message.source)
    assert isinstance(node.role, RaftFollower)
    node.leader_refused = False
    node.role.hear(message)


def _consider(node: RaftNode, request: VoteRequest) -> None:
    granted = grants(request, term=node.term, vote=node.vote, leader=node.leader, log=node.log)
    if granted and not request.pre:
        node.vote = request.source
        if isinstance(node.role, RaftFollower):
            node.role.wait_again()
    _vote(node, request, granted=granted)


def _vote(node: RaftNode, request: VoteRequest, *, granted: bool) -> None:
    # A promise is about the term that was asked for; a refusal says what term it is.
    term = request.term if granted else node.term
    node.say(VoteResponse(term, node.me, request.source, granted=granted, pre=request.pre))

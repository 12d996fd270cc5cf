"""What a message does: whether it counts, by its term, and which role handles it.

Neighbours: `voting` says which candidate gets a vote; the roles (`following`, `campaigning`, `leading`)
handle what is meant for them; `node` calls `admits`, `role_change` and `handle` in this order.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

from tidelog_broker.core.raft.campaigning import Candidate
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
from tidelog_broker.core.raft.state import RaftState
from tidelog_broker.core.raft.transitions import BecomeCandidate, BecomeFollower, Transition
from tidelog_broker.core.raft.voting import grants

Role: TypeAlias = RaftFollower | Candidate | Leader


def admits(state: RaftState, role: Role, message: Message) -> bool:
    """Whether `message` is handled; one that is not was answered, if it needs an answer."""
    if message.target != state.me:
        # Meant for an earlier disk of this broker (M2).
        return False
    if message.term < state.term:
        _answer_earlier_term(state, message)
        return False
    match message:
        case VoteRequest(transfer=False) if message.term > state.term and _hears_leader(state, role):
            _vote(state, message, granted=False)
            return False
        case _:
            return True


def role_change(state: RaftState, role: Role, message: Message) -> Transition | None:
    """What the node becomes before it handles an admitted message."""
    if message.term > state.term:
        return _in_later_term(message)
    if isinstance(message, AppendRequest | HeartbeatRequest | SnapshotRequest):
        assert state.leader in (None, message.source), (
            f"two leaders in term {state.term}: {state!r}, {message}"
        )
        if not isinstance(role, RaftFollower) or state.leader is None:
            return BecomeFollower(state.term, message.source)
    return None


def _in_later_term(message: Message) -> Transition | None:
    match message:
        case VoteRequest(pre=True) | VoteResponse(pre=True, granted=True):
            # The term that a pre-vote asks about; no node is in it yet.
            return None
        case AppendRequest() | HeartbeatRequest() | SnapshotRequest():
            return BecomeFollower(message.term, message.source)
        case _:
            return BecomeFollower(message.term, None)


def handle(state: RaftState, role: Role, message: Message) -> Transition | None:
    """Handles a message of this term, or a pre-vote about the next one."""
    match message:
        case VoteRequest():
            _consider(state, role, message)
        case AppendRequest() | HeartbeatRequest() | SnapshotRequest():
            assert isinstance(role, RaftFollower), role
            state.leader_refused = False
            role.receive(message)
        case TimeoutNow():
            if state.may_campaign and isinstance(role, RaftFollower):
                return BecomeCandidate(pre=False, transfer=True)
        case VoteResponse():
            if isinstance(role, Candidate):
                return role.voted(message)
        case AppendResponse() | HeartbeatResponse():
            if isinstance(role, Leader):
                return role.answered(message)
        case _:
            assert_never(message)
    return None


def _hears_leader(state: RaftState, role: Role) -> bool:
    """Check-quorum: a leader that is heard is not voted out, unless its machine refused a connection."""
    return state.leader is not None and not state.leader_refused and _heard_recently(role)


def _heard_recently(role: Role) -> bool:
    match role:
        case RaftFollower():
            return role.hears_leader
        case Candidate():
            return False
        case Leader():
            return True
        case _:
            assert_never(role)


def _answer_earlier_term(state: RaftState, message: Message) -> None:
    """Tells the sender of this term; an isolated node would otherwise never return."""
    match message:
        case VoteRequest():
            _vote(state, message, granted=False)
        case AppendRequest() | HeartbeatRequest() | SnapshotRequest():
            state.send(AppendResponse(state.term, state.me, message.source, index=0, rejected=True))
        case _:
            # An answer to a request that this node sent in an earlier term.
            pass


def _consider(state: RaftState, role: Role, request: VoteRequest) -> None:
    granted = grants(request, term=state.term, vote=state.vote, leader=state.leader, log=state.log)
    if granted and not request.pre:
        state.vote = request.source
        if isinstance(role, RaftFollower):
            role.restart_timeout()
    _vote(state, request, granted=granted)


def _vote(state: RaftState, request: VoteRequest, *, granted: bool) -> None:
    # A granted vote names the term that was asked for; a refusal names the voter's own term.
    term = request.term if granted else state.term
    state.send(VoteResponse(term, state.me, request.source, granted=granted, pre=request.pre))

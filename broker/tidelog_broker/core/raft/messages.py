"""What the voters and learners of the metadata log say to each other (Raft, figures 2 and 3.1).

Every message names its term and both ends, disk included: a voter that came back with
another disk is another one (M2), and what was meant for the old one is not for it.
MessagePack maps with a tag, like commands: unknown fields are skipped.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tidelog_broker.model import Entry, Snapshot, Voter


class _Between(msgspec.Struct, frozen=True, omit_defaults=True):
    term: int
    """The sender's; of a pre-vote: the one that the sender would campaign in."""
    source: Voter
    target: Voter


class VoteRequest(_Between, frozen=True, omit_defaults=True, tag="vote?"):
    """Asks for a vote, or whether one would be given (`pre`; Raft thesis 9.6)."""

    last_index: int
    last_term: int
    pre: bool = False
    transfer: bool = False
    """The leader itself asked for this election: nobody refuses because of it."""


class VoteResponse(_Between, frozen=True, omit_defaults=True, tag="vote"):
    granted: bool
    pre: bool = False


class AppendRequest(_Between, frozen=True, omit_defaults=True, tag="append?"):
    """Entries behind the one at `previous_index`."""

    previous_index: int
    previous_term: int
    entries: tuple[Entry, ...] = ()
    commit: int = 0


class AppendResponse(_Between, frozen=True, omit_defaults=True, tag="append"):
    index: int
    """Everything up to here is on the sender's disk and the same as the leader's; if
    `rejected`: the previous index that did not fit."""
    rejected: bool = False
    hint_index: int = 0
    """If rejected: the largest index at which the logs may still agree …"""
    hint_term: int = 0
    """… and the term of the sender's entry there."""


class HeartbeatRequest(_Between, frozen=True, omit_defaults=True, tag="heartbeat?"):
    round: int
    """Counted by the leader: an answer proves that it led when the round was sent."""
    commit: int = 0
    """Never more than what the target is known to have."""


class HeartbeatResponse(_Between, frozen=True, omit_defaults=True, tag="heartbeat"):
    round: int


class SnapshotRequest(_Between, frozen=True, omit_defaults=True, tag="snapshot?"):
    """The image at an index, for one that is behind the entries that are still there."""

    snapshot: Snapshot


class TimeoutNow(_Between, frozen=True, omit_defaults=True, tag="now"):
    """The leader hands over: campaign at once (thesis 3.10)."""


Message: TypeAlias = (
    VoteRequest
    | VoteResponse
    | AppendRequest
    | AppendResponse
    | HeartbeatRequest
    | HeartbeatResponse
    | SnapshotRequest
    | TimeoutNow
)

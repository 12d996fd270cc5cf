"""The messages between voters and learners of the metadata log (Raft, figures 2 and 3.1).

Every message names its term and both ends, disk included: a broker that returns with
another disk is another voter (M2), and messages for the old one are not for it.
The encoding is a MessagePack map with a tag, as for commands: unknown fields are skipped.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tidelog_broker.model import Entry, Snapshot, Voter


class _Between(msgspec.Struct, frozen=True, omit_defaults=True):
    term: int
    """The sender's; in a pre-vote: the term that the sender would campaign in."""
    source: Voter
    target: Voter


class VoteRequest(_Between, frozen=True, omit_defaults=True, tag="vote?"):
    """Asks for a vote, or whether the voter would grant it (`pre`; thesis 9.6)."""

    last_index: int
    last_term: int
    pre: bool = False
    transfer: bool = False
    """The leader asked for this election: no voter refuses because it hears that leader."""


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
    """Everything up to here is on the sender's disk and equal to the leader's log; if
    `rejected`: the `previous_index` of the request that was rejected."""
    rejected: bool = False
    hint_index: int = 0
    """If rejected: the largest index at which the logs may still agree …"""
    hint_term: int = 0
    """… and the term of the sender's entry there."""


class HeartbeatRequest(_Between, frozen=True, omit_defaults=True, tag="heartbeat?"):
    round: int
    """Counted by the leader: an answer proves that the node led when it sent the round."""
    commit: int = 0
    """At most the index up to which the target is known to have the leader's entries."""


class HeartbeatResponse(_Between, frozen=True, omit_defaults=True, tag="heartbeat"):
    round: int


class SnapshotRequest(_Between, frozen=True, omit_defaults=True, tag="snapshot?"):
    """The image as of an index, for a peer that lacks entries which the leader has compacted away."""

    snapshot: Snapshot


class TimeoutNow(_Between, frozen=True, omit_defaults=True, tag="now"):
    """The leader transfers its leadership to the target: campaign at once (thesis 3.10)."""


FromRaftLeader: TypeAlias = AppendRequest | HeartbeatRequest | SnapshotRequest
"""What only the leader of a term sends."""

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

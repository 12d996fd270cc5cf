"""The messages between a follower and its leader about one partition. `replication.wire` has their encoding.

Every message names the leader epoch (R2). The incarnations of the two brokers belong to the
connection; the receiver passes the sender's incarnation to the role with the message. A connection delivers
in order and at most once; messages that an earlier connection still had on their way are not delivered.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, TypeAlias

EpochMark: TypeAlias = tuple[int, int]
"""A leader epoch and the offset at which it begins."""


class Refusal(StrEnum):
    """Why a leader does not answer a position."""

    FENCED_LEADER_EPOCH = "fenced leader epoch"
    """The follower's image is older than the leader's: the follower waits for a newer one."""
    UNKNOWN_LEADER_EPOCH = "unknown leader epoch"
    """The leader's image is older: the follower tries again."""
    UNKNOWN_INCARNATION = "unknown incarnation"
    """The leader's image has another run of the follower's broker, no such replica, or another assignment
    of the replica. One of the two images is older; the follower tries again if its own is the newer one."""
    NOT_LEADER = "not leader"
    """The broker does not lead the partition, as far as it knows."""
    OTHER_LANE = "other lane"
    """The follower must fetch over the broker's other connection: it is too far behind for this one, or has
    caught up."""
    DAMAGED = "damaged"
    """The leader cannot read the requested records."""


class Position(NamedTuple):
    """From a follower: where its log ends. A fetch (R1), and an acknowledgement."""

    leader_epoch: int
    end_offset: int
    last_epoch: int | None
    """The epoch of the last record; None: the log holds no record."""
    durable_offset: int
    """The end offset that counts: on disk, or, of a `page-cache` stream, written."""
    start_offset: int
    """LSO, as it is on disk (R11)."""
    assignment: int = 0
    """Of this replica; a report about another assignment does not count for it (R16)."""
    fsync: bool = True
    """`durable_offset` is on disk; otherwise it is only written (R17). Earlier versions do not send it."""


class Durable(NamedTuple):
    """From a follower: its durable end or its log start offset has changed since its last position."""

    leader_epoch: int
    durable_offset: int
    start_offset: int
    assignment: int = 0
    """As in `Position`."""
    fsync: bool = True
    """As in `Position`."""


class Batches(NamedTuple):
    """From the leader: the batches that follow the follower's position, as they are in the leader's file."""

    leader_epoch: int
    high_watermark: int
    start_offset: int
    offset: int
    """Where the data begins: the end of the follower's log."""
    data: bytes | memoryview
    unclean: tuple[EpochMark, ...] = ()
    """Unclean epochs of the leader's history that begin in or right after the data; rarely any (R5)."""


class LeaderOffsets(NamedTuple):
    """From the leader: the follower's log matches, and these are the offsets. The position stays parked."""

    leader_epoch: int
    high_watermark: int
    start_offset: int
    unclean: tuple[EpochMark, ...] = ()
    """Unclean epochs of the leader's history that begin where the follower's log ends (R5)."""


class Diverged(NamedTuple):
    """From the leader: the follower's log is not a part of the leader's (R1)."""

    leader_epoch: int
    epoch: int
    """The largest epoch of the leader's history that is not above the follower's last epoch."""
    end_offset: int
    """Where that epoch ends in the leader's log."""
    unclean: bool
    """A later epoch is marked unclean: committed records may be lost."""


class StartOver(NamedTuple):
    """From the leader: the follower's log has no continuation in the leader's; begin with an empty log."""

    leader_epoch: int
    start_offset: int
    """Where to begin: the leader's LSO."""
    unclean: bool
    """An epoch of the leader's history is marked unclean."""
    epoch_before: int | None = None
    """The epoch of the last record below the LSO, the newest deleted one; None: not known."""


class Refused(NamedTuple):
    """From the leader, or from a broker that does not lead: the position is not answered."""

    refusal: Refusal
    leader_epoch: int
    """The epoch that the sender of the refusal knows."""


class RangeWanted(NamedTuple):
    """From either end: these offsets are damaged in the sender's log; send the batches of this range (2c)."""

    leader_epoch: int
    start: int
    """A batch begins here."""
    end: int
    """The first offset after the range."""


class RangeHeld(NamedTuple):
    """From either end: batches for a `RangeWanted`, perhaps only the first of them."""

    leader_epoch: int
    start: int
    """As in the `RangeWanted`."""
    data: bytes | memoryview
    """Empty: the sender does not have the batches, or cannot send them now."""


FromFollower: TypeAlias = Position | Durable
FromLeader: TypeAlias = Batches | LeaderOffsets | Diverged | StartOver | Refused

"""What a follower and its leader say to each other about one partition. No bytes here: `peers` has the wire.

All of it names the leader epoch (R2). The incarnations of the two brokers belong to the
connection; whoever receives hands the other's in with the message. A connection delivers
in order and at most once; what an earlier connection still had on its way is not delivered.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, TypeAlias

EpochMark: TypeAlias = tuple[int, int]
"""A leader epoch and the offset at which it begins."""


class Refusal(StrEnum):
    """Why a leader does not answer a position."""

    FENCED_LEADER_EPOCH = "fenced leader epoch"
    """The follower is behind: it waits for its image."""
    UNKNOWN_LEADER_EPOCH = "unknown leader epoch"
    """The leader is behind: the follower tries again."""
    UNKNOWN_INCARNATION = "unknown incarnation"
    """The leader's image has another run of the follower's broker, no such replica, or another assignment
    of it; one of the two is behind: the follower tries again, if it is the newer one."""
    NOT_LEADER = "not leader"
    """The broker does not lead the partition, as far as it knows."""
    OTHER_LANE = "other lane"
    """The follower is to ask on the broker's other connection: it is too far behind for this one, or no
    longer."""
    DAMAGED = "damaged"
    """The leader cannot read what is asked for."""


class Position(NamedTuple):
    """Follower: where my log ends. The question of R1, and an acknowledgement."""

    leader_epoch: int
    end_offset: int
    last_epoch: int | None
    """Of the last record; None: the log holds none."""
    durable_offset: int
    """What counts: on disk, of a `page-cache` stream written."""
    start_offset: int
    """LSO, as it is on disk (R11)."""
    assignment: int = 0
    """Of this replica: what is said of another one says nothing of it (R16)."""
    fsync: bool = True
    """`durable_offset` is on disk; else it is only written (R17). Earlier versions do not say."""


class Durable(NamedTuple):
    """Follower: more is durable than my last position said, or another log start offset is."""

    leader_epoch: int
    durable_offset: int
    start_offset: int
    assignment: int = 0
    """As in `Position`."""
    fsync: bool = True
    """As in `Position`."""


class Batches(NamedTuple):
    """Leader: what follows your position, as it lies in my file."""

    leader_epoch: int
    high_watermark: int
    start_offset: int
    offset: int
    """Where the data begins: the end of the log that asked."""
    data: bytes | memoryview
    unclean: tuple[EpochMark, ...] = ()
    """Unclean epochs of my history that begin in or right behind the data; nearly always none (R5)."""


class LeaderOffsets(NamedTuple):
    """Leader: your log fits mine; this is how far all of us are. Answers no position: that one is kept."""

    leader_epoch: int
    high_watermark: int
    start_offset: int
    unclean: tuple[EpochMark, ...] = ()
    """Unclean epochs of my history that begin where your log ends (R5)."""


class Diverged(NamedTuple):
    """Leader: your log is not a part of mine (R1)."""

    leader_epoch: int
    epoch: int
    """The largest epoch of my history that is not above your last one."""
    end_offset: int
    """Where it ends in my log."""
    unclean: bool
    """An epoch after it is marked unclean: what was committed may be gone."""


class StartOver(NamedTuple):
    """Leader: nothing of your log goes on in mine; begin with an empty one."""

    leader_epoch: int
    start_offset: int
    """Where to begin: my LSO."""
    unclean: bool
    """An epoch of my history is marked unclean."""
    epoch_before: int | None = None
    """Of the last record below my LSO, the newest that I dropped; None: I do not know."""


class Refused(NamedTuple):
    refusal: Refusal
    leader_epoch: int
    """The refuser's."""


class RangeWanted(NamedTuple):
    """Either end: these offsets are damaged in my log; give me the batches of yours (2c)."""

    leader_epoch: int
    start: int
    """A batch begins here."""
    end: int
    """The first offset after the range."""


class RangeHeld(NamedTuple):
    """Either end: batches for a `RangeWanted`, perhaps only the first of them."""

    leader_epoch: int
    start: int
    """That of the question."""
    data: bytes | memoryview
    """Empty: I have them not, or not now."""


FromFollower: TypeAlias = Position | Durable
FromLeader: TypeAlias = Batches | LeaderOffsets | Diverged | StartOver | Refused

"""What a leader or a follower of a partition wants done. The performer does it in the order given."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tidelog_broker.core.replication.messages import (
    Diverged,
    Durable,
    EpochMark,
    LeaderOffsets,
    Position,
    Refused,
    StartOver,
)


class Member(NamedTuple):
    """A broker, and which run of it is meant (R4)."""

    broker: int
    incarnation: bytes
    assignment: int = 0
    """Of the replica that is meant (R16)."""


# --- a leader's


class Answer(NamedTuple):
    """Send this to a follower."""

    broker: int
    message: LeaderOffsets | Diverged | StartOver | Refused


class SendBatches(NamedTuple):
    """Read some of the log, at least one batch, and send what `LeaderPartition.batches` makes of it."""

    broker: int
    offset: int
    end: int
    """Nothing at or above it."""


class Propose(NamedTuple):
    """Ask the controller for another ISR. What it answers decides nothing; the image does."""

    isr: tuple[Member, ...]
    leader_epoch: int
    partition_epoch: int
    """The one that was seen; the controller refuses every other (compare and set)."""


class Committed(NamedTuple):
    """Everything below is committed: answer who waits, wake readers."""

    high_watermark: int


class FlushHistory(NamedTuple):
    """Make the entry of this leader epoch durable now; nothing is sent or counted before (R5)."""


# --- a follower's


class Ask(NamedTuple):
    """Send this to the leader, and hand in what it answers."""

    position: Position


class Say(NamedTuple):
    """Send this to the leader; it is not answered."""

    durable: Durable


class BeginUnclean(NamedTuple):
    """Write an entry for an epoch without records, marked unclean, at the end of the log (R5)."""

    epoch: int


class Append(NamedTuple):
    """Append batches as the leader stores them; then call `appended` or `not_appended`."""

    data: bytes | memoryview
    unclean: tuple[EpochMark, ...]
    """Epochs that are to be marked unclean where they begin."""


class Truncate(NamedTuple):
    """Cut the log back, durably; then call `truncated`."""

    offset: int


class Restart(NamedTuple):
    """Drop the log and begin an empty one, durably; then call `restarted`."""

    offset: int
    epoch_before: int | None = None
    """Of the last record below, for the history of the empty log (R1); None: not known."""


class Quarantine(NamedTuple):
    """The log contradicts its leader's: set it aside; nothing more comes (R1)."""

    reason: str


class Wait(NamedTuple):
    """Call `waited` after a while."""

    ms: int


class SwitchLane(NamedTuple):
    """Ask on the other connection to this leader from now on: call `lost`, then `begin` there."""


# --- of both


class AdvanceStart(NamedTuple):
    """Move the log start offset forward and save that, durably.

    Then call `start_moved` (a leader) or `start_saved` (a follower).
    """

    offset: int


LeaderEffect: TypeAlias = Answer | SendBatches | Propose | Committed | FlushHistory | AdvanceStart
FollowerEffect: TypeAlias = (
    Ask | Say | BeginUnclean | Append | Truncate | Restart | Quarantine | Wait | SwitchLane | AdvanceStart
)

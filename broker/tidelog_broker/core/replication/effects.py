"""The effects of a leader or a follower of a partition. `replication.effects` performs them in this order.

Both unions are closed: the performer ends with `assert_never`.
"""

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
    """A proposed member of the ISR."""

    broker: int
    incarnation: bytes
    """The run of the broker that the proposal is for (R4)."""
    assignment: int = 0
    """The assignment of the replica that the proposal is for (R16)."""


# --- of a leader


class Answer(NamedTuple):
    """Send this to a follower."""

    broker: int
    message: LeaderOffsets | Diverged | StartOver | Refused


class SendBatches(NamedTuple):
    """Read a part of the log, at least one batch, and send the message of `LeaderPartition.batches`."""

    broker: int
    offset: int
    end: int
    """Send no record at or above it."""


class Propose(NamedTuple):
    """Ask the controller for another ISR. Its answer decides nothing; the image does."""

    isr: tuple[Member, ...]
    leader_epoch: int
    partition_epoch: int
    """The epoch that the leader saw; the controller refuses any other (compare and set)."""


class Committed(NamedTuple):
    """Everything below is committed: answer waiting appends, wake readers."""

    high_watermark: int


class FlushHistory(NamedTuple):
    """Make the history entry of this leader epoch durable now; nothing is sent or counted before (R5)."""


# --- of a follower


class SendPosition(NamedTuple):
    """Send this to the leader; its answer comes in through `received`."""

    position: Position


class SendDurable(NamedTuple):
    """Send this to the leader; it is not answered."""

    durable: Durable


class BeginUnclean(NamedTuple):
    """Write an entry for an epoch without records, marked unclean, at the end of the log (R5)."""

    epoch: int


class Append(NamedTuple):
    """Append batches as the leader stores them; then call `appended` or `not_appended`."""

    data: bytes | memoryview
    unclean: tuple[EpochMark, ...]
    """Epochs that must be marked unclean where they begin."""


class Truncate(NamedTuple):
    """Truncate the log, durably; then call `truncated`."""

    offset: int


class Restart(NamedTuple):
    """Drop the log and begin an empty one, durably; then call `restarted`."""

    offset: int
    epoch_before: int | None = None
    """The epoch of the last record below, for the history of the empty log (R1); None: not known."""


class Quarantine(NamedTuple):
    """The log contradicts its leader's: set it aside. The role returns no more effects (R1)."""

    reason: str


class Wait(NamedTuple):
    """Call `waited` after a while."""

    ms: int


class SwitchLane(NamedTuple):
    """Fetch over the other connection to this leader from now on: call `lost`, then `begin` there."""


# --- of either


class AdvanceStart(NamedTuple):
    """Move the log start offset forward and save that, durably.

    Then call `start_moved` (a leader) or `start_saved` (a follower).
    """

    offset: int


LeaderEffect: TypeAlias = Answer | SendBatches | Propose | Committed | FlushHistory | AdvanceStart
FollowerEffect: TypeAlias = (
    SendPosition
    | SendDurable
    | BeginUnclean
    | Append
    | Truncate
    | Restart
    | Quarantine
    | Wait
    | SwitchLane
    | AdvanceStart
)

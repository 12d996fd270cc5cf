"""R1, R2, R5: a leader answers the positions of its followers.

A position that cannot be answered yet is parked until there are batches for it, or other offsets to send.
"""

from __future__ import annotations

from tidelog_broker.core.replication.effects import Answer, SendBatches
from tidelog_broker.core.replication.leader_state import LeaderState
from tidelog_broker.core.replication.messages import Batches, EpochMark, LeaderOffsets, Position, Refusal
from tidelog_broker.core.replication.reconciliation import start_over


def refusal(leader: LeaderState, broker: int, incarnation: bytes, position: Position) -> Refusal | None:
    """R2: why a position is refused; None: it is answered."""
    if position.leader_epoch < leader.leader_epoch:
        return Refusal.FENCED_LEADER_EPOCH
    if position.leader_epoch > leader.leader_epoch or (position.last_epoch or 0) > leader.leader_epoch:
        return Refusal.UNKNOWN_LEADER_EPOCH
    if broker not in leader.followers or not leader.is_current(broker, incarnation):
        return Refusal.UNKNOWN_INCARNATION
    if position.assignment != leader.followers[broker].assignment:
        return Refusal.UNKNOWN_INCARNATION
    return None


def answer_parked(leader: LeaderState, *, send_offsets: bool) -> list[Answer | SendBatches]:
    """Answers the parked positions for which there is something new.

    A new high watermark without new batches is sent only if `send_offsets`.
    """
    answers: list[Answer | SendBatches] = []
    limit = leader.log.end_offset if leader.epoch_durable else leader.epoch_start
    offsets = (leader.high_watermark, leader.log.start_offset)
    for broker, follower in leader.followers.items():
        if not follower.parked:
            continue
        sent = follower.sent_offsets
        if follower.end < offsets[1]:
            # Retention deleted records that the waiting follower lacks (R1).
            follower.diverged()
            answers.append(Answer(broker, start_over(leader.log, leader.leader_epoch, leader.leader_epoch)))
        elif follower.end < limit:
            follower.parked = False
            follower.sent_offsets = offsets
            answers.append(SendBatches(broker, follower.end, limit))
        elif sent != offsets and (send_offsets or sent is None or sent[1] != offsets[1]):
            follower.sent_offsets = offsets
            marks = unclean_marks(leader, follower.end, follower.end)
            answers.append(Answer(broker, LeaderOffsets(leader.leader_epoch, *offsets, marks)))
    return answers


def batches(leader: LeaderState, offset: int, data: bytes | memoryview, next_offset: int) -> Batches:
    """The message for batches that were read for a `SendBatches`."""
    marks = unclean_marks(leader, offset, next_offset)
    return Batches(leader.leader_epoch, leader.high_watermark, leader.log.start_offset, offset, data, marks)


def unclean_marks(leader: LeaderState, first: int, last: int) -> tuple[EpochMark, ...]:
    """The unclean epochs that begin from `first` to `last`, both included (R5)."""
    return tuple(
        (epoch, start) for epoch, start, marked in leader.log.epochs if marked and first <= start <= last
    )

"""R3, R5: a leader moves its high watermark. Neighbour: `high_watermark` has the rule itself."""

from __future__ import annotations

from tidelog_broker.core.replication.effects import Committed
from tidelog_broker.core.replication.high_watermark import high_watermark
from tidelog_broker.core.replication.leader_state import LeaderState
from tidelog_broker.core.replication.membership import held


def advance_high_watermark(leader: LeaderState, now_ms: int) -> list[Committed]:
    """Moves the high watermark as far as the rules allow."""
    own = leader.log.durable_offset if leader.fsync else leader.log.end_offset
    if own > leader.epoch_start and not leader.epoch_durable:
        own = leader.epoch_start
    if own <= leader.high_watermark:
        return []
    reached = high_watermark(
        leader.high_watermark,
        leader_durable=own,
        maximal_isr_durable=[leader.acknowledged(broker)[0] for broker in maximal_isr(leader, now_ms)],
        committed_isr_size=leader.isr_size,
        min_insync_effective=leader.placement.min_insync_effective,
    )
    if reached == leader.high_watermark:
        return []
    leader.high_watermark = reached
    return [Committed(reached)]


def maximal_isr(leader: LeaderState, now_ms: int) -> list[int]:
    """The followers that the high watermark waits for.

    They are the members, those that may be members already, and those that are held (R4).
    """
    isr, joining = leader.placement.isr, leader.proposals.joining
    return [
        broker
        for broker, follower in leader.followers.items()
        if broker in isr or broker in joining or held(follower, now_ms, leader.times)
    ]

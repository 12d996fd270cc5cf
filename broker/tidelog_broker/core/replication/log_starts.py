"""R11: the log start offset of a leader, and which of it the members of the ISR acknowledged."""

from __future__ import annotations

from tidelog_broker.core.replication.effects import AdvanceStart
from tidelog_broker.core.replication.leader_state import LeaderState


def start_acknowledged(leader: LeaderState) -> int:
    """The log start offset that all members of the ISR have on disk, proposed members included.

    0 while the ISR is below its minimum: an eligible replica without this offset may lead next (R6).
    """
    if not leader.has_enough_replicas:
        return 0
    members = (*leader.placement.isr, *leader.proposals.joining)
    others = [leader.acknowledged(broker)[1] for broker in members if broker != leader.broker_id]
    return min((leader.log.start_offset, *others))


def catch_up_start(leader: LeaderState) -> list[AdvanceStart]:
    """A new leader takes the largest log start offset that a follower reports, once it is committed here."""
    wanted = min(leader.largest_start, leader.high_watermark)
    if wanted <= max(leader.log.start_offset, leader.requested_start):
        return []
    leader.requested_start = wanted
    return [AdvanceStart(wanted)]

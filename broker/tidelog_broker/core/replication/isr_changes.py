"""R4: a leader proposes another ISR. Neighbours: `membership` has the rules, `proposals` what is undecided.

The controller decides about a proposal (`core.metadata`); only the image says what became of it.
"""

from __future__ import annotations

from tidelog_broker.core.replication.effects import Member, Propose
from tidelog_broker.core.replication.leader_state import LeaderState
from tidelog_broker.core.replication.membership import may_join, outsiders, remaining, update_hold


def propose_isr(leader: LeaderState, now_ms: int) -> list[Propose]:
    """Updates holds, and proposes an ISR if it should change and no proposal was made lately."""
    placement, proposals = leader.placement, leader.proposals
    joining = []
    for broker in outsiders(placement, leader.followers):
        follower, described = leader.followers[broker], placement.brokers[broker]
        if may_join(follower, described, leader.high_watermark, leader.epoch_start, leader.log.start_offset):
            joining.append(broker)
        elif broker not in proposals.joining:
            update_hold(follower, described, leader.log, now_ms, leader.times)
    if now_ms < leader.propose_after:
        return []
    stay = remaining(
        placement.isr,
        leader.broker_id,
        leader.followers,
        placement.brokers,
        placement.min_insync_effective,
        leader.log.end_offset,
        now_ms,
        leader.times,
    )
    proposed = (*stay, *joining)
    if proposed == placement.isr and not proposals.undecided:
        return []
    proposals.sent(placement.partition_epoch, placement.isr, proposed)
    leader.propose_after = now_ms + leader.times.proposal_repeat_ms
    members = tuple(_member(leader, broker) for broker in proposed)
    return [Propose(members, leader.leader_epoch, placement.partition_epoch)]


def _member(leader: LeaderState, broker: int) -> Member:
    known = leader.placement.brokers[broker]
    follower = leader.followers.get(broker)
    return Member(broker, known.incarnation, (known if follower is None else follower).assignment)


def needs_ticks(leader: LeaderState) -> bool:
    """Whether time alone can change anything; not in an idle partition whose members are connected."""
    if leader.proposals.undecided:
        return True
    offsets = (leader.high_watermark, leader.log.start_offset)
    for broker, follower in leader.followers.items():
        if broker in leader.placement.isr:
            if follower.lost_since is not None or follower.durable < leader.log.end_offset:
                return True
        elif follower.matching and leader.placement.brokers[broker].may_join:
            return True
        if follower.parked and follower.sent_offsets != offsets:
            return True
    return False

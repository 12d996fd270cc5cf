"""2c: which brokers may be asked for the batches of a damaged range, and which may send them.

Two logs that match in one leader epoch hold the same batches (R1), so the leader has the batches
that a follower lost to bit rot, and every follower whose log matches has those that the leader lost. The
broker that receives batches still checks each of them against its own history (`storage.log.healing`).
"""

from __future__ import annotations

from typing import Final

from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.messages import RangeWanted

RANGE_BYTES_MAX: Final = 8 << 20
"""Batches in one answer, about; one batch may always be sent."""


def brokers_with_range(role: LeaderPartition | FollowerPartition) -> list[int]:
    """The brokers that hold the batches of a log in this role, as far as it knows; the best first."""
    if isinstance(role, FollowerPartition):
        return [role.leader] if role.matching else []
    members = role.placement.isr
    return [broker for broker in members if broker in role.followers and role.followers[broker].matching]


def may_send_range(role: LeaderPartition | FollowerPartition | None, wanted: RangeWanted) -> bool:
    """R2: whether a replica in this role may answer; otherwise its log may hold other batches there."""
    if role is None or role.leader_epoch != wanted.leader_epoch:
        return False
    if isinstance(role, FollowerPartition) and not role.matching:
        return False
    return 0 <= wanted.start < wanted.end <= role.log.end_offset

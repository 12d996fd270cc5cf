"""2c: who may be asked for the batches of a damaged range, and who may give them.

Two logs that fit each other in one leader epoch hold the same batches (R1), so the leader has
what a follower lost to rot, and every follower that fits has what the leader lost. Whoever
receives batches still checks each of them against its own history (`storage.log.healing`).
"""

from __future__ import annotations

from typing import Final

from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.messages import RangeWanted

RANGE_BYTES_MAX: Final = 8 << 20
"""Of batches in one answer, about; one batch always may."""


def who_has_it(role: LeaderPartition | FollowerPartition) -> list[int]:
    """The brokers that hold what a log in this role holds, as far as it knows; best first."""
    if isinstance(role, FollowerPartition):
        return [role.leader] if role.fit else []
    members = role.placement.isr
    return [broker for broker in members if broker in role.followers and role.followers[broker].fit]


def gives(role: LeaderPartition | FollowerPartition | None, wanted: RangeWanted) -> bool:
    """R2: whether a replica in this role answers; else its log may be another one there."""
    if role is None or role.leader_epoch != wanted.leader_epoch:
        return False
    if isinstance(role, FollowerPartition) and not role.fit:
        return False
    return 0 <= wanted.start < wanted.end <= role.log.end_offset

"""R4: which followers may join the ISR, which members leave it, and which followers are held.

A follower may join only if it has everything that may be committed: everything below the leader's
high watermark, and everything that an earlier leader may have committed without this leader's
knowledge (all records below the start of the epoch). It also has the log start
offset on disk: otherwise it would bring deleted records back as a leader.

A follower's lag is counted in bytes, because bytes take time to send; the log knows them
(`LogView.bytes_from`), so no counter is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog_broker.core.replication.follower_state import FollowerState
from tidelog_broker.core.replication.log_view import LogView
from tidelog_broker.core.replication.times import ReplicationTimes


class ReplicaBroker(NamedTuple):
    """A replica's broker in the image."""

    incarnation: bytes
    """Of the run that registered last."""
    may_join: bool
    """The broker is neither fenced nor stopping."""
    assignment: int = 0
    """Of the replica on this broker (R16)."""


class Placement(NamedTuple):
    """A partition in the image."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int
    min_insync_effective: int
    """min(configured, replication factor)."""
    brokers: Mapping[int, ReplicaBroker]
    """The brokers of all replicas, the leader's own included."""


def may_join(
    follower: FollowerState, broker: ReplicaBroker, high_watermark: int, epoch_start: int, log_start: int
) -> bool:
    """Whether a follower outside the ISR can be proposed as a member."""
    return (
        counts(follower, broker)
        and broker.may_join
        and follower.durable >= max(high_watermark, epoch_start)
        and follower.start_offset >= log_start
    )


def counts(follower: FollowerState, broker: ReplicaBroker | None) -> bool:
    """Whether a follower's reports count: its log matches, and the image has this run of its broker."""
    return follower.matching and broker is not None and follower.incarnation == broker.incarnation


def lags(follower: FollowerState, leader_end: int, now_ms: int, times: ReplicationTimes) -> bool:
    """Whether a member was last caught up too long ago."""
    behind = not follower.matching or follower.durable < leader_end
    return behind and now_ms - follower.caught_up_at >= times.replica_lag_max_ms


def is_gone(follower: FollowerState, broker: ReplicaBroker, now_ms: int, times: ReplicationTimes) -> bool:
    """Whether a member is lost: its connection is lost for too long, or its process ends or has ended."""
    if follower.lost_since is None:
        return False
    ends = follower.refused or not broker.may_join
    return ends or now_ms - follower.lost_since >= times.peer_silence_max_ms


def remaining(
    isr: tuple[int, ...],
    leader: int,
    followers: Mapping[int, FollowerState],
    brokers: Mapping[int, ReplicaBroker],
    minimum: int,
    leader_end: int,
    now_ms: int,
    times: ReplicationTimes,
) -> tuple[int, ...]:
    """The members that stay in the ISR; lost members are removed only as far as the minimum allows.

    The controller removes the members that it fences, also below the minimum.
    """
    stay = [
        member
        for member in isr
        if member == leader
        or member not in followers
        or not lags(followers[member], leader_end, now_ms, times)
    ]
    for member in list(stay):
        if len(stay) <= minimum:
            break
        if (
            member != leader
            and member in followers
            and is_gone(followers[member], brokers[member], now_ms, times)
        ):
            stay.remove(member)
    return tuple(stay)


def update_hold(
    follower: FollowerState, broker: ReplicaBroker, log: LogView, now_ms: int, times: ReplicationTimes
) -> None:
    """Begins or ends a hold: the high watermark waits for a follower that is nearly caught up."""
    if follower.held_since is not None and not held(follower, now_ms, times):
        follower.held_since = None
    if (
        follower.held_since is None
        and now_ms >= follower.not_held_before
        and counts(follower, broker)
        and broker.may_join
        and log.bytes_from(follower.durable) <= times.expand_gap_max_bytes
    ):
        follower.held_since = now_ms
        follower.not_held_before = now_ms + times.expand_hold_max_ms + times.expand_pause_ms


def held(follower: FollowerState, now_ms: int, times: ReplicationTimes) -> bool:
    """Whether the high watermark waits for a follower that is not a member."""
    return (
        follower.matching
        and follower.held_since is not None
        and now_ms - follower.held_since < times.expand_hold_max_ms
    )


def outsiders(placement: Placement, followers: Mapping[int, FollowerState]) -> Iterator[int]:
    """The followers that are not members, in the order of the replicas."""
    for broker in placement.replicas:
        if broker in followers and broker not in placement.isr:
            yield broker

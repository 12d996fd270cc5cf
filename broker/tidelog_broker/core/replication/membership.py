"""R4: who may join the ISR, who leaves it, and for whom the high watermark waits without being a member.

A join is safe only for a follower that has all that may be committed: what the leader
knows to be (its high watermark), and what an earlier leader may have committed without
this one having heard of it (everything up to where the epoch began). It has the log start
offset on disk as well: as a leader it would bring deleted records back.

How far behind a follower is, is counted in bytes, because that is what it takes time to
send; the log knows (`LogView.bytes_from`), so nobody has to keep account of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog_broker.core.replication.log_view import LogView
from tidelog_broker.core.replication.progress import FollowerState
from tidelog_broker.core.replication.times import ReplicationTimes


class ReplicaBroker(NamedTuple):
    """What the image says of a replica's broker."""

    incarnation: bytes
    """Of the run that registered last."""
    may_join: bool
    """Neither fenced nor stopping."""
    assignment: int = 0
    """Of the replica there (R16)."""


class Placement(NamedTuple):
    """What the image says of a partition."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int
    min_insync_effective: int
    """min(configured, replication factor)."""
    brokers: Mapping[int, ReplicaBroker]
    """Of the replicas, this one's too."""


def may_join(
    progress: FollowerState, broker: ReplicaBroker, high_watermark: int, epoch_start: int, log_start: int
) -> bool:
    """Whether a follower outside the ISR can be proposed as a member."""
    return (
        counts(progress, broker)
        and broker.may_join
        and progress.durable >= max(high_watermark, epoch_start)
        and progress.start_offset >= log_start
    )


def counts(progress: FollowerState, broker: ReplicaBroker | None) -> bool:
    """Whether what a follower said counts: its log fits, and it is the run that the image knows."""
    return progress.fit and broker is not None and progress.incarnation == broker.incarnation


def lags(progress: FollowerState, leader_end: int, now_ms: int, times: ReplicationTimes) -> bool:
    """Whether a member has not been caught up for too long."""
    behind = not progress.fit or progress.durable < leader_end
    return behind and now_ms - progress.caught_up_at >= times.replica_lag_max_ms


def is_gone(progress: FollowerState, broker: ReplicaBroker, now_ms: int, times: ReplicationTimes) -> bool:
    """Whether a member's connection is lost for good: too long, or the process ends or has ended."""
    if progress.lost_since is None:
        return False
    ends = progress.refused or not broker.may_join
    return ends or now_ms - progress.lost_since >= times.peer_silence_max_ms


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
    """The members of the ISR that are to stay; those that are gone leave only as far as the minimum allows.

    Whom the controller has fenced, it takes out of the ISR by itself, below the minimum too.
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
    progress: FollowerState, broker: ReplicaBroker, log: LogView, now_ms: int, times: ReplicationTimes
) -> None:
    """Has the high watermark wait for a follower that is nearly there, so that it gets there, or no more."""
    if progress.held_since is not None and not held(progress, now_ms, times):
        progress.held_since = None
    if (
        progress.held_since is None
        and now_ms >= progress.not_held_before
        and counts(progress, broker)
        and broker.may_join
        and log.bytes_from(progress.durable) <= times.expand_gap_max_bytes
    ):
        progress.held_since = now_ms
        progress.not_held_before = now_ms + times.expand_hold_max_ms + times.expand_pause_ms


def held(progress: FollowerState, now_ms: int, times: ReplicationTimes) -> bool:
    """Whether the high watermark waits for a follower that is no member."""
    return (
        progress.fit
        and progress.held_since is not None
        and now_ms - progress.held_since < times.expand_hold_max_ms
    )


def outsiders(placement: Placement, followers: Mapping[int, FollowerState]) -> Iterator[int]:
    """Followers that are not members, in the order of the replicas."""
    for broker in placement.replicas:
        if broker in followers and broker not in placement.isr:
            yield broker

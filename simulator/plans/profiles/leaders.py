"""Profiles about partition leaders: deposed, cut off, moved, and back again."""

from __future__ import annotations

from dataclasses import replace

from simulator.clients.producers import Kind
from simulator.kernel.wire import Conditions
from simulator.plans.plan import Plan
from simulator.plans.profiles.varying import SECONDS_SHORT, only, streams_of
from simulator.world import SECOND


def takeovers(plan: Plan) -> Plan:
    """Leadership moves all the time, while messages of earlier leaders are on their way."""
    network = Conditions(delay_us=(200, 10_000), slow=0.05)
    return only(
        plan,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=2),
        network=network,
        leader_moves=30.0,
        kills=2.0,
        power_losses=1.0,
        cuts=1.0,
        cut_us=(SECOND // 20, SECOND),
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def deposals(plan: Plan) -> Plan:
    """Leaders are deposed while records are on their way to followers with slow disks."""
    return only(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=2),
        network=Conditions(delay_us=(200, 5_000), slow=0.02),
        leader_moves=3.0,
        kills=1.0,
        power_losses=0.3,
        cuts=0.7,
        cut_us=(SECOND // 2, 2 * SECOND),
        slow_disks=True,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def partings(plan: Plan) -> Plan:
    """Leaders are cut off while clients write to them: records that only they have are truncated later."""
    return only(
        plan,
        brokers=3,
        voters=3,
        streams=streams_of(plan, fsync=True, min_insync=2)[:1],
        network=Conditions(),
        cuts=1.5,
        cut_us=(SECOND // 2, 2 * SECOND),
        leader_moves=1.0,
        kills=0.1,
        down_us=(SECOND // 50, SECOND // 5),
        producers=(Kind.IDEMPOTENT, Kind.PLAIN),
        produce_pause_us=15_000,
    )


def torn_cuts(plan: Plan) -> Plan:
    """Logs are truncated repeatedly, and processes end in the middle of a truncation."""
    return replace(deposals(plan), slow_disks=False, mid_write_kills=4.0, everybody=0.2)


def cut_off(plan: Plan) -> Plan:
    """Brokers are cut off in one direction, for longer than a session."""
    return only(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        voters=3,
        streams=streams_of(plan, fsync=True, min_insync=1),
        network=Conditions(),
        cuts=0.3,
        cut_us=(4 * SECOND, 8 * SECOND),
        one_way=True,
        producers=(Kind.IDEMPOTENT,),
        produce_pause_us=20_000,
    )


def returns(plan: Plan) -> Plan:
    """Leadership moves away and back before the messages of the first epoch arrive (R2).

    Other partitions keep the connection open.
    """
    return only(
        plan,
        seconds=SECONDS_SHORT / 4,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=2, partitions=4)[:1],
        network=Conditions(delay_us=(100, 1_000), slow=0.02),
        leader_returns=3.0,
        producers=(Kind.IDEMPOTENT, Kind.PLAIN),
        produce_pause_us=20_000,
    )


def unanswered_heartbeats(plan: Plan) -> Plan:
    """Brokers are cut off in one direction for a while, so that their heartbeats get no answer; ISRs
    change."""
    return only(
        plan,
        seconds=SECONDS_SHORT,
        brokers=5,
        voters=3,
        streams=streams_of(plan, fsync=True, min_insync=1),
        network=Conditions(slow=0.02),
        kills=0.7,
        cuts=2.0,
        cut_us=(SECOND // 2, 2 * SECOND),
        one_way=True,
        down_us=(SECOND // 50, SECOND // 5),
        producers=(Kind.IDEMPOTENT,),
        produce_pause_us=10_000,
    )


def late_reads(plan: Plan) -> Plan:
    """Followers are behind and get nothing from memory: their leaders read slowly from disk, and are
    deposed."""
    return replace(
        deposals(plan),
        tail_cache_bytes=0,
        leader_moves=2.0,
        leader_returns=4.0,
        cut_us=(SECOND // 20, SECOND // 2),
    )

"""Profiles about the ISR and replicas: followers that leave and join, minima, and reassignments."""

from __future__ import annotations

from dataclasses import replace

from simulator.clients.producers import Kind
from simulator.kernel.wire import Conditions
from simulator.plans.plan import EVENTS_LONG, Plan
from simulator.plans.profiles.varying import SECONDS_SHORT, only, streams_of
from simulator.world import SECOND


def joins(plan: Plan) -> Plan:
    """Followers leave and join again, while proposals are lost, late and repeated."""
    network = replace(plan.network, lost=0.05, slow=0.05)
    return only(
        plan,
        brokers=4,
        streams=streams_of(plan, fsync=True, min_insync=2),
        network=network,
        kills=5.0,
        power_losses=0.3,
        cuts=2.0,
        cut_us=(SECOND // 20, SECOND),
        minimum_changes=2.0,
        reassignments=1.0,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def flapping(plan: Plan) -> Plan:
    """Links are cut for long enough that a follower leaves or is fenced; proposals are late. Few processes
    end."""
    network = Conditions(delay_us=(50, 300), slow=0.05, lost=0.02)
    return only(
        plan,
        brokers=4,
        voters=3,
        streams=streams_of(plan, fsync=True, min_insync=1),
        network=network,
        kills=0.1,
        cuts=1.0,
        cut_us=(SECOND // 2, 5 * SECOND),
        producers=(Kind.IDEMPOTENT,),
        produce_pause_us=10_000,
    )


def small_isrs(plan: Plan) -> Plan:
    """ISRs are often below their minimum, the minimum changes, and records are deleted meanwhile."""
    return only(
        plan,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=3),
        kills=1.0,
        cuts=0.5,
        cut_us=(2 * SECOND, 5 * SECOND),
        minimum_changes=1.0,
        start_moves=2.0,
        down_us=(SECOND, 5 * SECOND),
        producers=(Kind.IDEMPOTENT,),
        produce_pause_us=20_000,
    )


def minima(plan: Plan) -> Plan:
    """The minimum changes while appends are on their way: some are refused in the middle of others."""
    return only(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=3),
        network=Conditions(delay_us=(1_000, 10_000)),
        kills=0.5,
        minimum_changes=5.0,
        producers=(Kind.PLAIN, Kind.IDEMPOTENT),
        down_us=(SECOND, 4 * SECOND),
        produce_pause_us=10_000,
    )


def moves(plan: Plan) -> Plan:
    """Replicas move to other brokers and back, faster than answers arrive."""
    return only(
        plan,
        seconds=SECONDS_SHORT,
        brokers=4,
        voters=3,
        streams=streams_of(plan, fsync=True, min_insync=2),
        network=Conditions(delay_us=(200, 5_000), slow=0.05),
        reassignments=5.0,
        kills=0.3,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def leader_alone(plan: Plan) -> Plan:
    """Partitions have one replica, and no append waits for a flush."""
    return only(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=streams_of(plan, replication_factor=1, fsync=False, min_insync=1),
        network=Conditions(),
        kills=1.0,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=15_000,
    )


def moves_and_ends(plan: Plan) -> Plan:
    """Replicas move away and back, and processes end all the time."""
    return replace(moves(plan), kills=2.0, power_losses=0.5)


def lost_followers(plan: Plan) -> Plan:
    """Followers are behind for so long that they must leave the ISR, and are back before that is decided."""
    return only(
        plan,
        events_max=EVENTS_LONG,
        brokers=3,
        voters=3,
        streams=streams_of(plan, fsync=True, min_insync=3, partitions=3)[:1],
        network=Conditions(),
        lost_followers=1.0,
        producers=(Kind.IDEMPOTENT, Kind.PLAIN),
        produce_pause_us=100_000,
    )

"""Profiles about clients: acks, many writes, lost answers, and a single client."""

from __future__ import annotations

from simulator.clients.producers import Kind
from simulator.kernel.wire import Conditions
from simulator.plans.plan import Plan
from simulator.plans.profiles.varying import SECONDS_SHORT, only, streams_of
from simulator.world import SECOND


def leader_acks(plan: Plan) -> Plan:
    """Some producers use acks=leader."""
    return only(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=2),
        kills=0.3,
        producers=(Kind.IDEMPOTENT, Kind.PLAIN, Kind.IDEMPOTENT),
        produce_pause_us=20_000,
    )


def busy(plan: Plan) -> Plan:
    """No faults, and so many writes that there is always one during a flush."""
    return only(
        plan,
        seconds=SECONDS_SHORT / 2,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=2)[:1],
        network=Conditions(),
        producers=(Kind.IDEMPOTENT, Kind.PLAIN),
        produce_pause_us=5_000,
    )


def unanswered(plan: Plan) -> Plan:
    """Answers are late or lost, and producers give records up while their outcome is unknown."""
    return only(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=2),
        network=Conditions(delay_us=(200, 10_000), slow=0.05, lost=0.02),
        kills=0.5,
        stalls=0.5,
        cuts=0.3,
        cut_us=(3 * SECOND, 9 * SECOND),
        leader_moves=1.0,
        minimum_changes=0.5,
        producers=(Kind.IDEMPOTENT, Kind.IDEMPOTENT),
        down_us=(SECOND // 5, 6 * SECOND),
        produce_pause_us=20_000,
    )


def sinks(plan: Plan) -> Plan:
    """Jobs write batches exactly once, while leaders move, brokers are killed, and links are cut."""
    return only(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=2),
        network=Conditions(delay_us=(200, 5_000)),
        producers=(Kind.IDEMPOTENT,),
        readers=1,
        sinks=2,
        kills=0.5,
        everybody=0.1,
        cuts=0.2,
        leader_moves=0.7,
        down_us=(SECOND // 50, SECOND),
        produce_pause_us=40_000,
    )


def one_writer(plan: Plan) -> Plan:
    """No faults, and one client that waits for each answer: no other request can move the partition on."""
    return only(
        plan,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=2)[:1],
        network=Conditions(),
        start_moves=2.0,
        producers=(Kind.CONDITIONAL,),
        produce_pause_us=20_000,
    )

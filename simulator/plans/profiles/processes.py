"""Profiles about processes and machines that end, stop, stand still, or lose power."""

from __future__ import annotations

from dataclasses import replace

from simulator.clients.producers import Kind
from simulator.kernel.wire import Conditions
from simulator.plans.plan import Plan
from simulator.plans.profiles.varying import SECONDS_SHORT, only, streams_of
from simulator.world import SECOND


def restarts(plan: Plan) -> Plan:
    """Processes end, and their machines lose power right after the restart."""
    return only(
        plan,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=1),
        network=Conditions(),
        kills=2.0,
        power_losses=1.0,
        double_crashes=8.0,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def losses(plan: Plan) -> Plan:
    """All machines lose power at once, streams are in the page cache, and readers have positions."""
    return only(
        plan,
        brokers=3,
        streams=streams_of(plan, fsync=False, min_insync=1),
        readers=3,
        everybody=2.0,
        power_losses=2.0,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def losses_of_power(plan: Plan) -> Plan:
    """Machines lose power, one after the other or all at once; streams are fsync, with a minimum of one
    replica."""
    return only(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=1),
        network=Conditions(),
        power_losses=1.5,
        everybody=0.5,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=15_000,
    )


def standstills(plan: Plan) -> Plan:
    """Processes and disks pause for longer than a silent connection is kept."""
    return only(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=1),
        network=Conditions(),
        stalls=0.7,
        produce_pause_us=20_000,
    )


def stops(plan: Plan) -> Plan:
    """Brokers stop one after the other, leaders move by plan, and some producers are not idempotent."""
    return only(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=2),
        network=Conditions(delay_us=(200, 5_000)),
        stops=0.7,
        leader_moves=1.0,
        producers=(Kind.IDEMPOTENT, Kind.PLAIN),
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=30_000,
    )


def twice_lost(plan: Plan) -> Plan:
    """Machines lose power, and again right after the restart."""
    return replace(losses(plan), seconds=SECONDS_SHORT, everybody=0.3, double_crashes=4.0)


def trimmed_losses(plan: Plan) -> Plan:
    """Records are deleted, and then all machines lose power before the page cache is flushed (R11)."""
    return replace(losses(plan), seconds=SECONDS_SHORT, start_moves=10.0, everybody=2.0, power_losses=0.5)


def slow_trimmed_losses(plan: Plan) -> Plan:
    """As `trimmed_losses`, with one stream and slow disks: more often a log is emptied while another
    replica still has records (R1)."""
    return replace(
        trimmed_losses(plan),
        streams=losses(plan).streams[:1],
        start_moves=30.0,
        everybody=1.0,
        power_losses=1.5,
        slow_disks=True,
    )

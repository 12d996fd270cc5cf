"""Profiles about records and streams that are deleted, by command or by age, also with wrong clocks."""

from __future__ import annotations

from dataclasses import replace

from simulator.kernel.wire import Conditions
from simulator.plans.plan import Plan
from simulator.plans.profiles.varying import SECONDS_SHORT, only, streams_of
from simulator.world import SECOND


def starts(plan: Plan) -> Plan:
    """Records are deleted all the time, while leaders change and processes end in the middle of a write."""
    return only(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=2),
        network=Conditions(delay_us=(200, 5_000)),
        start_moves=6.0,
        leader_moves=2.0,
        kills=1.0,
        power_losses=0.3,
        mid_write_kills=2.0,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=15_000,
    )


def refused_starts(plan: Plan) -> Plan:
    """Records are deleted, and some writes of the new log start offset fail."""
    return replace(starts(plan), failed_saves=3.0, mid_write_kills=0.0)


def old_records(plan: Plan) -> Plan:
    """Streams have a short retention, and one clock after the other is wrong (R18)."""
    return only(
        plan,
        brokers=3,
        voters=3,
        streams=streams_of(plan, fsync=True, min_insync=2),
        network=Conditions(),
        skew_us=0,
        retention_changes=0.5,
        setting_changes=0.3,
        clock_jumps=0.7,
        renewals=0.2,
        kills=0.3,
        start_moves=0.2,
        leader_moves=0.3,
        produce_pause_us=5_000,
    )


def cold_starts(plan: Plan) -> Plan:
    """All brokers often restart together, and one clock is wrong (R18)."""
    return only(
        plan,
        brokers=3,
        voters=3,
        streams=streams_of(plan, fsync=True, min_insync=2),
        network=Conditions(),
        skew_us=0,
        clock_jumps=1.0,
        kills=1.0,
        everybody=0.5,
        down_us=(SECOND // 50, SECOND // 2),
        produce_pause_us=5_000,
    )


def renewals(plan: Plan) -> Plan:
    """A stream is deleted and created again all the time, while brokers end, also in the middle of it."""
    return only(
        plan,
        brokers=4,
        voters=3,
        streams=streams_of(plan, fsync=True, min_insync=2),
        renewals=1.0,
        mid_write_kills=1.0,
        kills=0.7,
        power_losses=0.2,
        cuts=0.3,
        reassignments=0.2,
        down_us=(SECOND // 20, 2 * SECOND),
        produce_pause_us=50_000,
    )

"""Profiles about disks: lost, full, rotten, replaced by a copy, and disks whose flushes fail."""

from __future__ import annotations

from dataclasses import replace

from simulator.clients.producers import Kind
from simulator.kernel.wire import Conditions
from simulator.plans.plan import Plan
from simulator.plans.profiles.varying import SECONDS_SHORT, only, streams_of
from simulator.world import SECOND


def lost_disks(plan: Plan) -> Plan:
    """Disks are lost one after the other."""
    return only(
        plan,
        brokers=3,
        voters=3,
        streams=streams_of(plan, fsync=True, min_insync=3),
        network=Conditions(),
        disk_losses=3.0,
        power_losses=0.3,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def bad_disks(plan: Plan) -> Plan:
    """Bits are flipped, and folders are misplaced."""
    return only(
        plan,
        brokers=4,
        streams=streams_of(plan, fsync=True, min_insync=2),
        network=Conditions(),
        rot=5.0,
        strays=2.0,
        reassignments=1.0,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def full_disks(plan: Plan) -> Plan:
    """One disk after the other is full, in the middle of a write."""
    return only(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=1),
        network=Conditions(),
        full_disks=1.5,
        start_moves=1.0,
        kills=0.7,
        power_losses=0.3,
        down_us=(SECOND // 50, SECOND // 5),
        producers=(Kind.IDEMPOTENT, Kind.PLAIN),
        produce_pause_us=15_000,
    )


def failed_flushes(plan: Plan) -> Plan:
    """Flushes fail, and an administrator recovers the disks."""
    return only(
        plan,
        seconds=SECONDS_SHORT,
        brokers=3,
        streams=streams_of(plan, min_insync=1),
        network=Conditions(),
        failed_flushes=0.7,
        kills=0.3,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=20_000,
    )


def failed_page_caches(plan: Plan) -> Plan:
    """Flushes of records fail that were committed without a flush; an administrator recovers the disks."""
    return replace(
        failed_flushes(plan),
        streams=streams_of(plan, fsync=False, min_insync=1),
        failed_flushes=1.5,
        produce_pause_us=10_000,
    )


def switches(plan: Plan) -> Plan:
    """Durability changes back and forth, and one broker or all of them lose power (R17)."""
    return only(
        plan,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=2),
        network=Conditions(),
        durability_changes=1.5,
        slow_disks=True,
        setting_changes=0.3,
        power_losses=1.0,
        everybody=0.3,
        leader_moves=0.5,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def quick_switches(plan: Plan) -> Plan:
    """Durability changes often, and the brokers learn of a change one after the other (R17)."""
    return replace(
        switches(plan),
        seconds=SECONDS_SHORT,
        network=Conditions(delay_us=(200, 10_000), slow=0.02),
        durability_changes=6.0,
        setting_changes=0.0,
        power_losses=0.0,
        everybody=0.0,
        produce_pause_us=5_000,
    )


def old_volumes(plan: Plan) -> Plan:
    """Volumes are put back from copies, between elections (R19)."""
    return only(
        plan,
        brokers=3,
        voters=3,
        streams=streams_of(plan, fsync=True, min_insync=2),
        network=Conditions(),
        put_backs=3.0,
        kills=0.5,
        power_losses=0.3,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )


def rotten_files(plan: Plan) -> Plan:
    """Files that are no segments rot."""
    return only(
        plan,
        brokers=3,
        voters=3,
        streams=streams_of(plan, min_insync=2),
        network=Conditions(),
        file_rot=2.0,
        retention_changes=0.1,
        clock_jumps=0.1,
        start_moves=0.3,
        stops=0.3,
        power_losses=0.3,
        down_us=(SECOND // 50, SECOND // 5),
        produce_pause_us=10_000,
    )

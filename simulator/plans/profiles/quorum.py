"""Profiles about the metadata quorum: its elections, its snapshots, and its recovery by force."""

from __future__ import annotations

import random
from dataclasses import replace

from simulator.kernel.wire import Conditions
from simulator.plans.plan import Plan
from simulator.plans.profiles.varying import SECONDS_SHORT, only, streams_of
from simulator.world import SECOND


def votes(plan: Plan) -> Plan:
    """Elections collide; voters end when they have voted, and start again at once."""
    network = replace(plan.network, delay_us=(200, 3_000), lost=0.1)
    return only(
        plan,
        brokers=5,
        voters=5,
        fast_raft=True,
        network=network,
        kills=4.0,
        election_kills=0.5,
        vote_kills=0.5,
        restart_us=2_000,
        down_us=(200, SECOND // 50),
    )


def snapshots(plan: Plan) -> Plan:
    """The metadata log is short: a broker that was down gets a snapshot of the image."""
    return only(
        plan,
        seconds=SECONDS_SHORT,
        brokers=5,
        voters=3,
        streams=streams_of(plan, fsync=True, min_insync=1),
        network=Conditions(),
        kills=0.3,
        power_losses=0.7,
        mid_write_kills=0.3,
        leader_moves=8.0,
        minimum_changes=4.0,
        setting_changes=4.0,
        snapshot_entries=4,
        down_us=(SECOND, 5 * SECOND),
        produce_pause_us=50_000,
    )


def recoveries(plan: Plan) -> Plan:
    """The metadata is recovered by force repeatedly, while replicas move."""
    return only(
        plan,
        brokers=random.Random(f"recoveries {plan.seed}").choice((3, 5)),
        voters=3,
        streams=streams_of(plan, fsync=True, min_insync=2),
        network=Conditions(),
        recoveries=0.4,
        kills=0.3,
        cuts=0.5,
        cut_us=(SECOND // 2, 3 * SECOND),
        reassignments=0.5,
        leader_moves=0.5,
        down_us=(SECOND // 50, SECOND // 2),
        produce_pause_us=10_000,
    )

"""Profiles about streams that record NATS subjects."""

from __future__ import annotations

import random
from dataclasses import replace

from simulator.clients.producers import Kind
from simulator.kernel.wire import Conditions
from simulator.nats.plan import Kind as Publishing
from simulator.nats.plan import NatsPlan
from simulator.plans.nats import with_nats
from simulator.plans.plan import Plan
from simulator.plans.profiles.varying import only, streams_of
from simulator.world import SECOND


def nats(plan: Plan) -> Plan:
    """Streams record subjects, while leaders move, servers end, and links are cut."""
    rng = random.Random(f"nats profile {plan.seed}")
    calmer = only(
        plan,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=2, partitions=rng.choice((1, 2))),
        network=replace(plan.network, slow=0.01),
        kills=0.2,
        cuts=0.2,
        stalls=0.2,
        stops=0.1,
        leader_moves=1.0,
        cut_us=(SECOND // 5, 3 * SECOND),
        down_us=(SECOND // 50, SECOND // 5),
        producers=(Kind.IDEMPOTENT,),
        produce_pause_us=100_000,
    )
    nats = NatsPlan(
        servers=rng.choice((1, 2)),
        publishers=tuple(Publishing),
        pause_us=20_000,
        pending_bytes_max=rng.choice((16 << 10, 1 << 20)),
        kills=0.1,
        cuts=0.2,
        stalls=0.1,
    )
    return with_nats(calmer, nats, rng)


def late_messages(plan: Plan) -> Plan:
    """Leadership moves back and forth between brokers, and messages of a NATS server arrive late."""
    rng = random.Random(f"late messages {plan.seed}")
    calmer = only(
        plan,
        brokers=3,
        streams=streams_of(plan, fsync=True, min_insync=2, partitions=2)[:1],
        network=Conditions(delay_us=(200, 3_000), slow=0.01),
        leader_moves=5.0,
        producers=(Kind.IDEMPOTENT,),
        produce_pause_us=200_000,
    )
    nats = NatsPlan(publishers=(Publishing.ASKING, Publishing.TELLING), pause_us=5_000)
    return with_nats(calmer, nats, rng)

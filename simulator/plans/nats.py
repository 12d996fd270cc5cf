"""Adds NATS to a plan: servers and publishers, and subjects for its streams.

Neighbours: `simulator.nats.plan` has the values, `swarm` uses this by seed, `profiles` by name.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from simulator.nats.plan import Kind, NatsPlan
from simulator.plans.plan import Plan, StreamPlan
from simulator.world import MS

SEEDS_WITH: Final = 1 / 3
"""The share of seeds with NATS."""

PATTERNS: Final = ("{}", "{}.*", "{}.>", "*.{}", "{}.*.y")
"""Patterns that a stream may record; the braces stand for its name."""

ALL_PATTERN: Final = ">"
"""A pattern that the only stream of a run may record."""


def draw(plan: Plan) -> Plan:
    """Adds NATS to a plan if its seed has it. Draws from its own random stream."""
    rng = random.Random(f"nats {plan.seed}")
    if rng.random() >= SEEDS_WITH:
        return plan
    return with_nats(
        plan,
        NatsPlan(
            servers=rng.choice((1, 1, 2)),
            publishers=rng.choice(
                (
                    (Kind.NAMED,),
                    (Kind.ASKING,),
                    (Kind.NAMED, Kind.ASKING),
                    (Kind.NAMED, Kind.TELLING),
                    (Kind.NAMED, Kind.ASKING, Kind.TELLING),
                )
            ),
            pause_us=rng.choice((20 * MS, 50 * MS, 200 * MS)),
            pending_bytes_max=rng.choice((16 << 10, 64 << 10, 1 << 20)),
            kills=rng.choice((0.0, 0.05, 0.3)),
            cuts=rng.choice((0.0, 0.1, 0.4)),
            stalls=rng.choice((0.0, 0.0, 0.2)),
        ),
        rng,
    )


def with_nats(plan: Plan, nats: NatsPlan, rng: random.Random) -> Plan:
    """The plan with NATS, and with subjects for its streams."""
    only = len(plan.streams) == 1
    patterns = (*PATTERNS, ALL_PATTERN) if only else PATTERNS
    streams: list[StreamPlan] = []
    for number, stream in enumerate(plan.streams):
        subject = rng.choice(patterns).format(f"s{number}")
        streams.append(replace(stream, subject=subject if number == 0 or rng.random() < 0.7 else ""))
    return replace(plan, streams=tuple(streams), nats=nats)

"""What of NATS a run has. Neighbours: `simulator.plans.plan` is the rest, `draw` gives it to some seeds."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from simulator.world import MS, SECOND

if TYPE_CHECKING:
    from simulator.plans.plan import Plan, StreamPlan

SEEDS_WITH: Final = 1 / 3
"""So many seeds have NATS."""

PATTERNS: Final = ("{}", "{}.*", "{}.>", "*.{}", "{}.*.y")
"""What a stream records; the braces are its name."""

ALL_PATTERN: Final = ">"
"""What the only stream of a run may record, too."""


class Kind(StrEnum):
    """How a publisher sends."""

    NAMED = "named"
    """With message ids and a reply subject; without an answer it sends again."""
    ASKING = "asking"
    """With a reply subject, and once."""
    TELLING = "telling"
    """Without a reply subject, many at a time."""


@dataclass(frozen=True)
class NatsPlan:
    """See the module. Rates are per simulated second."""

    servers: int = 1
    publishers: tuple[Kind, ...] = (Kind.NAMED,)
    """Per partition that a subject can lead to."""
    pause_us: int = 50 * MS
    pending_bytes_max: int = 1 << 20
    """What waits at a server for one client (`max_pending`)."""
    kills: float = 0.0
    """A server ends, with the power or without."""
    cuts: float = 0.0
    """A server is cut off from a broker, a publisher, the other server, or everybody."""
    stalls: float = 0.0
    """A server stands still."""
    down_us: tuple[int, int] = (SECOND // 20, SECOND)
    """How long a server stays away."""


def draw(plan: Plan) -> Plan:
    """Gives NATS to a plan if its seed has it, from a chance of its own."""
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
    """The plan with subjects for its streams."""
    only = len(plan.streams) == 1
    patterns = (*PATTERNS, ALL_PATTERN) if only else PATTERNS
    streams: list[StreamPlan] = []
    for number, stream in enumerate(plan.streams):
        subject = rng.choice(patterns).format(f"s{number}")
        streams.append(replace(stream, subject=subject if number == 0 or rng.random() < 0.7 else ""))
    return replace(plan, streams=tuple(streams), nats=nats)

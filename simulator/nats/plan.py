"""The NATS part of a plan: servers, publishers and faults. `simulator.plans.nats` gives it to some seeds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from simulator.world import MS, SECOND


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

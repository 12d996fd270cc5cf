"""The NATS part of a plan: servers, publishers and faults. `simulator.plans.nats` gives it to some seeds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from simulator.world import MS, SECOND


class Kind(StrEnum):
    """How a publisher sends."""

    NAMED = "named"
    """With message ids and a reply subject; it repeats a message without an answer."""
    ASKING = "asking"
    """With a reply subject; it sends each message once."""
    TELLING = "telling"
    """Without a reply subject; it sends many messages at a time."""


@dataclass(frozen=True)
class NatsPlan:
    """The servers, publishers and faults of NATS in a run. Rates are per simulated second."""

    servers: int = 1
    publishers: tuple[Kind, ...] = (Kind.NAMED,)
    """The publishers of each partition to which a subject can lead."""
    pause_us: int = 50 * MS
    pending_bytes_max: int = 1 << 20
    """The limit of bytes that wait at a server for one client (`max_pending`)."""
    kills: float = 0.0
    """A server is killed, or its machine loses power."""
    cuts: float = 0.0
    """A server is cut off from a broker, a publisher, the other server, or all of them."""
    stalls: float = 0.0
    """A server pauses."""
    down_us: tuple[int, int] = (SECOND // 20, SECOND)
    """How long a server stays down."""

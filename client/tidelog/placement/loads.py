"""A broker as placement sees it; `new` and `moves` decide with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """A broker that may get replicas, and what it carries already."""

    broker_id: int
    rack: str = ""
    """Brokers of one rack fail together; empty is a rack like any other."""
    replicas: int = 0
    leaders: int = 0
    bytes: int = 0

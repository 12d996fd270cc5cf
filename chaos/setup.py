"""Who takes part in a run: brokers, streams, and the clients that write to them. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from chaos.load import WRITERS, WriterKind
from chaos.nats_load import ANSWER_SECONDS_MAX


@dataclass(frozen=True)
class StreamPlan:
    name: str
    partitions: int
    durability: str
    subject: str = ""
    """Recorded from NATS; the library's writers leave it alone."""


STREAMS: Final = (
    StreamPlan("orders", 3, "fsync"),
    StreamPlan("clicks", 2, "page-cache"),
    StreamPlan("events", 1, "fsync", "events.>"),
)


@dataclass(frozen=True)
class Setup:
    """Who takes part."""

    brokers: int = 3
    """There at the beginning."""
    brokers_max: int = 3
    """There at any time."""
    copies: int = 3
    """Replication factor of the streams at the beginning."""
    streams: Sequence[StreamPlan] = field(default=STREAMS)
    writers: Sequence[WriterKind] = field(default=WRITERS)
    """Of each stream that is not recorded from NATS."""
    publishers: int = 1
    """Of each stream that is."""
    answer_seconds: float = ANSWER_SECONDS_MAX
    """How long a publisher waits before it repeats a message."""

"""The setup of a run: how many brokers, which streams, and which clients write to them. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from chaos.load import WRITERS, WriterKind
from chaos.nats_load import ANSWER_SECONDS_MAX


@dataclass(frozen=True)
class StreamPlan:
    """A stream that the run creates."""

    name: str
    partitions: int
    durability: str
    subject: str = ""
    """The NATS subjects that it records; the library's writers then do not write to it. Empty: none."""


STREAMS: Final = (
    StreamPlan("orders", 3, "fsync"),
    StreamPlan("clicks", 2, "page-cache"),
    StreamPlan("events", 1, "fsync", "events.>"),
)


@dataclass(frozen=True)
class Setup:
    """The parts of a run."""

    brokers: int = 3
    """At the beginning."""
    brokers_max: int = 3
    """The most at any time."""
    copies: int = 3
    """The replication factor of the streams at the beginning."""
    streams: Sequence[StreamPlan] = field(default=STREAMS)
    writers: Sequence[WriterKind] = field(default=WRITERS)
    """The writers of each stream that does not record NATS subjects."""
    publishers: int = 1
    """How many publishers each stream has that does."""
    tls: bool = False
    """Whether connections use TLS, and calls need credentials."""
    answer_seconds: float = ANSWER_SECONDS_MAX
    """How long a publisher waits before it repeats a message."""

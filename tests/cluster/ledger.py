"""What clients of a cluster were told, with the number of disk operations that had been performed by then.

An answer counts from the moment on that it came, a wish to delete from the moment on that it was
said. Neighbours: `power_load` writes it, `power_losses` reads it up to a point.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from cluster.machines import Key
from support.recording_files import History


class Acknowledged(NamedTuple):
    key: Key
    offset: int
    value: bytes


class Deletion(NamedTuple):
    """Of records below an offset: asked for, or confirmed."""

    key: Key
    before: int
    confirmed: bool


class Existence(NamedTuple):
    """Of a stream: from here on it is there, may be gone, or is gone."""

    stream_id: bytes
    state: str
    """there, doubtful, gone."""


Fact = Acknowledged | Deletion | Existence


@dataclass
class Ledger:
    """What clients were told, and when."""

    history: History
    facts: list[tuple[int, Fact]] = field(default_factory=list)
    """(operations performed, fact)"""
    sent: set[bytes] = field(default_factory=set)
    acknowledged: int = 0
    unanswered: int = 0
    """Records whose writer does not know."""

    def add(self, fact: Fact) -> None:
        self.acknowledged += isinstance(fact, Acknowledged)
        self.facts.append((len(self.history), fact))


@dataclass
class Expected:
    """What the facts up to a point say of a cluster."""

    records: dict[Key, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    start_max: dict[Key, int] = field(default_factory=lambda: defaultdict(int))
    """Where the log may begin at most: below it nobody asked for a deletion."""
    start_min: dict[Key, int] = field(default_factory=lambda: defaultdict(int))
    streams: dict[bytes, str] = field(default_factory=dict)

    def add(self, fact: Fact) -> None:
        match fact:
            case Acknowledged(key, offset, value):
                assert offset not in self.records[key], f"offset {offset} of {key} was given twice"
                self.records[key][offset] = value
            case Deletion(key, before, confirmed):
                limits = self.start_min if confirmed else self.start_max
                limits[key] = max(limits[key], before)
            case Existence(stream_id, state):
                self.streams[stream_id] = state

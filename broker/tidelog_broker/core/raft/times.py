"""How long a node waits, in ticks. The driver says how long a tick is (20 ms in a broker)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaftTimes:
    """Timeouts of a node, in ticks."""

    election: int = 25
    """A voter that hears no leader for one to two times as long campaigns."""
    heartbeat: int = 5
    """Between two heartbeat rounds of a leader; several fit into `election`."""
    refused: int = 7
    """A voter whose connection the leader's machine refused campaigns within this time."""

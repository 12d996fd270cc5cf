"""How long a node waits, in ticks; what a tick is, its driver says (20 ms in a broker)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaftTimes:
    """In ticks."""

    election: int = 25
    """Without a word of a leader for one to two times as long, a voter campaigns."""
    heartbeat: int = 5
    """Between two rounds of a leader; several fit into `election`."""
    refused: int = 7
    """A voter whose connection the leader's machine refused campaigns within so long."""

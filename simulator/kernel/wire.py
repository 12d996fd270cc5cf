"""The way between two machines: delays, losses, and cuts.

A *cut* has a direction, and holds back the bytes that are sent into it. Neighbours: `transports` deliver
bytes as this module says, `network` opens connections.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from simulator.world import MS, World

RESEND_US: Final = (200 * MS, 400 * MS)
"""Lost bytes are sent again after this time, at least and at most."""


@dataclass
class Conditions:
    """What happens to bytes on the network, apart from cuts. Probabilities are per piece."""

    delay_us: tuple[int, int] = (50, 300)
    """The shortest and longest delay."""
    slow: float = 0.0
    """Probability that a piece takes up to thousands of times as long. Later pieces wait for it."""
    lost: float = 0.0
    """Probability that a piece is lost and sent again after a while."""
    torn: float = 0.2
    """Probability that a write arrives in more than one piece."""


class Machine:
    """A machine, on which processes run one after the other. It has power or none."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.powered = True

    def __repr__(self) -> str:
        return f"<Machine {self.name}{'' if self.powered else ' without power'}>"


class Wire:
    """The way between any two machines of a run."""

    def __init__(self, world: World, conditions: Conditions) -> None:
        self.world = world
        self.conditions = conditions
        self.rng: random.Random = world.rng_of("network")
        self.slow_until_us = 0
        """Until then bytes that were sent slowly, or bytes behind them, are on their way."""
        self._cuts: dict[tuple[str, str], None] = {}

    def __repr__(self) -> str:
        return f"<Wire {self.conditions} cuts={self.cuts}>"

    def cut(self, source: str, target: str) -> None:
        """Nothing gets from one machine to the other."""
        self._cuts[source, target] = None

    def join(self) -> None:
        """Ends all cuts."""
        self._cuts.clear()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    @property
    def cuts(self) -> list[tuple[str, str]]:
        return list(self._cuts)

    def delay(self) -> int:
        low, high = self.conditions.delay_us
        delay = self.world.between(self.rng, low, high)
        if self.conditions.slow and self.rng.random() < self.conditions.slow:
            delay *= self.rng.choice((self.rng.randint(2, 100), self.rng.randint(100, 5_000)))
            self.slow_until_us = max(self.slow_until_us, self.world.now + delay)
        if self.conditions.lost and self.rng.random() < self.conditions.lost:
            delay += self.rng.randint(*RESEND_US)
        return delay


def random_conditions(rng: random.Random) -> Conditions:
    """Draws conditions. Each run has only some of the faults (swarm testing)."""
    return Conditions(
        delay_us=rng.choice([(20, 80), (50, 300), (200, 3 * MS)]),
        slow=rng.choice([0.0, 0.0, 0.01, 0.1]),
        lost=rng.choice([0.0, 0.0, 0.01, 0.05]),
        torn=rng.choice([0.0, 0.2, 0.5]),
    )

"""Cuts in the network: between two, around one, through the middle, in one direction or both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.node import host_of

if TYPE_CHECKING:
    from simulator.run import Simulation


class NetworkFaults:
    """See the module."""

    def __init__(self, run: Simulation) -> None:
        self._run = run

    def cut(self) -> None:
        everybody = sorted(self._run.brokers)
        kind = self._run.rng.random()
        if kind < 0.4:
            one, other = self._run.rng.sample(everybody, 2)
            pairs = [(one, other)]
        elif kind < 0.8:
            leader = self._run.leader_of(self._run.rng.choice(self._run.keys))
            alone = leader.id if leader is not None else self._run.rng.choice(everybody)
            pairs = [(alone, other) for other in everybody if other != alone]
        else:
            self._run.rng.shuffle(everybody)
            half = len(everybody) // 2
            pairs = [(one, other) for one in everybody[:half] for other in everybody[half:]]
        one_way = self._run.plan.one_way and self._run.rng.random() < 0.5
        self._run.world.tell(f"cut {pairs}{' one way' if one_way else ''}")
        self._run.disturbed_us = self._run.world.now
        for one, other in pairs:
            self._run.network.cut(host_of(one), host_of(other))
            if not one_way:
                self._run.network.cut(host_of(other), host_of(one))
        self._run.world.after(self._run.rng.randint(*self._run.plan.cut_us), self.mend)

    def mend(self) -> None:
        if self._run.network.cuts:
            self._run.world.tell("the network is whole again")
            self._run.disturbed_us = self._run.world.now
            self._run.network.mend()

"""Cuts in the network: between two, around one, through the middle, in one direction or both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.node import host_of
from simulator.world import SECOND

if TYPE_CHECKING:
    from simulator.node import Node
    from simulator.run import Simulation


class NetworkFaults:
    """See the module."""

    def __init__(self, run: Simulation) -> None:
        self._run = run
        self._losing: Node | None = None
        """A leader that does not reach one of its followers."""

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
            self._run.network.wire.cut(host_of(one), host_of(other))
            if not one_way:
                self._run.network.wire.cut(host_of(other), host_of(one))
        self._run.world.after(self._run.rng.randint(*self._run.plan.cut_us), self.mend)

    def lose_follower(self) -> None:
        """A leader and a follower do not reach each other until it wants that one out of its ISR."""
        run = self._run
        leader = run.leader_of(run.rng.choice(run.keys))
        if leader is None or leader.controls or self._losing is not None:
            return
        follower = run.rng.choice([number for number in sorted(run.brokers) if number != leader.id])
        self._losing = leader
        run.world.tell(f"broker {leader.id} and broker {follower} lose each other")
        self._part(leader.id, follower)
        run.world.after(run.rng.randint(12 * SECOND, 15 * SECOND), self.mend)

    def removal(self, leader: Node) -> None:
        """It proposes a smaller ISR. It does not hear what comes of it, and the follower is back (R3)."""
        run = self._run
        controllers = [node for node in run.up() if node.controls and node is not leader]
        if leader is not self._losing or not controllers:
            return
        self.mend()
        run.world.tell(f"broker {leader.id} and its controller {controllers[-1].id} lose each other")
        self._part(leader.id, controllers[-1].id)
        run.world.after(run.rng.randint(SECOND, 4 * SECOND), self.mend)

    def _part(self, one: int, other: int) -> None:
        self._run.disturbed_us = self._run.world.now
        self._run.network.wire.cut(host_of(one), host_of(other))
        self._run.network.wire.cut(host_of(other), host_of(one))

    def mend(self) -> None:
        self._losing = None
        if self._run.network.wire.cuts:
            self._run.world.tell("the network is whole again")
            self._run.disturbed_us = self._run.world.now
            self._run.network.mend()

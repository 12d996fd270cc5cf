"""Cuts in the network: between two brokers, around one, or between two halves, in one direction or both."""

from __future__ import annotations

from simulator.cluster import Cluster
from simulator.node import Node
from simulator.service import host_of
from simulator.world import SECOND


class NetworkFaults:
    """Cuts links between brokers, and ends all cuts."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._losing: Node | None = None
        """The leader that `lose_follower` has cut off from a follower; None: there is none."""

    def cut(self) -> None:
        everybody = sorted(self._cluster.nodes)
        kind = self._cluster.rng.random()
        if kind < 0.4:
            one, other = self._cluster.rng.sample(everybody, 2)
            pairs = [(one, other)]
        elif kind < 0.8:
            leader = self._cluster.leader_of(self._cluster.rng.choice(self._cluster.keys))
            alone = leader.id if leader is not None else self._cluster.rng.choice(everybody)
            pairs = [(alone, other) for other in everybody if other != alone]
        else:
            self._cluster.rng.shuffle(everybody)
            half = len(everybody) // 2
            pairs = [(one, other) for one in everybody[:half] for other in everybody[half:]]
        one_way = self._cluster.plan.one_way and self._cluster.rng.random() < 0.5
        self._cluster.world.tell(f"cut {pairs}{' one way' if one_way else ''}")
        self._cluster.disturbed_us = self._cluster.world.now
        for one, other in pairs:
            self._cluster.network.wire.cut(host_of(one), host_of(other))
            if not one_way:
                self._cluster.network.wire.cut(host_of(other), host_of(one))
        self._cluster.world.after(self._cluster.rng.randint(*self._cluster.plan.cut_us), self.mend)

    def lose_follower(self) -> None:
        """Cuts a leader and a broker off from each other, until the leader proposes to remove a follower."""
        cluster = self._cluster
        leader = cluster.leader_of(cluster.rng.choice(cluster.keys))
        if leader is None or leader.controls or self._losing is not None:
            return
        follower = cluster.rng.choice([number for number in sorted(cluster.nodes) if number != leader.id])
        self._losing = leader
        cluster.world.tell(f"broker {leader.id} and broker {follower} lose each other")
        self._part(leader.id, follower)
        cluster.world.after(cluster.rng.randint(12 * SECOND, 15 * SECOND), self.mend)

    def removal(self, leader: Node) -> None:
        """The leader proposed a smaller ISR: the cut ends, and the leader loses its controller (R3).

        So the follower is back, and the leader does not get the answer to its proposal.
        """
        cluster = self._cluster
        controllers = [node for node in cluster.up() if node.controls and node is not leader]
        if leader is not self._losing or not controllers:
            return
        self.mend()
        cluster.world.tell(f"broker {leader.id} and its controller {controllers[-1].id} lose each other")
        self._part(leader.id, controllers[-1].id)
        cluster.world.after(cluster.rng.randint(SECOND, 4 * SECOND), self.mend)

    def _part(self, one: int, other: int) -> None:
        self._cluster.disturbed_us = self._cluster.world.now
        self._cluster.network.wire.cut(host_of(one), host_of(other))
        self._cluster.network.wire.cut(host_of(other), host_of(one))

    def mend(self) -> None:
        """Ends all cuts."""
        self._losing = None
        if self._cluster.network.wire.cuts:
            self._cluster.world.tell("the network is whole again")
            self._cluster.disturbed_us = self._cluster.world.now
            self._cluster.network.mend()

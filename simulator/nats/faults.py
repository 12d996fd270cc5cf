"""Faults of NATS servers: they end, pause, and are cut off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from simulator.cluster import Cluster
from simulator.faults.network import NetworkFaults
from simulator.nats.publishers import SimPublisher
from simulator.nats.server import ServerMachine, host_of
from simulator.service import host_of as broker_host
from simulator.world import MS, SECOND

STALL_US: Final = (50 * MS, 4 * SECOND)

Fault = tuple[float, Callable[[], None]]
"""The rate per simulated second, and the fault."""


class NatsFaults:
    """Injects faults into NATS servers and their network. Draws from its own random stream."""

    def __init__(
        self,
        cluster: Cluster,
        servers: Sequence[ServerMachine],
        publishers: Sequence[SimPublisher],
        network: NetworkFaults,
    ) -> None:
        """`network` ends cuts: brokers and NATS servers are on one network."""
        self._cluster = cluster
        self._servers = servers
        self._publishers = publishers
        self._network = network
        self._rng = cluster.world.rng_of("nats faults")

    def faults(self) -> tuple[Fault, ...]:
        plan = self._cluster.plan.nats
        if plan is None:
            return ()
        return (plan.kills, self._kill), (plan.cuts, self._cut), (plan.stalls, self._stall)

    def _up(self) -> ServerMachine | None:
        up = [server for server in self._servers if server.process is not None]
        return self._rng.choice(up) if up else None

    def _kill(self) -> None:
        server = self._up()
        if server is not None:
            server.kill(power=self._rng.random() < 0.3)
            self._cluster.checks.mark("NATS server ended")
            assert self._cluster.plan.nats is not None
            down_us = self._rng.randint(*self._cluster.plan.nats.down_us)
            self._cluster.world.after(down_us, server.start_if_down)

    def _stall(self) -> None:
        server = self._up()
        if server is not None:
            self._cluster.world.tell(f"{host_of(server.number)} stands still")
            server.stall(self._cluster.world.now + self._rng.randint(*STALL_US))

    def _cut(self) -> None:
        cluster, rng = self._cluster, self._rng
        server = host_of(rng.choice(self._servers).number)
        brokers = [broker_host(broker) for broker in sorted(cluster.nodes)]
        publishers = [publisher.machine.name for publisher in self._publishers]
        servers = [host_of(other.number) for other in self._servers]
        others = rng.choice(([rng.choice(brokers)], [rng.choice(publishers or brokers)], servers, brokers))
        one_way = cluster.plan.one_way and rng.random() < 0.5
        cluster.world.tell(f"cut {others} off {server}{' one way' if one_way else ''}")
        cluster.checks.mark("NATS cut off")
        towards = rng.random() < 0.5
        for other in others:
            if other == server:
                continue
            if towards or not one_way:
                cluster.network.wire.cut(other, server)
            if not towards or not one_way:
                cluster.network.wire.cut(server, other)
        # There is one network, so this also ends cuts between brokers, and their end also ends this cut.
        cluster.world.after(rng.randint(*cluster.plan.cut_us), self._network.mend)

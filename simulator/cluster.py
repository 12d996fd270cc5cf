"""The cluster of a run: brokers on simulated machines, and the network between them.

Faults, administration, NATS and the end of a run act on the cluster, and it knows none of them. It says which
brokers are up and lead, ends and starts their processes, and asks them for changes. `node` is one machine;
`run` puts the cluster together with the parts that act on it.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from simulator.checks import Checks, Violated
from simulator.kernel.network import Network
from simulator.nats.answers import answers_too
from simulator.nats.server import addresses_of
from simulator.node import Key, Node, NodeSettings
from simulator.plans.plan import Plan
from simulator.service import host_of
from simulator.watch.listening import ClientTraffic, tap
from simulator.watch.watching import Watch
from simulator.world import MS, SECOND, World
from tidelog.errors import TidelogError
from tidelog_broker.core.metadata.commands import Command
from tidelog_broker.core.metadata.image import ClusterImage

SEEDS: Final = 3
"""How many brokers a new broker asks for its cluster."""

SCRUB_BYTES_PER_SECOND: Final = 1 << 20
"""Where segments rot: fast enough that a run sees the rot found."""

DISK_US: Final = (100, 400)
SLOW_DISK_US: Final = (500, 20 * MS)
"""How long a piece of work in a thread takes, at least and at most."""

UNDISTURBED_US: Final = 5 * SECOND
"""After a disturbance, a broker counts as disturbed for this time."""


class Cluster:
    """The brokers of a run. Faults disturb them, and administrators repair them."""

    def __init__(
        self, plan: Plan, world: World, checks: Checks, ended: Callable[[Node, BaseException | int], None]
    ) -> None:
        """Adds its brokers to `checks.brokers`. `ended` is called when a process ends without a fault."""
        self.plan = plan
        self.world = world
        self.checks = checks
        self.nodes = checks.brokers
        hosts: dict[str, Node] = {}
        self.network = Network(world, plan.network, answers_too(tap(checks, hosts), checks, hosts))
        self.rng: random.Random = world.rng_of("faults")
        self.watch = Watch(checks)
        self.keys: list[Key] = []
        """The partitions of the plan's streams."""
        self.disturbed_us = 0
        """When a cut last began or ended."""
        self.faults_active = False
        """Faults happen at present."""
        self.full: Node | None = None
        """The broker whose disk is full."""
        for number in range(1, plan.brokers + 1):
            self.nodes[number] = hosts[host_of(number)] = self._node(number, ended)

    def __repr__(self) -> str:
        return f"<Cluster up={[node.id for node in self.up()]} of {len(self.nodes)} {self.world!r}>"

    def _node(self, number: int, ended: Callable[[Node, BaseException | int], None]) -> Node:
        plan = self.plan
        return Node(
            self.world,
            self.network,
            number,
            NodeSettings(
                seeds=tuple(range(1, min(SEEDS, plan.brokers) + 1)),
                voters=plan.voters,
                tail_cache_bytes=plan.tail_cache_bytes,
                volume_flush=plan.volume_flush,
                scrub_bytes_per_second=SCRUB_BYTES_PER_SECOND if plan.rot else 0,
                snapshot_entries=plan.snapshot_entries,
                nats=",".join(addresses_of(plan.nats)),
            ),
            skew_us=self.rng.randint(-plan.skew_us, plan.skew_us),
            disk_us=SLOW_DISK_US if plan.slow_disks else DISK_US,
            observer=lambda made: ClientTraffic(self.checks, made),
            observed=self._look,
            ended=ended,
            removes=self._removes,
        )

    def _removes(self, node: Node, path: str) -> None:
        with self.checks.kept():
            self.checks.path_goes(node, path)

    def _look(self, node: Node) -> None:
        try:
            self.watch.look(node)
        except Violated as violated:
            self.checks.keep(violated)

    # --- its state

    def up(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.running]

    def leader_of(self, key: Key) -> Node | None:
        """The leader; of several brokers that believe that they lead, that with the latest leader epoch."""
        leading = {replica.partition.leader_epoch: node for node in self.nodes.values()
                   if (replica := node.replicas.get(key)) and replica.leads}  # fmt: skip
        return leading[max(leading)] if leading else None

    def is_undisturbed(self, broker_id: int) -> bool:
        """M3: every other broker could hear this one all the time, so none may report that it is silent."""
        node, wire = self.nodes[broker_id], self.network.wire
        calm = not (wire.conditions.lost or wire.conditions.slow or self.plan.slow_disks)
        since = max(self.disturbed_us, node.started_us, wire.slow_until_us)
        return (
            node.running
            and calm
            and not node.stop_asked
            and self.full is not node
            and self.world.now - since > UNDISTURBED_US
        )

    # --- processes that end and start

    def crash(self, node: Node, *, power: bool) -> None:
        """Its process ends, with the power or without."""
        self.checks.crashed(node)
        self.checks.strays_kept(node)
        before = node.disk
        node.crash(power=power)
        if power:
            self.checks.power_lost(node, before)

    def end(self, node: Node, *, power: bool) -> None:
        """Its process ends, and starts again after a while."""
        self.crash(node, power=power)
        self.start_later(node)

    def start_later(self, node: Node) -> None:
        self.world.after(self.rng.randint(*self.plan.down_us), lambda: self.start(node))

    def start(self, node: Node) -> None:
        if not node.running:
            node.start()

    # --- requests

    def decide(self, decision: Callable[[ClusterImage], Command | None]) -> bool:
        """Asks the controller to propose a change; False: no broker is the controller."""
        for node in self.nodes.values():
            if node.controls:
                assert node.assembly is not None
                controller = node.assembly.controller
                self.ask(node, partial(controller.change, decision))
                return True
        return False

    def ask(self, node: Node, work: Callable[[], Awaitable[Any]]) -> None:
        """Asks a broker for something that it may refuse."""

        async def asked() -> None:
            try:
                await work()
            except TidelogError as error:
                self.world.tell(f"refused: {error}")

        assert node.process is not None
        loop = node.process.loop
        loop.call_soon(lambda: loop.create_task(asked(), name="administration"))

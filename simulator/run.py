"""One run: a cluster is made, faults rain on it while clients work (safety), then they end (liveness).

Neighbours: `swarm` draws the plan, `faults` are what rains, `calm` is the end, `watching` and `listening`
tell the checks what happens.
"""

from __future__ import annotations

import gc
import random
import sys
import traceback
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from simulator.calm import Calm
from simulator.checks import Checks, Violated, require
from simulator.clients.producers import SimErrand, SimProducer
from simulator.clients.readers import SimReader
from simulator.faults import Faults
from simulator.faults.recoveries import START_OVER
from simulator.kernel.network import Network
from simulator.kernel.processes import unhandled
from simulator.kernel.wire import Conditions
from simulator.nats.answers import answers_too
from simulator.nats.side import NatsSide
from simulator.node import CLUSTER_ID, ROOT, Node, host_of
from simulator.plans.plan import Plan
from simulator.plans.swarm import plan_of
from simulator.watch.listening import DoorEar, tap
from simulator.watch.replicas import Key
from simulator.watch.watching import Watch
from simulator.world import MS, SECOND, World
from tidelog.errors import TidelogError
from tidelog.history import History
from tidelog.model import Durability, StreamSettings
from tidelog_broker.core.metadata import decide
from tidelog_broker.core.metadata.commands import Command
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.errors import DataDirectoryError, DirectoryDamaged, RunOver
from tidelog_broker.offline.rewrite import recover_data_directory

FULL_CHECK_EVENTS: Final = 5_000
STALL_CHECK_EVENTS: Final = 500
BEGIN_SECONDS_MAX: Final = 60
SEGMENT_BYTES: Final = 8 << 10
FIRST_ERRAND: Final = 1_000
"""Their names lie beyond those of all others."""

RECOVER: Final = "tidelog-broker recover"
"""What a broker says that finds the mark of a failed flush: people are to run this."""

SEEDS: Final = 3
"""Brokers that a new one asks for its cluster."""


@dataclass
class Result:
    """What became of a run."""

    seed: int
    plan: Plan
    events: int = 0
    seconds: float = 0.0
    """Simulated."""
    fingerprint: str = ""
    violation: str = ""
    """Empty: none."""
    marks: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    elections: int = 0
    lines: list[str] = field(default_factory=list)

    broken: bool = False
    """It ended with an error that is no invariant's, of the rules or of the simulator."""

    @property
    def ok(self) -> bool:
        return not self.violation


class Simulation:
    """See the module."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = World(plan.seed)
        self.checks = Checks()
        self.nodes: dict[int, Node] = {}
        hosts: dict[str, Node] = {}
        self.network = Network(
            self.world, plan.network, answers_too(tap(self.checks, hosts), self.checks, hosts)
        )
        self.history = History()
        self.rng: random.Random = self.world.rng_of("faults")
        self.keys: list[Key] = []
        self.producers: list[SimProducer] = []
        self.readers: list[SimReader] = []
        self.errands: list[SimErrand] = []
        self.disturbed_us = 0
        """When a cut last began or ended."""
        self.raining = False
        """Faults come."""
        self.full: Node | None = None
        """Whose disk is full."""
        self.watch = Watch(self.checks)
        self._full_at = FULL_CHECK_EVENTS
        self.nats = NatsSide(self)
        self.faults = Faults(self)
        self.calm = Calm(self)
        for number in range(1, plan.brokers + 1):
            self.nodes[number] = hosts[host_of(number)] = self._node(number)
        checks = self.checks
        checks.brokers = self.nodes
        checks.now_us = lambda: self.world.now
        checks.alarm = self._alarm
        checks.is_undisturbed = self._is_undisturbed
        checks.is_whole = lambda: not self.network.wire.cuts
        lost = (plan.disk_losses, plan.strays, plan.rot, plan.put_backs, plan.file_rot)
        checks.disks_are_lost = any(lost)
        checks.leaders_are_moved = plan.leader_moves + plan.leader_returns > 0
        checks.skew_us_max = plan.skew_us
        checks.candidate = lambda broker: self.faults.processes.candidate(self.nodes[broker])
        checks.removes = lambda broker: self.faults.network.removal(self.nodes[broker])
        checks.voter = lambda broker: self.faults.processes.voted(self.nodes[broker])

    def _node(self, number: int) -> Node:
        plan = self.plan
        node = Node(
            self.world,
            self.network,
            number,
            tuple(range(1, min(SEEDS, plan.brokers) + 1)),
            ear=lambda made: DoorEar(self.checks, made),
            observed=self._look,
            ended=self._ended,
            removes=self._removes,
        )
        node.voters = plan.voters
        node.tail_cache_bytes = plan.tail_cache_bytes
        node.volume_flush = plan.volume_flush
        node.snapshot_entries = plan.snapshot_entries
        node.nats = ",".join(self.nats.addresses)
        node.skew_us = self.rng.randint(-plan.skew_us, plan.skew_us)
        if plan.rot:
            node.scrub_bytes_per_second = 1 << 20
        if plan.slow_disks:
            node.disk_us = (500, 20 * MS)
        return node

    def _alarm(self) -> None:
        self.world.alarmed = True

    def _removes(self, node: Node, path: str) -> None:
        with self.checks.kept():
            self.checks.path_goes(node, path)

    def _look(self, node: Node) -> None:
        try:
            self.watch.look(node)
        except Violated as violated:
            self.checks.keep(violated)

    @property
    def brokers(self) -> dict[int, Node]:
        return self.nodes

    # --- the whole of it

    def run(self) -> Result:
        result = Result(self.plan.seed, self.plan)
        # A collector at work would close what a dead process has left at a time of its own.
        collecting = gc.isenabled()
        gc.disable()
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=lambda generator: None)
        try:
            self._begin()
            self._safety()
            self.calm.settle()
            self.calm.judge()
        except Exception as error:
            if not isinstance(error, AssertionError):
                self.world.tell(f"{type(error).__name__}: {error}")
            result.violation = f"{type(error).__name__}: {error}"
            result.broken = isinstance(error, TypeError | AttributeError | NameError)
            if not isinstance(error, Violated):
                result.violation += "\n" + traceback.format_exc(limit=-6)
        finally:
            self._end_all()
            sys.set_asyncgen_hooks(*hooks)
            if collecting:
                gc.enable()
        result.events = self.world.events
        result.seconds = self.world.now / SECOND
        result.fingerprint = self.world.fingerprint
        result.marks = dict(sorted(self.checks.marks.items()))
        result.acknowledged = self.nats.acknowledged
        result.acknowledged += sum(producer.acknowledged for producer in self.producers)
        result.elections = sum(len(truth.leaders) for truth in self.checks.truths.values())
        result.lines = list(self.world.lines)
        return result

    def _end_all(self) -> None:
        """Nothing of this run is left to the collector."""
        for node in self.nodes.values():
            if node.process is not None:
                node.process.kill()
        for client in (*self.producers, *self.readers, *self.errands, *self.faults.renewals.clients()):
            client.process.kill()
        self.nats.end()

    def until(self, condition: Callable[[], bool], seconds: float, what: str | Callable[[], str]) -> None:
        deadline = self.world.now + int(seconds * SECOND)
        looked = 0
        while True:
            if self.world.events >= looked:
                looked = self.world.events + 200
                if condition():
                    return
            if self.world.now >= deadline:
                why = what() if callable(what) else what
                require(False, "liveness", f"not within {seconds:g} s: {why}")
            self._step()

    def _step(self) -> None:
        world = self.world
        if not world.step():
            require(False, "liveness", "nothing is planned any more")
        if world.alarmed:
            world.alarmed = False
            self._attend()
        if world.events >= self._full_at:
            self._full_at = world.events + FULL_CHECK_EVENTS
            self.checks.full()
        if world.events % STALL_CHECK_EVENTS == 0:
            self.checks.stalled()

    def _attend(self) -> None:
        """Something happened that ends the run, or a process."""
        if self.checks.violated is not None:
            raise self.checks.violated
        for node in self.nodes.values():
            process = node.process
            if process is None:
                continue
            if node.disk.dead:
                self.checks.mark("4 killed in a write")
                self.end(node, power=self.rng.random() < 0.5)
            elif process.loop.errors:
                raise unhandled(f"broker {node.id}", process.loop.errors[0])

    # --- the beginning

    def _begin(self) -> None:
        calm, self.network.wire.conditions = self.network.wire.conditions, Conditions()
        self.nats.start_all()
        self.nodes[1].format_cluster()
        for node in self.nodes.values():
            node.start()
        self.until(self._all_registered, BEGIN_SECONDS_MAX, "all brokers are registered")
        for number, stream in enumerate(self.plan.streams):
            settings = StreamSettings(
                partitions=stream.partitions,
                replication_factor=stream.replication_factor,
                min_insync_replicas=min(stream.min_insync, stream.replication_factor),
                durability=Durability.FSYNC if stream.fsync else Durability.PAGE_CACHE,
                segment_bytes=SEGMENT_BYTES,
                batch_bytes_max=SEGMENT_BYTES // 2,
                subject=stream.subject,
            )
            stream_id = uuid.UUID(int=self.plan.seed * 10 + number + 1).bytes
            self.decide(
                lambda image, n=number, s=settings, i=stream_id: decide.create_stream(  # type: ignore[misc]
                    image, f"s{n}", s, stream_id=i, created_us=0
                )
            )
            self.keys += [(stream_id, partition) for partition in range(stream.partitions)]
        self.until(lambda: all(self.leader_of(key) for key in self.keys), BEGIN_SECONDS_MAX, "leaders")
        self.network.wire.conditions = calm
        self._clients()

    def _all_registered(self) -> bool:
        image = self.checks.image
        return (
            len(image.brokers) == len(self.nodes)
            and image.cluster_id == CLUSTER_ID
            and all(node.service is not None and node.service.serving for node in self.nodes.values())
        )

    def decide(self, decision: Callable[[ClusterImage], Command | None]) -> bool:
        """Has the controller propose something; whether there is one."""
        for node in self.nodes.values():
            if node.controls:
                assert node.assembly is not None
                controller = node.assembly.controller
                self.ask(node, partial(controller.change, decision))
                return True
        return False

    def ask(self, node: Node, work: Callable[[], Awaitable[Any]]) -> None:
        """Has a broker do something that somebody asks for, and may be refused."""

        async def asked() -> None:
            try:
                await work()
            except TidelogError as error:
                self.world.tell(f"refused: {error}")

        assert node.process is not None
        loop = node.process.loop
        loop.call_soon(lambda: loop.create_task(asked(), name="asked by people"))

    def write_to(self, stream: str) -> None:
        """A client comes, sends a record to a stream, and goes again."""
        name = FIRST_ERRAND + len(self.errands)
        self.errands.append(
            SimErrand(self.world, self.network, self.history, name, tuple(self.nodes), stream, 0, 0)
        )

    def _clients(self) -> None:
        names = self._names()
        for place, key in enumerate(self.keys):
            for index, kind in enumerate(self.plan.producers):
                self.producers.append(
                    SimProducer(
                        *self._client(names[key[0]], key[1], place),
                        kind=kind, pause_us=self.plan.produce_pause_us, impatient=self.plan.impatient,
                        acks_all=index != 2,
                    )
                )  # fmt: skip
            for _ in range(self.plan.readers):
                self.readers.append(SimReader(self.checks, key, *self._client(names[key[0]], key[1], place)))
        self.nats.publish()

    def _names(self) -> dict[bytes, str]:
        return {stream_id: stream.name for stream_id, stream in self.checks.image.streams.items()}

    def _client(self, stream: str, partition: int, place: int) -> tuple[Any, ...]:
        name = 1 + len(self.producers) + len(self.readers)
        return self.world, self.network, self.history, name, tuple(self.nodes), stream, partition, place

    # --- the faults

    def _safety(self) -> None:
        end = self.world.now + int(self.plan.seconds * SECOND)
        self.raining = True
        self.faults.begin()
        events_end = self.world.events + self.plan.events_max
        while self.world.now < end and self.world.events < events_end:
            self._step()
        self.raining = False

    def _is_undisturbed(self, broker_id: int) -> bool:
        """M3: it could be heard all the time, so nobody may say that it could not."""
        node, wire = self.nodes[broker_id], self.network.wire
        calm = not (wire.conditions.lost or wire.conditions.slow or self.plan.slow_disks)
        since = max(self.disturbed_us, node.started_us, wire.slow_until_us)
        return (
            node.running
            and calm
            and not node.stop_asked
            and self.full is not node
            and self.world.now - since > 5 * SECOND
        )

    # --- for those who disturb and mend

    def up(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.running]

    def crash(self, node: Node, *, power: bool) -> None:
        """Its process ends, with the power or without."""
        self.checks.crashed(node)
        self.checks.strays_kept(node)
        before = node.disk
        node.crash(power=power)
        if power:
            self.checks.power_lost(node, before)

    def end(self, node: Node, *, power: bool) -> None:
        """Its process ends, and is back after a while."""
        self.crash(node, power=power)
        self.start_later(node)

    def start_later(self, node: Node) -> None:
        self.world.after(self.rng.randint(*self.plan.down_us), lambda: self.start(node))

    def start(self, node: Node) -> None:
        if not node.running:
            node.start()

    def _ended(self, node: Node, how: BaseException | int) -> None:
        """A process has ended by itself. A supervisor starts it again."""
        self.checks.crashed(node)
        if isinstance(how, DataDirectoryError) and RECOVER in str(how):
            self.world.tell(f"broker {node.id} is recovered by hand")
            self.checks.mark("4.3 recovered by hand")
            try:
                for _ in recover_data_directory(node.disk, ROOT, lock=lambda path: lambda: None):
                    pass
            except DirectoryDamaged:
                if not self.faults.volumes.empty(node):
                    raise
        elif isinstance(how, RunOver) and START_OVER in str(how):
            self.faults.recoveries.start_over(node)
        elif isinstance(how, DirectoryDamaged) and self.faults.volumes.empty(node):
            pass
        elif (
            isinstance(how, BaseException)
            and not isinstance(how, TidelogError | OSError)
            and self._is_bug(how)
        ):
            raise how
        elif how == 0:
            self.checks.mark("4 clean stop")
        self.start_later(node)

    @staticmethod
    def _is_bug(how: BaseException) -> bool:
        bugs = (AssertionError, TypeError, AttributeError, KeyError, ValueError, DirectoryDamaged)
        return isinstance(how, bugs)

    def leader_of(self, key: Key) -> Node | None:
        """The broker that leads, and of several that believe so the one with the latest leader epoch."""
        leading = {replica.partition.leader_epoch: node for node in self.nodes.values()
                   if (replica := node.replicas.get(key)) and replica.leads}  # fmt: skip
        return leading[max(leading)] if leading else None


def simulate(seed: int, profile: str = "") -> Result:
    return Simulation(plan_of(seed, profile)).run()

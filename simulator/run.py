"""One run: a cluster is made, faults rain on it while clients work (safety), then they end (liveness).

Neighbours: `swarm` draws the plan, `faults` are what rains, `calm` is the end.
"""

from __future__ import annotations

import random
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from simulator.broker import CLUSTER_ID, Broker
from simulator.calm import Calm
from simulator.checks import Checks, Violated, require
from simulator.faults import Faults
from simulator.old_network import Anywhere, Conditions, Network
from simulator.plan import Plan
from simulator.producers import SimProducer
from simulator.quorum import Quorum
from simulator.readers import SimReader
from simulator.replica import Key
from simulator.swarm import plan_of
from simulator.world import MS, SECOND, World
from tidelog.errors import DiskFull, TidelogError
from tidelog.history import History
from tidelog.model import Durability, StreamSettings
from tidelog_broker.core.metadata import decide
from tidelog_broker.core.metadata.commands import Command
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.replication.times import ReplicationTimes
from tidelog_broker.errors import StorageFailure

FULL_CHECK_STEPS: Final = 1_000
BEGIN_SECONDS_MAX: Final = 60
SAFETY_SECONDS_MAX: Final = 600
READ_PAUSE_US: Final = 40 * MS

TIMES: Final = ReplicationTimes(replica_lag_max_ms=3_000)
"""Shorter than a broker's, so that a run sees it happen."""


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
        self.network = Network(self.world, plan.network)
        self.checks = Checks()
        self.history = History()
        self.brokers: dict[int, Broker] = {}
        self.rng: random.Random = self.world.rng_of("faults")
        self.keys: list[Key] = []
        self.producers: list[SimProducer] = []
        self.readers: list[SimReader] = []
        self._producer_id = 0
        self.disturbed_us = 0
        """When a cut last began or ended."""
        self.raining = False
        """Faults come."""
        self.full: Broker | None = None
        """Whose disk is full."""
        self.faults = Faults(self)
        self.calm = Calm(self)
        quorums: dict[int, Quorum] = {}
        for number in range(1, plan.brokers + 1):
            self.brokers[number] = self.network.hosts[number] = self._broker(number, quorums)
        checks = self.checks
        checks.brokers = self.brokers
        checks.now_us = lambda: self.world.now
        checks.is_undisturbed = self._is_undisturbed
        checks.disks_are_lost = plan.disk_losses > 0 or plan.strays > 0 or plan.rot > 0
        checks.leaders_are_moved = plan.leader_moves > 0
        checks.candidate = lambda broker: self.faults.processes.candidate(self.brokers[broker])
        checks.voter = lambda broker: self.faults.processes.voted(self.brokers[broker])

    def _broker(self, number: int, quorums: dict[int, Quorum]) -> Broker:
        plan = self.plan
        broker = Broker(
            self.world,
            self.network,
            self.checks,
            number,
            self.brokers,
            quorums,
            voters_wanted=plan.voters,
            times=TIMES,
        )
        broker.fast_raft = plan.fast_raft
        broker.late_copies = plan.late_copies
        broker.scrubs = plan.rot > 0
        broker.volume_flush = plan.volume_flush
        broker.skew_us = self.rng.randint(-plan.skew_us, plan.skew_us)
        if plan.slow_disks:
            broker.disk_us = (500, 20 * MS)
        return broker

    # --- the whole of it

    def run(self) -> Result:
        result = Result(self.plan.seed, self.plan)
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
        result.events = self.world.events
        result.seconds = self.world.now / SECOND
        result.fingerprint = self.world.fingerprint
        result.marks = dict(sorted(self.checks.marks.items()))
        result.acknowledged = sum(producer.acknowledged for producer in self.producers)
        result.elections = sum(len(truth.leaders) for truth in self.checks.truths.values())
        result.lines = list(self.world.lines)
        return result

    def until(self, condition: Callable[[], bool], seconds: float, what: str | Callable[[], str]) -> None:
        deadline = self.world.now + int(seconds * SECOND)
        looked = 0
        while True:
            if self.world.events >= looked:
                looked = self.world.events + 20
                if condition():
                    return
            require(
                self.world.now < deadline,
                "liveness",
                f"not within {seconds:g} s: {what() if callable(what) else what}",
            )
            self._step()

    def _step(self) -> None:
        try:
            require(self.world.step(), "liveness", "nothing is planned any more")
        except (OSError, DiskFull, StorageFailure) as error:
            broker = self.full
            if broker is None:
                raise
            # Whoever cannot write what he must does not go on (DESIGN 4.3).
            self.checks.mark("4.4 ended by a full disk")
            self.world.tell(f"broker {broker.id} ends: {error}")
            self.end(broker, power=False)
        if self.world.events % FULL_CHECK_STEPS == 0:
            self.checks.full()

    # --- the beginning

    def _begin(self) -> None:
        self.brokers[1].format_cluster()
        for broker in self.brokers.values():
            broker.start()
        calm, self.network.conditions = self.network.conditions, Conditions()
        self.until(self._all_registered, BEGIN_SECONDS_MAX, "all brokers are registered")
        for number, stream in enumerate(self.plan.streams):
            settings = StreamSettings(
                partitions=stream.partitions,
                replication_factor=stream.replication_factor,
                min_insync_replicas=min(stream.min_insync, stream.replication_factor),
                durability=Durability.FSYNC if stream.fsync else Durability.PAGE_CACHE,
            )
            stream_id = uuid.UUID(int=self.plan.seed * 10 + number + 1).bytes
            self.decide(
                lambda image, n=number, s=settings, i=stream_id: decide.create_stream(  # type: ignore[misc]
                    image, f"s{n}", s, stream_id=i, created_us=0
                )
            )
            self.keys += [(stream_id, partition) for partition in range(stream.partitions)]
        self.until(lambda: all(self.leader_of(key) for key in self.keys), BEGIN_SECONDS_MAX, "leaders")
        self.network.conditions = calm
        self._clients()

    def _all_registered(self) -> bool:
        image = self.checks.image
        return len(image.brokers) == len(self.brokers) and image.cluster_id == CLUSTER_ID

    def decide(self, decision: Callable[[ClusterImage], Command | None]) -> bool:
        """Has whoever controls propose something; whether anybody does."""
        for broker in self.brokers.values():
            if broker.running and broker.quorum.controlling.controls:
                try:
                    return broker.quorum.controlling.decide(decision)
                except TidelogError as error:
                    self.world.tell(f"refused: {error}")
                    return False
        return False

    def _clients(self) -> None:
        for partition, key in enumerate(self.keys):
            for index, kind in enumerate(self.plan.producers):
                self.producers.append(
                    SimProducer(
                        *self._client(), key, partition,
                        kind=kind, pause_us=self.plan.produce_pause_us, acks_all=index != 2,
                        producer_ids=self._new_producer_id,
                    )
                )  # fmt: skip
            for _ in range(self.plan.readers):
                self.readers.append(SimReader(*self._client(), key, partition, pause_us=READ_PAUSE_US))

    def _client(self) -> tuple[World, Network, dict[int, Broker], History, int]:
        address = -1 - len(self.producers) - len(self.readers)
        self.network.hosts[address] = Anywhere()
        return self.world, self.network, self.brokers, self.history, address

    def _new_producer_id(self) -> int:
        self._producer_id += 1
        return self._producer_id

    # --- the faults

    def _safety(self) -> None:
        end = self.world.now + SAFETY_SECONDS_MAX * SECOND
        self.raining = True
        self.faults.begin()
        begun = self.world.events
        while self.world.events - begun < self.plan.events and self.world.now < end:
            self._step()
        self.raining = False

    def _is_undisturbed(self, broker_id: int) -> bool:
        """M3: it could be heard all the time, so nobody may say that it could not."""
        broker, network = self.brokers[broker_id], self.network
        calm = not (network.conditions.lost or network.conditions.slow or self.plan.slow_disks)
        since = max(self.disturbed_us, broker.started_us)
        return (
            broker.running
            and calm
            and not broker.stopping
            and self.full is not broker
            and self.world.now - since > 5 * SECOND
        )

    # --- for those who disturb and mend

    def up(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.running]

    def end(self, broker: Broker, *, power: bool) -> None:
        """Its process ends, and is back after a while."""
        broker.crash(power=power)
        self.world.after(self.rng.randint(*self.plan.down_us), lambda: self.start(broker))

    def start(self, broker: Broker) -> None:
        if not broker.running:
            broker.start()

    def leader_of(self, key: Key) -> Broker | None:
        for broker in self.brokers.values():
            if broker.running:
                replica = broker.replicas.get(key)
                if replica is not None and replica.leads:
                    return broker
        return None


def simulate(seed: int, profile: str = "") -> Result:
    return Simulation(plan_of(seed, profile)).run()

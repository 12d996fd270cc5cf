"""One run: a cluster starts, faults happen while clients work (safety), then the faults end (liveness).

This module puts the parts together: `cluster` with the brokers, `clients`, `nats`, `faults`, and `liveness`
for the end; `checks` checks all of it. `plans.swarm` draws the plan, `steps` performs the events.
"""

from __future__ import annotations

import gc
import sys
import traceback
import uuid
from dataclasses import dataclass, field
from typing import Final

from simulator.checks import Checks, Setup, Violated
from simulator.clients.population import Population
from simulator.cluster import Cluster
from simulator.faults.recoveries import START_OVER
from simulator.faults.schedule import Faults
from simulator.kernel.wire import Conditions
from simulator.liveness import Liveness
from simulator.nats.deployment import NatsDeployment
from simulator.node import CLUSTER_ID, ROOT, Node
from simulator.plans.plan import Plan
from simulator.plans.swarm import plan_of
from simulator.steps import Steps
from simulator.world import SECOND, World
from tidelog.errors import TidelogError
from tidelog.model import Durability, StreamSettings
from tidelog_broker.core.metadata.decisions import streams as decide
from tidelog_broker.errors import DataDirectoryError, DirectoryDamaged, RunOver
from tidelog_broker.offline.rewrite import recover_data_directory

BEGIN_SECONDS_MAX: Final = 60
"""Simulated time until all brokers are registered, and until all partitions have leaders."""

SEGMENT_BYTES: Final = 8 << 10

RECOVER: Final = "tidelog-broker recover"
"""In the error of a broker that finds the mark of a failed flush: an administrator must run this command."""


@dataclass
class Result:
    """The result of a run."""

    seed: int
    plan: Plan
    events: int = 0
    seconds: float = 0.0
    """Simulated time."""
    fingerprint: str = ""
    violation: str = ""
    """The invariant or the error that ended the run; empty: none."""
    marks: dict[str, int] = field(default_factory=dict)
    """Which rule was exercised how often."""
    acknowledged: int = 0
    """Records that clients and publishers were told are committed."""
    elections: int = 0
    """Leader epochs that a broker began."""
    lines: list[str] = field(default_factory=list)
    """The trace."""

    broken: bool = False
    """A TypeError, AttributeError or NameError ended the run: a bug of the simulator or of a mutation."""

    @property
    def ok(self) -> bool:
        return not self.violation


class Simulation:
    """The parts of one run; the `Surroundings` of its checks."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = World(plan.seed)
        self.checks = Checks(
            Setup(
                surroundings=self,
                brokers={},
                disks_are_lost=any((plan.disk_losses, plan.strays, plan.rot, plan.put_backs, plan.file_rot)),
                leaders_are_moved=plan.leader_moves + plan.leader_returns > 0,
                skew_us_max=plan.skew_us,
            )
        )
        self.cluster = Cluster(plan, self.world, self.checks, self._ended)
        self.clients = Population(self.cluster)
        self.nats = NatsDeployment(self.cluster, self.clients.history)
        self.faults = Faults(self.cluster, self.clients, self.nats)
        self.steps = Steps(self.cluster)
        self.liveness = Liveness(self.cluster, self.steps, self.clients, self.nats, self.faults)

    def __repr__(self) -> str:
        return f"<Simulation {self.world!r}>"

    # --- what the checks ask and tell

    def now_us(self) -> int:
        return self.world.now

    def is_undisturbed(self, broker: int) -> bool:
        return self.cluster.is_undisturbed(broker)

    def is_whole(self) -> bool:
        return not self.cluster.network.wire.cuts

    def alarm(self) -> None:
        self.world.alarmed = True

    def votes_are_asked(self, broker: int) -> None:
        self.faults.processes.candidate(self.cluster.nodes[broker])

    def vote_is_given(self, broker: int) -> None:
        self.faults.processes.voted(self.cluster.nodes[broker])

    def removal_is_proposed(self, leader: int) -> None:
        self.faults.network.removal(self.cluster.nodes[leader])

    # --- the run

    def run(self) -> Result:
        result = Result(self.plan.seed, self.plan)
        # The garbage collector would close the coroutines of a dead process at a random moment.
        collecting = gc.isenabled()
        gc.disable()
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=lambda generator: None)
        try:
            self._begin()
            self._safety()
            self.liveness.settle()
            self.liveness.judge()
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
        result.acknowledged = self.nats.acknowledged + self.clients.acknowledged
        result.elections = sum(len(truth.leaders) for truth in self.checks.truths.values())
        result.lines = list(self.world.lines)
        return result

    def _end_all(self) -> None:
        """Leaves no process of this run to the garbage collector."""
        for node in self.cluster.nodes.values():
            if node.process is not None:
                node.process.kill()
        for client in (*self.clients.all, *self.faults.renewals.clients()):
            client.process.kill()
        self.nats.end()

    # --- the beginning

    def _begin(self) -> None:
        wire, nodes = self.cluster.network.wire, self.cluster.nodes
        calm, wire.conditions = wire.conditions, Conditions()
        self.nats.start()
        nodes[1].format_cluster()
        for node in nodes.values():
            node.start()
        self.steps.until(self._all_registered, BEGIN_SECONDS_MAX, "not all brokers are registered")
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
            self.cluster.decide(
                lambda image, n=number, s=settings, i=stream_id: decide.create_stream(  # type: ignore[misc]
                    image, f"s{n}", s, stream_id=i, created_us=0
                )
            )
            self.cluster.keys += [(stream_id, partition) for partition in range(stream.partitions)]
        self.steps.until(
            lambda: all(self.cluster.leader_of(key) for key in self.cluster.keys),
            BEGIN_SECONDS_MAX,
            "not all partitions have a leader",
        )
        wire.conditions = calm
        self.clients.start()
        self.nats.publish()

    def _all_registered(self) -> bool:
        image = self.checks.image
        return (
            len(image.brokers) == len(self.cluster.nodes)
            and image.cluster_id == CLUSTER_ID
            and all(node.service is not None and node.service.serving for node in self.cluster.nodes.values())
        )

    def _safety(self) -> None:
        end = self.world.now + int(self.plan.seconds * SECOND)
        self.cluster.faults_active = True
        self.faults.begin()
        events_end = self.world.events + self.plan.events_max
        while self.world.now < end and self.world.events < events_end:
            self.steps.step()
        self.cluster.faults_active = False

    def _ended(self, node: Node, how: BaseException | int) -> None:
        """A process has ended without a fault. A supervisor starts it again."""
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
        self.cluster.start_later(node)

    @staticmethod
    def _is_bug(how: BaseException) -> bool:
        bugs = (AssertionError, TypeError, AttributeError, KeyError, ValueError, DirectoryDamaged)
        return isinstance(how, bugs)


def simulate(seed: int, profile: str = "") -> Result:
    return Simulation(plan_of(seed, profile)).run()

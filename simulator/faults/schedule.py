"""Every fault of a run, each as often as the plan says."""

from __future__ import annotations

import random
from collections.abc import Callable

from simulator.clients.population import Population
from simulator.clients.renewals import Renewals
from simulator.cluster import Cluster
from simulator.faults.administration import Administration
from simulator.faults.clocks import ClockFaults
from simulator.faults.disks import DiskFaults
from simulator.faults.network import NetworkFaults
from simulator.faults.processes import ProcessFaults
from simulator.faults.recoveries import QuorumRecoveries
from simulator.faults.settings import SettingChanges
from simulator.faults.volumes import VolumeFaults
from simulator.nats.deployment import NatsDeployment
from simulator.nats.faults import NatsFaults
from simulator.world import SECOND


class Faults:
    """Injects all faults of the plan."""

    def __init__(self, cluster: Cluster, clients: Population, nats: NatsDeployment) -> None:
        self._cluster = cluster
        self.renewals = Renewals(cluster)
        self.processes = ProcessFaults(cluster)
        self.network = NetworkFaults(cluster)
        self.disks = DiskFaults(cluster, self.renewals)
        self.volumes = VolumeFaults(cluster, self.disks)
        self.administration = Administration(cluster, clients)
        self.settings = SettingChanges(cluster)
        self.clocks = ClockFaults(cluster)
        self.recoveries = QuorumRecoveries(cluster)
        self.nats = NatsFaults(cluster, nats.servers, nats.publishers, self.network)

    def begin(self) -> None:
        """Injects faults from now on, while `cluster.faults_active`."""
        plan, administration = self._cluster.plan, self.administration
        for rate, fault in (
            (plan.kills, lambda: self.processes.crash(power=False)),
            (plan.power_losses, lambda: self.processes.crash(power=True)),
            (plan.everybody, self.processes.crash_everybody),
            (plan.double_crashes, self.processes.crash_twice),
            (plan.stops, self.processes.stop),
            (plan.mid_write_kills, self.processes.end_in_a_write),
            (plan.stalls, self.processes.stall),
            (plan.cuts, self.network.cut),
            (plan.disk_losses, self.disks.lose_disk),
            (plan.rot, self.disks.rot),
            (plan.full_disks, self.disks.fill),
            (plan.strays, self.disks.misplace),
            (plan.failed_flushes, self.disks.fail_a_flush),
            (plan.start_moves, administration.move_start),
            (plan.minimum_changes, administration.change_minimum),
            (plan.reassignments, administration.reassign),
            (plan.leader_moves, administration.move_leader),
            (plan.deletions, administration.create_or_delete),
            *self.nats.faults(),
        ):
            if rate:
                self._repeat(self._cluster.rng, rate, fault)
        for name, fault in (
            ("durability_changes", self.settings.change_durability),
            ("retention_changes", self.settings.change_retention),
            ("setting_changes", self.settings.change_sizes),
            ("clock_jumps", self.clocks.jump),
            ("put_backs", self.volumes.copy_or_put_back),
            ("file_rot", self.volumes.rot),
            ("renewals", self.renewals.renew),
            ("failed_saves", self.disks.fail_a_save),
            ("leader_returns", administration.return_leader),
            ("lost_followers", self.network.lose_follower),
            ("recoveries", self.recoveries.recover),
        ):
            rate = getattr(plan, name)
            if rate:
                self._repeat(self._cluster.world.rng_of(f"rain of {name}"), rate, fault)

    def _repeat(self, rng: random.Random, rate: float, fault: Callable[[], object]) -> None:
        cluster = self._cluster

        def later() -> None:
            cluster.world.after(int(rng.expovariate(rate) * SECOND), again)

        def again() -> None:
            if cluster.faults_active:
                # First, because a fault may raise when a process dies of a full disk.
                later()
                fault()

        later()

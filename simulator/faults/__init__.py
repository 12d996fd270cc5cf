"""What rains on a cluster while clients work: each fault by the rate that the plan gives it.

One module a kind: `processes`, `network`, `disks`, `volumes` (put back, or rotten), `clocks`, and what people
do: `administration` (moves, deletions), `settings`, `recoveries` of the metadata. What happens to NATS is in
`simulator.nats.weather`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from simulator.clients.renewals import Renewals
from simulator.faults.administration import Administration
from simulator.faults.clocks import ClockFaults
from simulator.faults.disks import DiskFaults
from simulator.faults.network import NetworkFaults
from simulator.faults.processes import ProcessFaults
from simulator.faults.recoveries import QuorumRecoveries
from simulator.faults.settings import SettingChanges
from simulator.faults.volumes import VolumeFaults
from simulator.world import SECOND

if TYPE_CHECKING:
    from simulator.run import Simulation


class Faults:
    """See the module."""

    def __init__(self, run: Simulation) -> None:
        self._run = run
        self.processes = ProcessFaults(run)
        self.network = NetworkFaults(run)
        self.disks = DiskFaults(run)
        self.administration = Administration(run)
        self.settings = SettingChanges(run)
        self.clocks = ClockFaults(run)
        self.renewals = Renewals(run)
        self.volumes = VolumeFaults(run)
        self.recoveries = QuorumRecoveries(run)

    def begin(self) -> None:
        """From now on, until the run says that it is over."""
        plan, people = self._run.plan, self.administration
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
            (plan.start_moves, people.move_start),
            (plan.minimum_changes, people.change_minimum),
            (plan.reassignments, people.reassign),
            (plan.leader_moves, people.move_leader),
            (plan.deletions, people.create_or_delete),
            *self._run.nats.weather.faults(),
        ):
            if rate:
                self._rain(self._run.rng, rate, fault)
        for name, fault in (
            ("durability_changes", self.settings.change_durability),
            ("retention_changes", self.settings.change_retention),
            ("setting_changes", self.settings.change_sizes),
            ("clock_jumps", self.clocks.jump),
            ("put_backs", self.volumes.copy_or_put_back),
            ("file_rot", self.volumes.rot),
            ("renewals", self.renewals.renew),
            ("failed_saves", self.disks.fail_a_save),
            ("leader_returns", people.return_leader),
            ("lost_followers", self.network.lose_follower),
            ("recoveries", self.recoveries.recover),
        ):
            rate = getattr(plan, name)
            if rate:
                self._rain(self._run.world.rng_of(f"rain of {name}"), rate, fault)

    def _rain(self, rng: random.Random, rate: float, fault: Callable[[], object]) -> None:
        run = self._run

        def later() -> None:
            run.world.after(int(rng.expovariate(rate) * SECOND), again)

        def again() -> None:
            if run.raining:
                # First, because a fault may end in a process that dies of a full disk.
                later()
                fault()

        later()

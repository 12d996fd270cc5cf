"""A random network, random crashes and a random administrator, by a seed; then calm."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

from raft.raft_cluster import Cluster, Machine, voter
from raft.raft_disk import Disk, MemoryDisk
from tidelog.errors import InvalidRequest
from tidelog_broker.core.raft.errors import Busy, NotRaftLeader
from tidelog_broker.model import Configuration, Voter


class Storm:
    """One seed. `run` raises AssertionError when a check of the cluster fails or calm brings no progress."""

    def __init__(self, seed: int, new_disk: Callable[[], Disk] = MemoryDisk) -> None:
        rng = self.rng = random.Random(seed)
        self.cluster = Cluster(lambda _: random.Random(rng.random()), new_disk)
        self.cluster.format(rng.choice([1, 2, 3, 3, 5]), rng.choice([0, 0, 1, 2]))
        self.tick = rng.choice([0.05, 0.2, 0.4])
        self.loss = rng.choice([0, 0.02, 0.2])
        self.duplicate = rng.choice([0, 0.05])
        self.crash = rng.choice([0, 0.002, 0.01])
        self.cut = rng.choice([0, 0.005])
        self.member = rng.choice([0, 0.01])
        self.lost: Voter | None = None
        """A voter whose disk is gone and that is not yet replaced (M2); one at a time."""
        self.disks = 0

    def run(self, steps: int) -> Cluster:
        for step in range(steps):
            self._step(step)
            self._faults()
        self._calm()
        return self.cluster

    def _step(self, step: int) -> None:
        rng, cluster = self.rng, self.cluster
        running = cluster.running
        dice = rng.random()
        if running and dice < self.tick:
            rng.choice(running).up.tick()
        elif running and dice < self.tick + 0.3:
            cluster.work(rng.choice(running))
        elif running and dice < self.tick + 0.35:
            self._propose(rng.choice(running), b"%d" % step)
        elif running and dice < self.tick + 0.36:
            with suppress(NotRaftLeader, Busy):
                cluster.read(rng.choice(running), step)
        elif cluster.wire:
            at = rng.randrange(len(cluster.wire)) if rng.random() < 0.3 else 0
            if rng.random() < self.loss:
                cluster.wire.pop(at)
            else:
                cluster.deliver(at, keep=rng.random() < self.duplicate)

    def _propose(self, machine: Machine, payload: bytes) -> None:
        with suppress(NotRaftLeader, Busy):
            machine.up.propose([payload])
            self.cluster.proposed += 1

    def _faults(self) -> None:
        rng, cluster = self.rng, self.cluster
        if rng.random() < self.crash:
            me = rng.choice(list(cluster.machines))
            if me == self.lost:
                pass
            elif cluster.machines[me].node is None:
                cluster.start(me)
            else:
                self._crash(me)
        if rng.random() < self.crash / 5:
            self._lose_disk()
        if rng.random() < self.cut:
            a, b = rng.choice(list(cluster.machines)), rng.choice(list(cluster.machines))
            cluster.cut ^= {(a, b)} if rng.random() < 0.5 else {(a, b), (b, a)}
        if rng.random() < self.member:
            self._reconfigure()
        if rng.random() < 0.005 and cluster.running:
            cluster.compact(rng.choice(cluster.running))
        leader = cluster.leader()
        if rng.random() < 0.002 and leader is not None:
            with suppress(InvalidRequest):
                leader.transfer(rng.choice(list(cluster.machines)))

    def _crash(self, me: Voter) -> None:
        rng, cluster = self.rng, self.cluster
        machine = cluster.machines[me]
        machine.disk.crash(None if machine.doing is None else machine.doing.persist, rng)
        cluster.crash(me)
        for other in cluster.running:
            if rng.random() < 0.5:
                other.up.refused(me)
            other.up.disconnected(me)

    def _lose_disk(self) -> None:
        """A voter among three or more comes back with an empty disk, as somebody else."""
        leader = self.cluster.leader()
        if leader is None or self.lost is not None or self._few_voters():
            return
        self.lost = self.rng.choice(leader.configuration.voters)
        if self.cluster.machines[self.lost].node is not None:
            self._crash(self.lost)
        self.disks += 1
        new = voter(self.lost.broker_id, self.disks)
        self.cluster.add(new)
        self.cluster.start(new)

    def _few_voters(self) -> bool:
        """Somewhere there is a list of voters, committed or not, that would have no majority without one."""
        lists = [machine.disk.configurations for machine in self.cluster.machines.values()]
        newest = [found[-1][1] for found in lists if found]
        newest += [machine.up.configuration for machine in self.cluster.running]
        return any(0 < len(one.voters) < 3 for one in newest)

    def _reconfigure(self) -> None:
        leader = self.cluster.leader()
        if leader is None:
            return
        now = leader.configuration
        if self.lost is not None and self.lost in now.voters:
            one = self.lost
        else:
            one = self.rng.choice([me for me in self.cluster.machines if me != self.lost])
        if one in now.voters:
            learners = now.learners if one == self.lost else (*now.learners, one)
            new = Configuration(tuple(v for v in now.voters if v != one), learners)
        elif one in now.learners:
            new = Configuration((*now.voters, one), tuple(v for v in now.learners if v != one))
        else:
            new = Configuration(now.voters, (*now.learners, one))
        with suppress(Busy, InvalidRequest):
            leader.configure(new)
        self._forget_lost()

    def _forget_lost(self) -> None:
        """Once nobody counts it any more, its machine is no part of the cluster."""
        lost = self.lost
        if lost is None:
            return
        logs = [machine.disk.configurations for machine in self.cluster.machines.values()]
        if all(lost not in one.voters for log in logs for _, one in log[-2:]):
            del self.cluster.machines[lost]
            self.lost = None

    # --- calm

    def _calm(self) -> None:
        """Everybody is back, nothing is lost: what is proposed now is committed everywhere."""
        cluster = self.cluster
        cluster.cut.clear()
        for me, machine in cluster.machines.items():
            if machine.node is None and me != self.lost:
                cluster.start(me)
        self._settle(lambda: cluster.leader() is not None)
        before = cluster.proposed

        def asked() -> bool:
            leader = cluster.leader()
            if leader is not None:
                self._propose(cluster.machines[leader.me], b"calm")
            return cluster.proposed > before

        self._settle(asked)
        self._settle(self._same)

    def _same(self) -> bool:
        leader = self.cluster.leader()
        if leader is None:
            return False
        last = leader.log.last_index
        members = [*leader.configuration.voters, *leader.configuration.learners]
        return leader.log.commit == last and all(
            self.cluster.machines[me].applied_index == last for me in members if me != self.lost
        )

    def _settle(self, done: Callable[[], bool]) -> None:
        cluster = self.cluster
        for _ in range(5000):
            for machine in cluster.running:
                cluster.work(machine)
            for _ in range(len(cluster.wire)):
                cluster.deliver(0)
            if done():
                return
            if not cluster.wire:
                for machine in cluster.running:
                    machine.up.tick()
        raise AssertionError(f"not settled: {[machine.node for machine in cluster.machines.values()]}")

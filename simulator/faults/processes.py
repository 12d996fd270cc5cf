"""Processes that end or pause: killed, without power, stopped in good order, one or all, at bad moments."""

from __future__ import annotations

from typing import Final

from simulator.cluster import Cluster
from simulator.node import Node
from simulator.world import MS, SECOND

STOP_US_MAX: Final = 40 * SECOND
"""A supervisor kills a process that has not stopped by then."""


class ProcessFaults:
    """Ends, stops and pauses broker processes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def crash(self, *, power: bool) -> None:
        up = self._cluster.up()
        leaders = [
            broker for key in self._cluster.keys if (broker := self._cluster.leader_of(key)) is not None
        ]
        controllers = [broker for broker in up if broker.controls]
        if self._cluster.plan.fast_raft and controllers and self._cluster.rng.random() < 0.7:
            self._cluster.end(controllers[0], power=power)
        elif leaders and self._cluster.rng.random() < 0.5:
            self._cluster.end(self._cluster.rng.choice(leaders), power=power)
        elif up:
            self._cluster.end(self._cluster.rng.choice(up), power=power)

    def crash_twice(self) -> None:
        """Kills a broker and starts it; its machine loses power before the recovery ends (2a)."""
        up = self._cluster.up()
        if up:
            broker = self._cluster.rng.choice(up)
            self._cluster.crash(broker, power=False)
            self._cluster.start(broker)
            cluster, started = self._cluster, broker.run

            def again() -> None:
                if cluster.faults_active and broker.running and broker.run == started:
                    cluster.end(broker, power=True)

            cluster.world.after(cluster.rng.randint(1 * MS, 800 * MS), again)

    def voted(self, broker: Node) -> None:
        """A broker gave its vote: with the plan's probability its process ends and starts again at once."""
        if self._cluster.faults_active and self._cluster.rng.random() < self._cluster.plan.vote_kills:
            self._strike(broker.id, self._cluster.rng.randint(0, 2 * MS))

    def candidate(self, broker: Node) -> None:
        """A broker asks for votes: with the plan's probability another broker ends, and starts again soon."""
        if self._cluster.faults_active and self._cluster.rng.random() < self._cluster.plan.election_kills:
            # Not the broker that asks, but one that may vote.
            others = [number for number in sorted(self._cluster.nodes) if number != broker.id]
            victim = self._cluster.rng.choice(others)
            self._strike(victim, self._cluster.rng.randint(0, 3 * MS))

    def _strike(self, victim: int, delay_us: int) -> None:
        cluster = self._cluster
        broker = cluster.nodes[victim]

        def strike() -> None:
            if broker.running and cluster.faults_active:
                cluster.crash(broker, power=cluster.rng.random() < 0.5)
                cluster.world.after(
                    cluster.rng.randint(1, cluster.plan.restart_us), lambda: cluster.start(broker)
                )

        cluster.world.after(delay_us, strike)

    def crash_everybody(self) -> None:
        power = self._cluster.rng.random() < 0.5
        self._cluster.world.tell(f"everybody {'loses power' if power else 'is killed'}")
        for broker in self._cluster.up():
            self._cluster.end(broker, power=power)

    def stop(self) -> None:
        """Stops a broker as a rolling restart does: it hands leadership over before its process ends."""
        cluster = self._cluster
        up = [broker for broker in cluster.up() if not broker.stop_asked]
        if not up:
            return
        broker = cluster.rng.choice(up)
        cluster.world.tell(f"broker {broker.id} is asked to stop")
        broker.ask_to_stop()
        started = broker.run

        def enough() -> None:
            if broker.running and broker.run == started:
                cluster.world.tell(f"broker {broker.id} took too long to stop")
                cluster.end(broker, power=False)

        cluster.world.after(STOP_US_MAX, enough)

    def end_in_a_write(self) -> None:
        """Ends a process between two operations on its disk."""
        up = self._cluster.up()
        if up:
            broker = self._cluster.rng.choice(up)
            broker.disk.crash_at = broker.disk.operations + self._cluster.rng.randint(0, 40)

    def stall(self) -> None:
        """Pauses a process, as a stop signal or a machine that swaps does; or makes its disk slow."""
        cluster = self._cluster
        up = cluster.up()
        if not up:
            return
        broker, until = cluster.rng.choice(up), cluster.world.now + cluster.rng.randint(50 * MS, 4 * SECOND)
        if cluster.rng.random() < 0.5:
            cluster.world.tell(f"broker {broker.id} stands still")
            cluster.disturbed_us = until
            broker.stall(until)
        else:
            cluster.world.tell(f"the disk of broker {broker.id} is slow")
            broker.slow_disk(until)
            cluster.disturbed_us = until

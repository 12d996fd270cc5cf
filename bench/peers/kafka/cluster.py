"""Three Kafka nodes on this machine, each broker and controller."""

from __future__ import annotations

from pathlib import Path

from bench.harness.processes import Failed, Server, free_port
from bench.peers.kafka.server import REQUEST_SECONDS_MAX, Kafka, Topics, jars, new_cluster_id
from tidelog.cli.local.waiting import holds_within

BROKERS = 3
WHOLE_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.1


class KafkaCluster(Topics):
    """Three nodes, each broker and controller; topics have three replicas and a min ISR of 2."""

    replicas = BROKERS

    def __init__(self, folder: Path) -> None:
        controllers = {node: free_port() for node in range(1, BROKERS + 1)}
        cluster_id = new_cluster_id()
        self.brokers = {
            node: Kafka(folder, node=node, controllers=controllers, cluster_id=cluster_id)
            for node in controllers
        }

    @property
    def address(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def pids(self) -> list[int]:
        return [broker.pid for broker in self.brokers.values()]

    @property
    def members(self) -> list[Server]:
        return list(self.brokers.values())

    def start(self) -> None:
        jars()
        for broker in self.brokers.values():
            broker.begin()
        for broker in self.brokers.values():
            broker.wait_ready()
        self.wait_whole()

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.stop()

    def revive(self, member: Server) -> None:
        """Starts a node that has ended on its old ports and data, and waits until the cluster is whole."""
        assert isinstance(member, Kafka)
        member.start()
        self.wait_whole()

    def wait_whole(self) -> None:
        """Waits until all brokers are registered; raises `Failed` after a minute."""
        admin = self.admin()

        def all_registered() -> bool:
            return len(admin.list_topics(timeout=REQUEST_SECONDS_MAX).brokers) == BROKERS

        if not holds_within(all_registered, WHOLE_SECONDS_MAX, pause=LOOK_SECONDS):
            raise Failed(f"not all brokers are registered within {WHOLE_SECONDS_MAX:g} s")

    def leader_of(self, topic: str) -> Kafka:
        """The leader, once all replicas are in sync; raises `Failed` after a minute."""
        admin, leader = self.admin(), -1

        def in_sync() -> bool:
            nonlocal leader
            found = admin.list_topics(topic, timeout=REQUEST_SECONDS_MAX).topics[topic].partitions.get(0)
            leader = -1 if found is None else found.leader
            return found is not None and leader in self.brokers and len(found.isrs) == BROKERS

        if not holds_within(in_sync, WHOLE_SECONDS_MAX, pause=LOOK_SECONDS):
            raise Failed(f"{topic} is not in sync within {WHOLE_SECONDS_MAX:g} s")
        return self.brokers[leader]

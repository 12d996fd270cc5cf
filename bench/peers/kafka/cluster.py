"""Three Kafka nodes on this machine, each broker and controller."""

from __future__ import annotations

from pathlib import Path
from time import monotonic, sleep

from bench.peers.kafka.server import REQUEST_SECONDS_MAX, Kafka, Topics, jars, new_cluster_id
from bench.processes import Failed, Server, free_port

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
        """Starts a member that has ended, on its old ports and data, and waits for the cluster."""
        assert isinstance(member, Kafka)
        member.start()
        self.wait_whole()

    def wait_whole(self) -> None:
        """Until all brokers are registered; raises `Failed`."""
        deadline = monotonic() + WHOLE_SECONDS_MAX
        admin = self.admin()
        while len(admin.list_topics(timeout=REQUEST_SECONDS_MAX).brokers) < BROKERS:
            if monotonic() > deadline:
                raise Failed(f"not all brokers are registered within {WHOLE_SECONDS_MAX:g} s")
            sleep(LOOK_SECONDS)

    def leader_of(self, topic: str) -> Kafka:
        """Once all replicas are in sync; raises `Failed`."""
        deadline = monotonic() + WHOLE_SECONDS_MAX
        admin = self.admin()
        while monotonic() < deadline:
            found = admin.list_topics(topic, timeout=REQUEST_SECONDS_MAX).topics[topic].partitions.get(0)
            if found is not None and found.leader in self.brokers and len(found.isrs) == BROKERS:
                return self.brokers[found.leader]
            sleep(LOOK_SECONDS)
        raise Failed(f"{topic} is not in sync within {WHOLE_SECONDS_MAX:g} s")

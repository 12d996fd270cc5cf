"""Failovers of Kafka: three nodes and the Java producer, with defaults."""

from __future__ import annotations

from functools import partial

from bench.clusters import failover
from bench.clusters.failover import FAULTS, Fault, Scene, Target
from bench.clusters.steady_load import RATE
from bench.harness.model import Contender
from bench.harness.stage import Stage
from bench.peers.kafka.cluster import KafkaCluster
from bench.peers.kafka.contenders import NAME
from bench.peers.kafka.server import jars, java_command

WARM_SECONDS = 3.0
HEAP = "256M"


def contender(stage: Stage, *, event: str) -> Contender:
    jars()
    return failover.contender(
        NAME,
        lambda: KafkaCluster(stage.folder),
        partial(_scene, stage),
        fault=FAULTS[event],
        times=stage.effort.peer_kills,
        warm_seconds=WARM_SECONDS,
        settings={"client": "KafkaProducer: defaults (acks=all, idempotent)", "durability": "page cache"},
    )


def _scene(stage: Stage, target: Target, fault: Fault) -> Scene:
    assert isinstance(target, KafkaCluster)
    topic = stage.stream_name()
    target.create(topic, fsync=False)
    leader = target.leader_of(topic)
    follower = next(broker for broker in target.brokers.values() if broker is not leader)
    command = java_command("Load", "steady", target.address, topic, 100, RATE, heap=HEAP)
    return Scene(topic, follower if fault.role == "follower" else leader, command)

"""Kafka with many topics of three replicas."""

from __future__ import annotations

from time import perf_counter

from bench.clusters import many
from bench.clusters.many import Footprint, footprint
from bench.harness.model import Contender
from bench.harness.stage import Stage
from bench.peers.kafka.cluster import KafkaCluster
from bench.peers.kafka.contenders import NAME
from bench.peers.kafka.server import jars

TOPICS_PER_REQUEST = 100


def cost(stage: Stage, *, streams: int, aspect: str) -> Contender:
    jars()

    def measure(count: int) -> Footprint:
        cluster = KafkaCluster(stage.folder)
        try:
            cluster.start()
            names = [f"many-{number}" for number in range(count)]
            began = perf_counter()
            for start in range(0, count, TOPICS_PER_REQUEST):
                cluster.create_all(names[start : start + TOPICS_PER_REQUEST], fsync=False)
            return footprint(cluster.pids, perf_counter() - began)
        finally:
            cluster.stop()

    settings = {"client": f"librdkafka: {TOPICS_PER_REQUEST} topics a request; heap 1 GiB"}
    return many.contender(stage, NAME, measure, streams=streams, aspect=aspect, settings=settings)

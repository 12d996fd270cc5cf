"""JetStream with many streams of three replicas."""

from __future__ import annotations

from bench.clusters import many
from bench.clusters.many import Footprint, footprint
from bench.harness.model import Contender
from bench.harness.processes import run_for_json
from bench.harness.stage import Stage
from bench.peers.jetstream.contenders import load_program
from bench.peers.jetstream.server import NatsCluster, version


def cost(stage: Stage, *, streams: int, aspect: str) -> Contender:
    load_program()

    def measure(count: int) -> Footprint:
        cluster = NatsCluster(stage.folder)
        try:
            cluster.start()
            command = [
                load_program(),
                "create",
                "-url",
                cluster.url,
                "-stream",
                "many",
                "-records",
                str(count),
            ]
            return footprint(cluster.pids, float(run_for_json(command)["value"]))
        finally:
            cluster.stop()

    settings = {"client": "nats.go: CreateStream, 32 at a time"}
    name = f"jetstream-{version()} (Go)"
    return many.contender(stage, name, measure, streams=streams, aspect=aspect, settings=settings)

"""Failovers of JetStream: three servers and the Go client, with defaults."""

from __future__ import annotations

from functools import partial

from bench.clusters import failover
from bench.clusters.failover import FAULTS, Fault, Scene, Target
from bench.clusters.steady_load import RATE
from bench.harness.model import Contender
from bench.harness.stage import Stage
from bench.peers.jetstream.contenders import load_program
from bench.peers.jetstream.server import NatsCluster, version

WARM_SECONDS = 1.0


def contender(stage: Stage, *, event: str) -> Contender:
    load_program()
    return failover.contender(
        f"jetstream-{version()} (Go)",
        lambda: NatsCluster(stage.folder),
        partial(_scene, stage),
        fault=FAULTS[event],
        times=stage.effort.peer_kills,
        warm_seconds=WARM_SECONDS,
        settings={
            "client": "nats.go: Publish, each record in a goroutine, its default timeout of 5 s; "
            "connected to all servers, reconnects after 50 ms",
            "durability": "default: the file is synced every 2 minutes",
        },
    )


def _scene(stage: Stage, target: Target, fault: Fault) -> Scene:
    assert isinstance(target, NatsCluster)
    stream = stage.stream_name()
    target.create(stream)
    leader = target.leader_of(stream)
    follower = next(server for server in target.servers.values() if server is not leader)
    command = [
        load_program(), "steady", "-url", target.url, "-stream", stream, "-rate", str(RATE),
    ]  # fmt: skip
    return Scene(stream, follower if fault.role == "follower" else leader, command)

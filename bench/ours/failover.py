"""Failovers of Tidelog: three brokers and the public client, with defaults."""

from __future__ import annotations

from functools import partial

from bench.clusters import failover
from bench.clusters.failover import FAULTS, Fault, Scene, Target
from bench.clusters.steady_load import RATE
from bench.harness.model import OURS, Contender
from bench.harness.processes import python
from bench.harness.stage import Stage
from bench.ours.cluster import CREATES_MAX, Cluster

WARM_SECONDS = 1.0


def contender(stage: Stage, *, event: str) -> Contender:
    return failover.contender(
        OURS,
        lambda: Cluster(stage.folder),
        partial(_scene, stage),
        fault=FAULTS[event],
        times=stage.effort.kills,
        warm_seconds=WARM_SECONDS,
        settings={"client": "tidelog, asyncio on uvloop: send(), defaults", "durability": "fsync"},
    )


def _scene(stage: Stage, target: Target, fault: Fault) -> Scene:
    """A stream whose leader is also the controller only where the case asks for that."""
    assert isinstance(target, Cluster)
    names = [stage.stream_name() for _ in range(CREATES_MAX)]
    both = fault.role == "controller"
    stream = target.create_led_by_controller(names, fsync=True, wanted=both)
    leader, controller = target.leader_of(stream), target.controller()
    victim = leader
    if fault.role == "follower":
        victim = next(broker for broker in target.brokers if broker not in (leader, controller))
    command = python("bench.ours.steady", "--address", target.address, "--stream", stream, "--rate", RATE)
    return Scene(stream, victim, command)

"""How long users wait for the operator: on a real Kubernetes API, with real brokers.

    PYTHONPATH=tests python -m bench.operator_times [--times 5]

- `stream_ready_s`: from `kubectl apply` of a Stream (3 partitions, 3 copies) until it is Ready.
- `cluster_ready_s`: from `kubectl apply` of a Cluster until its three brokers serve and its status is Ready.
- `true_after_start_s` and `true_after_s`: the API server and the operator are killed, then the leader of a
partition. The time until the status names the new leader: from the start of the API server and the
operator, and from the moment when the API server answers again.
- `written_while_away`: records that were acknowledged after the leader was killed and before the two started.

Prints JSON with every measurement, in seconds, and the medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import tidelog.blocking
from bench.many_objects import manifest
from support.kube.broker_pods import BrokerPods
from support.kube.control_plane import ControlPlane, assets
from support.kube.nodes import Nodes
from support.kube.operator_process import OperatorProcess
from support.kube.situation import ClusterOnNodes
from tidelog.cli.local.waiting import holds_within

SECONDS_MAX: Final = 120.0
LOOK_SECONDS: Final = 0.02
WRITES_WHILE_AWAY: Final = 200
CLUSTER: Final = {"image": "tidelog:1", "storage": {"size": "10Gi"}}
STREAM: Final = {"cluster": "main", "partitions": 3, "replicationFactor": 3}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.operator_times",
        description="Measures how long users wait for the operator and prints JSON.",
        epilog="Needs the folder tests on PYTHONPATH.",
    )
    parser.add_argument("--times", type=int, default=5, help="measurements of each. Default: %(default)s")
    times = parser.parse_args().times
    programs, why_not = assets()
    if programs is None:
        raise SystemExit(why_not)
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as name:
        folder = Path(name)
        found = {
            **_with_brokers(programs, folder, times),
            "cluster_ready_s": _clusters(programs, folder, times),
        }
    medians = {f"{name}_median": statistics.median(each) for name, each in found.items()}
    print(json.dumps({**found, **medians}, indent=2))


def _with_brokers(programs: Path, folder: Path, times: int) -> dict[str, list[float]]:
    with ControlPlane(programs, folder / "plane") as plane:
        plane.add_crds()
        plane.apply(manifest("Cluster", "main", CLUSTER))
        with (
            BrokerPods(plane, folder, "main", 3) as pods,
            # A container that is started again in its pod keeps its name.
            OperatorProcess(folder, plane.kubeconfig, "--identity", "tidelog-operator-0") as operator,
        ):
            ready = [_stream(plane, f"orders-{number}") for number in range(times)]
            away = [_away(plane, pods, operator, "orders-0") for _ in range(times)]
    return {
        "stream_ready_s": ready,
        "true_after_start_s": [one for one, _, _ in away],
        "true_after_s": [one for _, one, _ in away],
        "written_while_away": [count for _, _, count in away],
    }


def _stream(plane: ControlPlane, name: str) -> float:
    began = time.monotonic()
    plane.apply(manifest("Stream", name, STREAM))
    return _until(lambda: _is_ready(plane.object("Stream", name)), began)


def _away(
    plane: ControlPlane, pods: BrokerPods, operator: OperatorProcess, name: str
) -> tuple[float, float, int]:
    leader = plane.object("Stream", name)["status"]["partitions"][0]["leader"]
    with tidelog.blocking.connect([broker.address for broker in pods.brokers]) as client:
        operator.kill()
        plane.stop_api()
        pods.brokers[leader].kill()
        with client.producer(name) as producer:
            for number in range(WRITES_WHILE_AWAY):
                producer.send(str(number).encode(), partition=0)
        now = client.describe_stream(name).partitions[0].leader
    assert now not in (None, leader)
    began = time.monotonic()
    operator.launch()
    plane.start_api()
    answers = time.monotonic()
    _until(lambda: _leads(plane, name) == now, began)
    true = time.monotonic()
    pods.brokers[leader].launch()
    pods.brokers[leader].wait_ready()
    _until(lambda: _leads(plane, name) == leader and _is_ready(plane.object("Stream", name)), began)
    return round(true - began, 2), round(true - answers, 2), WRITES_WHILE_AWAY


def _leads(plane: ControlPlane, name: str) -> int | None:
    partition: dict[str, Any] = plane.object("Stream", name)["status"]["partitions"][0]
    return partition.get("leader")


def _clusters(programs: Path, folder: Path, times: int) -> list[float]:
    found = []
    with ControlPlane(programs, folder / "pods", controllers=True) as plane:
        plane.add_crds()
        with Nodes(plane, folder / "nodes") as nodes, OperatorProcess(folder, plane.kubeconfig):
            for number in range(times):
                cluster = ClusterOnNodes(plane, nodes, f"shop-{number}")
                began = time.monotonic()
                cluster.apply(brokers=3)
                found.append(_until(partial(cluster.says_so, 3), began))
                plane.kubectl("delete", "cluster.tidelog.io", f"shop-{number}")
    return found


def _is_ready(found: dict[str, Any]) -> bool:
    conditions = found.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _until(condition: Callable[[], bool], began: float) -> float:
    """Waits until the condition holds; seconds since `began`."""
    assert holds_within(condition, SECONDS_MAX, pause=LOOK_SECONDS), f"not within {SECONDS_MAX:g} s"
    return round(time.monotonic() - began, 2)


if __name__ == "__main__":
    main()

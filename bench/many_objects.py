"""Hundreds of Streams at once: the operator on a real Kubernetes API, with three real brokers.

    PYTHONPATH=tests python -m bench.many_objects [--streams 500] [--idle-seconds 60]

Prints JSON: the time from `kubectl apply` until every Stream is Ready, the CPU, memory and API requests of
the operator meanwhile, and its CPU and requests when nothing changes any more.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from support.kube.broker_pods import BrokerPods
from support.kube.control_plane import ControlPlane, assets
from support.kube.operator_process import OperatorProcess
from tidelog.cli.local.waiting import holds_within

READY_SECONDS_MAX = 600.0
LOOK_SECONDS = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.many_objects",
        description="Measures the operator with hundreds of Streams and prints JSON.",
        epilog="Needs the folder tests on PYTHONPATH.",
    )
    parser.add_argument("--streams", type=int, default=500, help="Streams to apply. Default: %(default)s")
    parser.add_argument(
        "--idle-seconds", type=float, default=60.0, help="how long to measure the idle operator. Default: 60"
    )
    options = parser.parse_args()
    programs, why_not = assets()
    if programs is None:
        raise SystemExit(why_not)
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as name:
        folder = Path(name)
        with ControlPlane(programs, folder / "plane") as plane:
            plane.add_crds()
            plane.apply(manifest("Cluster", "main", {"image": "tidelog:1", "storage": {"size": "10Gi"}}))
            with (
                BrokerPods(plane, folder, "main", 3),
                OperatorProcess(folder, plane.kubeconfig) as operator,
            ):
                found = _measured(plane, operator, options.streams, options.idle_seconds)
    print(json.dumps(found, indent=2))


def manifest(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "tidelog.io/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


def _measured(
    plane: ControlPlane, operator: OperatorProcess, streams: int, idle_seconds: float
) -> dict[str, float]:
    process = psutil.Process(operator.pid)
    manifests = [
        manifest("Stream", f"orders-{number}", {"cluster": "main", "subject": f"orders.{number}.>"})
        for number in range(streams)
    ]
    before, cpu, began = _requests(operator), _cpu(process), time.monotonic()
    plane.kubectl("apply", "--server-side", "-f", "-", given=manifests)
    applied = time.monotonic() - began
    all_ready = holds_within(lambda: _ready(plane) == streams, READY_SECONDS_MAX, pause=LOOK_SECONDS)
    assert all_ready, f"not every Stream is Ready within {READY_SECONDS_MAX:g} s"
    took = time.monotonic() - began
    busy, made = _cpu(process) - cpu, _requests(operator)
    # The last status writes come back to the operator as events.
    time.sleep(5)
    quiet, cpu, began = _requests(operator), _cpu(process), time.monotonic()
    time.sleep(idle_seconds)
    seconds = time.monotonic() - began
    return {
        "streams": streams,
        "applied_s": round(applied, 1),
        "ready_s": round(took, 1),
        "api_requests": made - before,
        "api_requests_per_s": round((made - before) / took, 1),
        "busy_cpu_s": round(busy, 1),
        "memory_mb": round(process.memory_info().rss / 1e6, 1),
        "idle_cpu_percent": round(100 * (_cpu(process) - cpu) / seconds, 2),
        "idle_api_requests_per_s": round((_requests(operator) - quiet) / seconds, 2),
    }


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _ready(plane: ControlPlane) -> int:
    path = "/apis/tidelog.io/v1alpha1/namespaces/default/streams"
    found = json.loads(plane.get(path))["items"]
    return sum(
        one["type"] == "Ready" and one["status"] == "True"
        for each in found
        for one in each.get("status", {}).get("conditions", ())
    )


def _requests(operator: OperatorProcess) -> float:
    """The operator's requests to the Kubernetes API since it started."""
    return sum(
        float(line.rpartition(" ")[2])
        for line in operator.get("/metrics").splitlines()
        if line.startswith("tidelog_operator_api_requests_total")
    )


if __name__ == "__main__":
    main()

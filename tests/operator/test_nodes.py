"""A StatefulSet on simulated nodes: Kubernetes' own controllers, and a real broker for each of its pods."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelog.blocking
from support.kube.control_plane import ControlPlane
from support.kube.nodes import Nodes
from support.waiting import wait_until
from tidelog_broker.__main__ import run as tidelog_broker_command

# This module tests the simulated nodes themselves.
pytestmark = pytest.mark.long

Manifest = dict[str, Any]

PODS = ("main-0", "main-1", "main-2")
LABELS = {"app": "main"}
RECORDS = [str(number).encode() for number in range(100)]
SEEDS = ",".join(f"{pod}.main-brokers.default.svc:9212" for pod in PODS)


def probe(path: str, **timing: int) -> Manifest:
    return {"httpGet": {"path": path, "port": "http"}, "periodSeconds": 1, **timing}


def field(path: str) -> Manifest:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


BROKER: Manifest = {
    "name": "broker",
    "image": "tidelog.test/broker:1",
    "command": ["tidelog-broker", "run", "--config", "/etc/tidelog/broker.yaml"],
    "ports": [{"name": "http", "containerPort": 9211}],
    "env": [
        {"name": "POD_NAME", **field("metadata.name")},
        {"name": "TIDELOG_BROKER_ID", **field("metadata.labels['apps.kubernetes.io/pod-index']")},
        {"name": "TIDELOG_RACK", **field("spec.nodeName")},
        {
            "name": "TIDELOG_LISTENERS",
            "value": '["internal=0.0.0.0:9210@$(POD_NAME).main-brokers.default.svc:9210"]',
        },
        {"name": "TIDELOG_PEER_LISTENER", "value": "0.0.0.0:9212@$(POD_NAME).main-brokers.default.svc:9212"},
        {"name": "TIDELOG_HTTP", "value": "0.0.0.0:9211"},
        {"name": "TIDELOG_SEEDS", "value": SEEDS},
        {"name": "TIDELOG_SERVER", "value": "$(POD_NAME).main-brokers.default.svc:9210"},
    ],
    "startupProbe": probe("/healthz", failureThreshold=60),
    "readinessProbe": probe("/readyz"),
    "livenessProbe": probe("/healthz", failureThreshold=30),
    "lifecycle": {
        "preStop": {"exec": {"command": ["sh", "-c", 'tidelog cluster prepare-stop "$TIDELOG_BROKER_ID"']}}
    },
    "volumeMounts": [
        {"name": "data", "mountPath": "/data"},
        {"name": "settings", "mountPath": "/etc/tidelog"},
        {"name": "later", "mountPath": "/etc/tidelog-later"},
        {"name": "temporary", "mountPath": "/tmp"},
    ],
}

STATEFUL_SET: Manifest = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "main", "namespace": "default"},
    "spec": {
        "replicas": len(PODS),
        "serviceName": "main-brokers",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": LABELS},
        "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Retain"},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {
                "terminationGracePeriodSeconds": 60,
                "containers": [BROKER],
                "volumes": [
                    {"name": "settings", "configMap": {"name": "main-settings"}},
                    {"name": "later", "configMap": {"name": "main-later", "optional": True}},
                    {"name": "temporary", "emptyDir": {}},
                ],
            },
        },
        "volumeClaimTemplates": [
            {
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
        ],
    },
}

OBJECTS: list[Manifest] = [
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "main-settings", "namespace": "default"},
        "data": {"broker.yaml": "data_dir: /data/log\n"},
    },
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "main-brokers", "namespace": "default"},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": LABELS},
    },
    {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "main", "namespace": "default"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}},
    },
    STATEFUL_SET,
]


def first_broker(claim: str, folder: Path) -> None:
    """The first volume of broker 0 forms a cluster; all others, and its replacement, join."""
    if claim == "data-main-0":
        given = ["format", "--data-dir", str(folder / "log"), "--broker-id", "0"]
        assert tidelog_broker_command(given) == 0


@pytest.fixture(scope="module")
def plane(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with controllers and a scheduler, unlike that of the other modules."""
    with ControlPlane(programs, tmp_path_factory.mktemp("plane"), controllers=True) as made:
        yield made


@pytest.fixture(scope="module")
def nodes(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Three ready brokers with the stream `orders`."""
    with Nodes(plane, tmp_path_factory.mktemp("nodes") / "nodes", prepare=first_broker) as made:
        plane.apply(*OBJECTS)
        until_ready(plane)
        with connected(made) as brokers:
            brokers.create_stream("orders", partitions=1, replication_factor=3, min_insync_replicas=2)
            with brokers.producer("orders") as producer:
                for record in RECORDS:
                    producer.send(record)
        yield made


def connected(nodes: Nodes) -> tidelog.blocking.Client:
    return tidelog.blocking.connect([f"{nodes.address(pod)}:9210" for pod in PODS])


def records(nodes: Nodes) -> list[bytes | None]:
    with connected(nodes) as brokers:
        return [record.value for record in brokers.reader("orders", follow=False)]


def found(plane: ControlPlane, path: str) -> Manifest:
    read: Manifest = json.loads(plane.get(path))
    return read


def pods(plane: ControlPlane) -> dict[str, Manifest]:
    listed = found(plane, "/api/v1/namespaces/default/pods")["items"]
    return {one["metadata"]["name"]: one for one in listed}


def is_ready(pod: Manifest) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def until_ready(plane: ControlPlane) -> None:
    def are() -> bool:
        there = pods(plane)
        gone = any("deletionTimestamp" in one["metadata"] for one in there.values())
        return sorted(there) == list(PODS) and not gone and all(map(is_ready, there.values()))

    wait_until(are, "all brokers' pods are ready")


def container(plane: ControlPlane, pod: str) -> Manifest:
    status: Manifest = pods(plane)[pod]["status"]["containerStatuses"][0]
    return status


def test_the_pods_run_the_brokers_of_one_cluster(plane: ControlPlane, nodes: Nodes) -> None:
    until_ready(plane)

    with connected(nodes) as brokers:

        def all_are_active() -> bool:
            states = {one.broker_id: one.state for one in brokers.describe_cluster().brokers}
            return states == dict.fromkeys(range(len(PODS)), "active")

        # The broker that answers may learn a moment later of the last one that came back.
        wait_until(all_are_active, "the cluster has three brokers")
    assert {pod: one["status"]["podIP"] for pod, one in pods(plane).items()} == {
        pod: nodes.address(pod) for pod in PODS
    }
    assert records(nodes) == RECORDS


def test_a_rollout_replaces_one_broker_after_the_other(plane: ControlPlane, nodes: Nodes) -> None:
    before = {pod: one["metadata"]["uid"] for pod, one in pods(plane).items()}
    plane.kubectl("rollout", "restart", "statefulset/main")

    def is_through() -> bool:
        there = pods(plane)
        assert sum(map(is_ready, there.values())) >= len(PODS) - 1, "two are not ready at a time"
        new = [pod for pod, one in there.items() if before[pod] != one["metadata"]["uid"]]
        return len(new) == len(PODS) and all(map(is_ready, there.values()))

    wait_until(is_through, "each pod is replaced and ready")

    assert records(nodes) == RECORDS


def test_a_killed_process_is_restarted(plane: ControlPlane, nodes: Nodes) -> None:
    killed, restarts = nodes.pid("main-1"), container(plane, "main-1")["restartCount"]

    nodes.kill("main-1")

    def is_back() -> bool:
        status = container(plane, "main-1")
        return bool(status["ready"]) and status["restartCount"] == restarts + 1

    wait_until(is_back, "main-1 is ready again")
    assert nodes.pid("main-1") != killed
    assert container(plane, "main-1")["lastState"]["terminated"]["exitCode"] == 137


def test_a_suspended_broker_is_not_ready_until_it_resumes(plane: ControlPlane, nodes: Nodes) -> None:
    until_ready(plane)
    restarts, pid = container(plane, "main-2")["restartCount"], nodes.pid("main-2")

    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: not is_ready(pods(plane)["main-2"]), "main-2 is not ready")
    finally:
        os.kill(pid, signal.SIGCONT)

    until_ready(plane)
    assert (container(plane, "main-2")["restartCount"], nodes.pid("main-2")) == (restarts, pid)


def test_one_of_two_evictions_is_rejected_and_the_other_stops_gracefully(
    plane: ControlPlane, nodes: Nodes, tmp_path: Path
) -> None:
    until_one_may_go(plane)
    logged, evicted = len(nodes.log("main-2")), pods(plane)["main-2"]["metadata"]["uid"]

    evict(plane, tmp_path, "main-2")
    refused = evict(plane, tmp_path, "main-1", fails=True)

    assert "would violate the pod's disruption budget" in refused
    until_another(plane, "main-2", evicted)
    lines = nodes.log("main-2")[logged:]
    said = ["node: preStop", "broker 2 can stop", "node: preStop ended with 0", "node: SIGTERM", "stopped"]
    places = [lines.find(one) for one in said]
    assert places == sorted(places), lines
    assert -1 not in places, lines
    until_ready(plane)


def until_another(plane: ControlPlane, pod: str, uid: str) -> None:
    """Waits until the pod of this name has another uid."""
    wait_until(
        lambda: pods(plane).get(pod, {}).get("metadata", {}).get("uid", uid) != uid, f"{pod} is another pod"
    )


def until_one_may_go(plane: ControlPlane) -> None:
    until_ready(plane)
    budget = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/main"
    wait_until(lambda: found(plane, budget)["status"]["disruptionsAllowed"] == 1, "the budget allows one")


def evict(plane: ControlPlane, folder: Path, pod: str, *, fails: bool = False) -> str:
    eviction = folder / f"{pod}.json"
    meta = {"name": pod, "namespace": "default"}
    eviction.write_text(json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}))
    path = f"/api/v1/namespaces/default/pods/{pod}/eviction"
    return plane.kubectl("create", "--raw", path, "-f", str(eviction), fails=fails)


def test_scaling_down_removes_the_last_broker_its_claim_and_its_folder(
    plane: ControlPlane, nodes: Nodes
) -> None:
    until_ready(plane)
    volume = nodes.path("main-2", "/data")

    plane.kubectl("scale", "statefulset/main", "--replicas=2")

    def is_gone() -> bool:
        claims = found(plane, "/api/v1/namespaces/default/persistentvolumeclaims")["items"]
        names = [one["metadata"]["name"] for one in claims]
        return sorted(names) == ["data-main-0", "data-main-1"] and "main-2" not in pods(plane)

    wait_until(is_gone, "the pod and its claim are gone")
    wait_until(lambda: not volume.exists(), "the folder is gone")
    plane.kubectl("scale", "statefulset/main", "--replicas=3")
    until_ready(plane)
    assert nodes.path("main-2", "/data") != volume


def test_a_config_map_reaches_a_running_broker(plane: ControlPlane, nodes: Nodes) -> None:
    until_ready(plane)
    state = nodes.path("main-0", "/etc/tidelog-later/state")
    assert not state.exists()
    meta = {"name": "main-later", "namespace": "default"}
    later = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}

    plane.apply({**later, "data": {"state": "first"}})
    wait_until(lambda: state.exists() and state.read_text() == "first", "it exists")
    plane.apply({**later, "data": {"state": "second"}})
    wait_until(lambda: state.read_text() == "second", "its change is visible")
    plane.kubectl("delete", "configmap", "main-later")

    wait_until(lambda: not state.exists(), "it is deleted")


def test_a_claim_with_a_lost_volume_is_lost_and_its_broker_waits(plane: ControlPlane, nodes: Nodes) -> None:
    until_ready(plane)
    claim = "/api/v1/namespaces/default/persistentvolumeclaims/data-main-2"

    nodes.lose_volume("data-main-2")

    wait_until(lambda: found(plane, claim)["status"]["phase"] == "Lost", "the claim is lost")
    waiting_reason = {"reason": "CreateContainerError", "message": "the claim data-main-2 is Lost, not Bound"}
    wait_until(lambda: container(plane, "main-2")["state"] == {"waiting": waiting_reason}, "its broker waits")
    deleted = pods(plane)["main-2"]["metadata"]["uid"]
    plane.kubectl("delete", "pvc", "data-main-2", "--wait=false")
    # The next pod exists within milliseconds, and kubectl might wait for the end of that one.
    plane.kubectl("delete", "pod", "main-2", "--wait=false")
    until_another(plane, "main-2", deleted)
    until_ready(plane)
    assert records(nodes) == RECORDS


def test_a_held_pod_is_not_ready_until_it_is_released(plane: ControlPlane, nodes: Nodes) -> None:
    until_ready(plane)
    nodes.hold("main-0")
    nodes.kill("main-0")
    held = {"reason": "CreateContainerError", "message": "the test holds it"}
    wait_until(
        lambda: container(plane, "main-0")["state"] == {"waiting": held}, "the status says that it waits"
    )

    nodes.release("main-0")

    until_ready(plane)


def test_any_other_pod_is_ready_at_once_and_deleted_at_once(plane: ControlPlane, nodes: Nodes) -> None:
    plane.apply({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other", "namespace": "default"},
        "spec": {"containers": [{"name": "other", "image": "tidelog.test/other:1"}]},
    })  # fmt: skip

    plane.kubectl("wait", "--for=condition=Ready", "pod/other", "--timeout=20s")
    plane.kubectl("delete", "pod", "other", "--timeout=20s")

    assert "other" not in pods(plane)

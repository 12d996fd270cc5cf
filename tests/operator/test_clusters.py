"""The objects that the operator creates for a Cluster, on a real API server. Nothing runs pods here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.kube.control_plane import ControlPlane
from support.kube.operator_process import OperatorProcess
from support.waiting import wait_until

pytestmark = pytest.mark.slow

Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    with OperatorProcess(tmp_path_factory.mktemp("operator"), plane.kubeconfig) as made:
        yield made


def cluster(name: str, **spec: Any) -> Manifest:
    return {
        "apiVersion": "tidelog.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"image": "tidelog:1", "storage": {"size": "1.5Gi"}, **spec},
    }


def made_for(plane: ControlPlane, name: str) -> dict[str, Manifest]:
    kinds = ("StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget")
    return {
        f"{kind} {one['metadata']['name']}": one
        for kind in kinds
        for one in plane.objects(kind, f"tidelog.io/cluster={name}")
    }


def ready(plane: ControlPlane, name: str) -> Manifest:
    status = plane.object("Cluster", name).get("status") or {}
    return next((one for one in status.get("conditions", ()) if one["type"] == "Ready"), {"message": ""})


PLACED: Manifest = {
    "nodeSelector": {"disk": "fast"},
    "tolerations": [
        {"key": "tidelog", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 30},
        {"operator": "Exists", "effect": "NoSchedule"},
    ],
    "priorityClassName": "system-cluster-critical",
}


@pytest.mark.usefixtures("operator")
def test_all_objects_are_created_once_and_foreign_changes_are_reverted(plane: ControlPlane) -> None:
    # Kubernetes normalises quantities, and adds defaults.
    plane.apply(cluster("made", resources={"requests": {"cpu": "1000m", "memory": "0.5Gi"}}, **PLACED))
    names = {
        "StatefulSet made", "Service made", "Service made-brokers", "PodDisruptionBudget made",
        "ConfigMap made-settings", "ConfigMap made-formation",
    }  # fmt: skip
    wait_until(lambda: set(made_for(plane, "made")) == names, "all objects are created")
    wait_until(
        lambda: "No broker pod has an IP address" in ready(plane, "made")["message"],
        "the status says what it waits for",
    )
    before = made_for(plane, "made")
    counts = plane.object("ConfigMap", "tidelog-broker-counts")
    assert counts["data"]["made"] == "3"
    pod = before["StatefulSet made"]["spec"]["template"]["spec"]
    assert {name: pod[name] for name in PLACED} == PLACED

    plane.kubectl("annotate", "service", "made", "somebody=else")
    wrong = json.dumps({"spec": {"publishNotReadyAddresses": False}})
    plane.kubectl("patch", "service", "made-brokers", "--patch", wrong)
    plane.kubectl("delete", "pdb", "made")

    def is_right() -> bool:
        found = made_for(plane, "made")
        return (
            set(found) == names and found["Service made-brokers"]["spec"]["publishNotReadyAddresses"] is True
        )

    wait_until(is_right, "the change is reverted")
    after = made_for(plane, "made")
    for name in names - {"Service made", "Service made-brokers", "PodDisruptionBudget made"}:
        assert after[name]["metadata"]["resourceVersion"] == before[name]["metadata"]["resourceVersion"], name
    assert after["Service made"]["metadata"]["annotations"]["somebody"] == "else"


NODES: Manifest = {"name": "outside", "port": 9310, "type": "NodePort", "firstNodePort": 30000}
CLOUD: Manifest = {
    "name": "cloud",
    "port": 9320,
    "type": "LoadBalancer",
    "host": "broker-{broker}.example.com",
    "annotations": {"external-dns.alpha.kubernetes.io/hostname": "broker-{broker}.example.com"},
    "loadBalancerClass": "example.com/fast",
    "sourceRanges": ["203.0.113.0/24"],
}


def services(plane: ControlPlane, name: str) -> dict[str, Manifest]:
    """Returns the services of the Cluster's listeners."""
    found = plane.objects("Service", f"tidelog.io/cluster={name},tidelog.io/listener")
    return {one["metadata"]["name"].removeprefix(f"{name}-"): one for one in found}


def node_ports(plane: ControlPlane, name: str, listener: str) -> list[int]:
    found = sorted(services(plane, name).items())
    return [one["spec"]["ports"][0]["nodePort"] for each, one in found if each.rpartition("-")[0] == listener]


def applied(operator: OperatorProcess) -> int:
    """Returns how many objects it has applied or deleted so far."""
    return sum(
        int(float(line.split()[-1]))
        for line in operator.get("/metrics").splitlines()
        if line.startswith("tidelog_operator_actions_total{")
        and any(kind in line for kind in ("ApplyObject", "CreateObject", "DeleteObject"))
    )


def until_idle(operator: OperatorProcess, name: str) -> None:
    """Waits until it has reached the desired state, and has done nothing since."""

    def looks() -> float:
        labels = f'cluster="{name}",namespace="default"'
        start = f"tidelog_operator_pass_seconds_count{{{labels}}}"
        page = operator.get("/metrics").splitlines()
        return next((float(line.split()[-1]) for line in page if line.startswith(start)), 0.0)

    done, before = applied(operator), looks()
    wait_until(lambda: looks() >= before + 2, "it has reconciled twice")
    if applied(operator) != done:
        until_idle(operator, name)


def test_listener_services_are_created_changed_and_deleted_and_applied_once(
    plane: ControlPlane, operator: OperatorProcess
) -> None:
    names = {f"{listener}-{number}" for listener in ("outside", "cloud") for number in range(3)}
    plane.apply(cluster("open", listeners=[NODES, CLOUD]))
    wait_until(lambda: services(plane, "open").keys() == names, "every broker has its services")
    until_idle(operator, "open")
    made = services(plane, "open")
    assert node_ports(plane, "open", "outside") == [30000, 30001, 30002]
    assert made["cloud-1"]["spec"]["healthCheckNodePort"]
    done = applied(operator)

    # Fields of other clients stay, and defaults of the API server cause no new apply.
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}}}
    plane.kubectl(
        "patch", "service", "open-cloud-1", "--subresource=status", "--type=merge",
        "--patch", json.dumps(status),
    )  # fmt: skip
    plane.kubectl("annotate", "service", "open-cloud-1", "somebody=else")
    until_idle(operator, "open")
    assert applied(operator) == done

    # Ports move from one listener to another, which is the way to change their type.
    more = {**NODES, "name": "more", "port": 9311}
    plane.apply(
        cluster("open", listeners=[{**NODES, "name": "outer", "firstNodePort": 30001 + 99}, more, CLOUD])
    )
    wait_until(
        lambda: node_ports(plane, "open", "more") == [30000, 30001, 30002], "the new listener has the ports"
    )
    wait_until(
        lambda: node_ports(plane, "open", "outer") == [30100, 30101, 30102],
        "the other listener has other ports",
    )
    assert node_ports(plane, "open", "outside") == []
    outer = {**NODES, "name": "outer", "firstNodePort": 30100}
    plane.apply(cluster("open", listeners=[outer, CLOUD]))
    wait_until(lambda: node_ports(plane, "open", "more") == [], "it is deleted")

    # A change in place keeps addresses, and fields of other clients.
    moved = {name: one["metadata"]["uid"] for name, one in services(plane, "open").items()}
    wider = {**CLOUD, "port": 9321, "sourceRanges": ["10.0.0.0/8"]}
    plane.apply(cluster("open", listeners=[{**outer, "port": 9313}, wider]))

    def ports() -> set[int]:
        return {port["port"] for one in services(plane, "open").values() for port in one["spec"]["ports"]}

    wait_until(lambda: ports() == {9313, 9321}, "the ports have changed")
    after = services(plane, "open")
    assert node_ports(plane, "open", "outer") == [30100, 30101, 30102]
    assert {name: one["metadata"]["uid"] for name, one in after.items()} == moved
    assert after["cloud-1"]["metadata"]["uid"] == made["cloud-1"]["metadata"]["uid"]
    assert after["cloud-1"]["metadata"]["annotations"]["somebody"] == "else"
    assert after["cloud-2"]["spec"]["loadBalancerSourceRanges"] == ["10.0.0.0/8"]

    # No listeners any more.
    until_idle(operator, "open")
    plane.apply(cluster("open"))
    wait_until(lambda: services(plane, "open") == {}, "all are deleted")
    assert "Service open-brokers" in made_for(plane, "open")


@pytest.mark.usefixtures("operator")
def test_a_node_port_in_use_is_reported_and_stops_nothing_else(plane: ControlPlane) -> None:
    other = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "in-the-way", "namespace": "default"},
        "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 31001}]},
    }
    plane.apply(other)

    plane.apply(cluster("blocked", listeners=[{**NODES, "firstNodePort": 31000}]))

    wait_until(
        lambda: services(plane, "blocked").keys() == {"outside-0", "outside-2"},
        "the other objects are created",
    )
    wait_until(lambda: "StatefulSet blocked" in made_for(plane, "blocked"), "the StatefulSet is created")

    def events() -> str:
        return plane.kubectl("events", "--for", "cluster.tidelog.io/blocked")

    wait_until(lambda: "Cannot apply the Service blocked-outside-1" in events(), "it is reported")
    assert "provided port is already allocated" in events()
    plane.kubectl("delete", "service", "in-the-way")
    wait_until(lambda: len(services(plane, "blocked")) == 3, "it is created when the port is free")


@pytest.mark.usefixtures("operator")
def test_a_removed_field_disappears_from_the_objects(plane: ControlPlane) -> None:
    plane.apply(cluster("less", imagePullPolicy="Never", resources={"limits": {"cpu": 1}}))
    wait_until(lambda: "StatefulSet less" in made_for(plane, "less"), "it is created")

    plane.apply(cluster("less", resources={"limits": {"cpu": 1}}))

    def policy() -> str:
        found = made_for(plane, "less")["StatefulSet less"]["spec"]["template"]["spec"]["containers"]
        return str(found[0]["imagePullPolicy"])

    wait_until(lambda: policy() == "IfNotPresent", "it is Kubernetes' own again")


@pytest.mark.usefixtures("operator")
def test_two_clusters_in_a_namespace_have_separate_counts(
    plane: ControlPlane,
) -> None:
    plane.apply(cluster("one", brokers=1), cluster("five", brokers=5))

    def counts() -> Manifest:
        found = plane.objects("ConfigMap", "app.kubernetes.io/managed-by=tidelog-operator")
        return {
            name: count
            for one in found
            if one["metadata"]["name"] == "tidelog-broker-counts"
            for name, count in (one.get("data") or {}).items()
        }

    def says(expected: Manifest) -> bool:
        found = counts()
        return {name: found.get(name) for name in expected} == expected

    wait_until(lambda: says({"one": "1", "five": "5"}), "both exist")
    plane.kubectl("delete", "cluster.tidelog.io", "five", "--timeout=20s")
    wait_until(lambda: says({"one": "1", "five": None}), "one of them is gone")


@pytest.mark.usefixtures("operator")
def test_an_unreadable_formation_marker_is_explained(plane: ControlPlane) -> None:
    plane.apply(cluster("marked"))
    wait_until(lambda: "ConfigMap marked-formation" in made_for(plane, "marked"), "the marker exists")

    patch = {"data": {"formation.json": "perhaps"}}
    plane.kubectl("patch", "configmap", "marked-formation", "--type=merge", "--patch", json.dumps(patch))

    def explained() -> bool:
        return "whether the brokers have formed a cluster" in ready(plane, "marked")["message"]

    wait_until(explained, "the status explains it")


@pytest.mark.long
def test_one_of_two_operators_is_active_and_the_other_takes_over(
    plane: ControlPlane, operator: OperatorProcess, tmp_path: Path
) -> None:
    second = OperatorProcess(tmp_path, plane.kubeconfig, "--identity", "second")
    second.launch()
    try:
        wait_until(lambda: "serving /metrics" in second.log(), "the second one runs")
        plane.apply(cluster("shared"))
        wait_until(lambda: "StatefulSet shared" in made_for(plane, "shared"), "the first operator is active")
        assert not second.leads()

        operator.stop()

        wait_until(second.leads, "the second one leads")
        plane.apply(cluster("taken-over"))
        wait_until(lambda: "StatefulSet taken-over" in made_for(plane, "taken-over"), "the operator works")
    finally:
        second.stop()
        operator.start()

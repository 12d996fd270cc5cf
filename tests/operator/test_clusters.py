"""What the operator makes for a Cluster, on a real API server. Nobody runs pods here."""

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


@pytest.mark.usefixtures("operator")
def test_everything_is_made_once_and_put_right_when_somebody_changes_it(plane: ControlPlane) -> None:
    # Kubernetes writes quantities in a form of its own, and adds defaults.
    plane.apply(cluster("made", resources={"requests": {"cpu": "1000m", "memory": "0.5Gi"}}))
    names = {
        "StatefulSet made", "Service made", "Service made-brokers", "PodDisruptionBudget made",
        "ConfigMap made-settings", "ConfigMap made-formation",
    }  # fmt: skip
    wait_until(lambda: set(made_for(plane, "made")) == names, "everything is made")
    wait_until(lambda: "no pod of a broker" in ready(plane, "made")["message"], "it says what it waits for")
    before = made_for(plane, "made")
    counts = plane.object("ConfigMap", "tidelog-broker-counts")
    assert counts["data"]["made"] == "3"

    plane.kubectl("annotate", "service", "made", "somebody=else")
    wrong = json.dumps({"spec": {"publishNotReadyAddresses": False}})
    plane.kubectl("patch", "service", "made-brokers", "--patch", wrong)
    plane.kubectl("delete", "pdb", "made")

    def is_right() -> bool:
        found = made_for(plane, "made")
        return (
            set(found) == names and found["Service made-brokers"]["spec"]["publishNotReadyAddresses"] is True
        )

    wait_until(is_right, "it is put right")
    after = made_for(plane, "made")
    for name in names - {"Service made", "Service made-brokers", "PodDisruptionBudget made"}:
        assert after[name]["metadata"]["resourceVersion"] == before[name]["metadata"]["resourceVersion"], name
    assert after["Service made"]["metadata"]["annotations"]["somebody"] == "else"


@pytest.mark.usefixtures("operator")
def test_a_field_that_is_taken_away_is_gone(plane: ControlPlane) -> None:
    plane.apply(cluster("less", imagePullPolicy="Never", resources={"limits": {"cpu": 1}}))
    wait_until(lambda: "StatefulSet less" in made_for(plane, "less"), "it is made")

    plane.apply(cluster("less", resources={"limits": {"cpu": 1}}))

    def policy() -> str:
        found = made_for(plane, "less")["StatefulSet less"]["spec"]["template"]["spec"]["containers"]
        return str(found[0]["imagePullPolicy"])

    wait_until(lambda: policy() == "IfNotPresent", "it is Kubernetes' own again")


@pytest.mark.usefixtures("operator")
def test_two_clusters_of_a_namespace_keep_their_counts_apart_and_take_them_with_them(
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

    wait_until(lambda: says({"one": "1", "five": "5"}), "both are there")
    plane.kubectl("delete", "cluster.tidelog.io", "five", "--timeout=20s")
    wait_until(lambda: says({"one": "1", "five": None}), "one of them is gone")


@pytest.mark.usefixtures("operator")
def test_a_marker_that_nobody_can_read_is_explained(plane: ControlPlane) -> None:
    plane.apply(cluster("marked"))
    wait_until(lambda: "ConfigMap marked-formation" in made_for(plane, "marked"), "the marker is there")

    patch = {"data": {"formation.json": "perhaps"}}
    plane.kubectl("patch", "configmap", "marked-formation", "--type=merge", "--patch", json.dumps(patch))

    def explained() -> bool:
        return "whether the brokers formed a cluster" in ready(plane, "marked")["message"]

    wait_until(explained, "it says why it does nothing")


@pytest.mark.long
def test_of_two_operators_one_works_and_the_other_goes_on(
    plane: ControlPlane, operator: OperatorProcess, tmp_path: Path
) -> None:
    second = OperatorProcess(tmp_path, plane.kubeconfig, "--identity", "second")
    second.launch()
    try:
        wait_until(lambda: "serves /metrics" in second.log(), "the second one runs")
        plane.apply(cluster("shared"))
        wait_until(lambda: "StatefulSet shared" in made_for(plane, "shared"), "the first one works")
        assert not second.leads()

        operator.stop()

        wait_until(second.leads, "the second one leads")
        plane.apply(cluster("taken-over"))
        wait_until(lambda: "StatefulSet taken-over" in made_for(plane, "taken-over"), "it works")
    finally:
        second.stop()
        operator.start()

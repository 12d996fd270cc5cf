"""An operator with a list of namespaces, with the rights of the chart; and one that is deleted with its
namespace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.kube import chart
from support.kube.control_plane import ControlPlane
from support.kube.operator_process import OperatorProcess
from support.waiting import wait_until
from tidelog_operator.model import FINALIZER

pytestmark = pytest.mark.slow

HOME, FARM, OTHER = "farm-system", "farm", "default"
VALUES = {"cluster": {"create": False}, "operator": {"namespaces": [FARM]}}


def cluster(namespace: str) -> dict[str, object]:
    return {
        "apiVersion": "tidelog.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "cows", "namespace": namespace},
        "spec": {"image": "tidelog:1", "storage": {"size": "1Gi"}},
    }


def stream(namespace: str, name: str) -> dict[str, object]:
    return {
        "apiVersion": "tidelog.io/v1alpha1",
        "kind": "Stream",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"cluster": "cows"},
    }


@pytest.fixture(scope="module")
def plane(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(programs, tmp_path_factory.mktemp("plane"), controllers=True) as made:
        made.add_crds()
        yield made


@pytest.fixture(scope="module")
def account(plane: ControlPlane, programs: Path) -> Path:
    plane.kubectl("create", "namespace", FARM)
    plane.apply_all(chart.operators_account(programs, VALUES, release="farm", namespace=HOME))
    return plane.account(HOME, "farm-operator")


def test_the_operator_reconciles_only_its_namespaces(
    plane: ControlPlane, account: Path, tmp_path: Path
) -> None:
    flags = ("--lease-namespace", HOME, "--lease-name", "farm-operator", "--namespace", FARM)
    with OperatorProcess(tmp_path, account, *flags) as operator:
        plane.apply_all([cluster(OTHER), cluster(FARM)])
        made = "tidelog.io/cluster=cows"
        wait_until(lambda: plane.objects("StatefulSet", made, FARM), "it is created")
        wait_until(lambda: operator.get("/readyz") == "ready\n", "it watches")
        log = operator.log_path.read_text().lower()

    assert not plane.objects("StatefulSet", made, OTHER)
    assert "forbidden" not in log
    assert "traceback" not in log


@pytest.mark.parametrize("kind", ["clusters.tidelog.io", "statefulsets", "pods", "configmaps", "leases"])
def test_the_operator_may_not_read_other_namespaces(plane: ControlPlane, account: Path, kind: str) -> None:
    refused = plane.refusal("--kubeconfig", str(account), "get", kind, "--namespace", OTHER)

    assert "orbidden" in refused


@pytest.mark.long
def test_a_namespace_with_streams_can_be_deleted_without_an_operator(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Its brokers never answered, and an earlier operator set a finalizer on every Stream."""
    plane.kubectl("create", "namespace", "leaving")
    plane.apply_all([cluster("leaving"), stream("leaving", "held"), stream("leaving", "free")])
    held = json.dumps({"metadata": {"finalizers": [FINALIZER]}})
    plane.kubectl("patch", "stream", "held", "--namespace=leaving", "--type=merge", "--patch", held)

    def waiting_reason() -> bool:
        return FINALIZER in plane.object("Stream", "held", "leaving")["metadata"].get("finalizers", ())

    assert waiting_reason()
    with OperatorProcess(tmp_path, plane.kubeconfig):
        wait_until(lambda: not waiting_reason(), "it has no finalizer")

    plane.kubectl("delete", "namespace", "leaving", "--timeout=60s")

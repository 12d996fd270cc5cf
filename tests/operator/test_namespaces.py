"""An operator that is told its namespaces, with the rights that the chart gives it there."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.kube import chart
from support.kube.control_plane import ControlPlane
from support.kube.operator_process import OperatorProcess
from support.waiting import wait_until

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


@pytest.fixture(scope="module")
def account(plane: ControlPlane, programs: Path) -> Path:
    plane.kubectl("create", "namespace", FARM)
    plane.apply_all(chart.operators_account(programs, VALUES, release="farm", namespace=HOME))
    return plane.account(HOME, "farm-operator")


def test_it_does_its_work_there_and_nowhere_else(plane: ControlPlane, account: Path, tmp_path: Path) -> None:
    flags = ("--lease-namespace", HOME, "--lease-name", "farm-operator", "--namespace", FARM)
    with OperatorProcess(tmp_path, account, *flags) as operator:
        plane.apply_all([cluster(OTHER), cluster(FARM)])
        made = "tidelog.io/cluster=cows"
        wait_until(lambda: plane.objects("StatefulSet", made, FARM), "it is made")
        wait_until(lambda: operator.get("/readyz") == "ready\n", "it watches")
        log = operator.log_path.read_text().lower()

    assert not plane.objects("StatefulSet", made, OTHER)
    assert "forbidden" not in log
    assert "traceback" not in log


@pytest.mark.parametrize("kind", ["clusters.tidelog.io", "statefulsets", "pods", "configmaps", "leases"])
def test_elsewhere_it_may_not_even_look(plane: ControlPlane, account: Path, kind: str) -> None:
    refused = plane.refusal("--kubeconfig", str(account), "get", kind, "--namespace", OTHER)

    assert "orbidden" in refused

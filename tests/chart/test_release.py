"""A release from its installation to its end, by Helm, with an API server. No pod runs, so no hooks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.kube.chart import CHART, NAMESPACE, RELEASE, Manifest, helm
from support.kube.control_plane import ControlPlane
from support.waiting import wait_until

pytestmark = pytest.mark.slow


class Helm:
    """Helm for one API server. `home` is the folder of its files."""

    def __init__(self, programs: Path, plane: ControlPlane) -> None:
        self._programs = programs
        self._flags = ("--namespace", NAMESPACE, "--no-hooks", "--kubeconfig", str(plane.kubeconfig))

    def does(self, command: str, **values: object) -> str:
        code, out, error = self._run(command, values)
        assert code == 0, error
        return out

    def is_refused(self, command: str, **values: object) -> str:
        code, _, error = self._run(command, values)
        return error if code else ""

    def _run(self, command: str, values: Manifest) -> tuple[int, str, str]:
        words = (RELEASE,) if command == "uninstall" else (RELEASE, str(CHART), "--values", "-")
        done = helm(self._programs, command, *words, *self._flags, values=values)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def plane(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server without Tidelog."""
    with ControlPlane(programs, tmp_path_factory.mktemp("plane")) as made:
        made.kubectl("create", "namespace", NAMESPACE)
        yield made


def stream_of(notes: str) -> Manifest:
    """Returns the Stream that the notes say to apply."""
    (text,) = re.findall(r"^   kubectl apply -f - <<END$(.*?)^   END$", notes, re.M | re.S)
    found: Manifest = yaml.safe_load(text)
    return found


def claim(name: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"tidelog.io/cluster": "main"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }


def counts() -> Manifest:
    metadata = {"name": "tidelog-broker-counts", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"main": "3"}}


def names(plane: ControlPlane, *kinds: str) -> set[str]:
    found = plane.kubectl("get", ",".join(kinds), "--all-namespaces", "--output=name")
    return set(found.split())


OF_RELEASES = (
    "deployments", "statefulsets", "services", "serviceaccounts", "networkpolicies", "poddisruptionbudgets",
    "clusterroles", "clusterrolebindings", "roles", "rolebindings", "validatingadmissionpolicies",
    "validatingadmissionpolicybindings", "clusters.tidelog.io",
)  # fmt: skip


def test_a_release_is_installed_upgraded_and_removed_and_data_stays(
    plane: ControlPlane, programs: Path
) -> None:
    release = Helm(programs, plane)

    notes = release.does("install")

    stream = stream_of(notes)
    plane.apply(stream, claim("data-main-0"))
    assert stream["spec"] == {"cluster": "main", "subject": "orders.>"}
    assert f"kubectl exec main-0 --namespace {NAMESPACE} -- tidelog produce orders" in notes

    # As the operator writes them; Helm keeps fields that the chart does not set.
    status = {"status": {"phase": "Ready", "brokersReady": 3}}
    path = f"/apis/tidelog.io/v1alpha1/namespaces/{NAMESPACE}/clusters/main/status"
    assert not plane.patched_by(plane.kubeconfig, path, status)
    fewer = ("scale", "statefulset", "tidelog-nats", "--replicas=2", "--namespace", NAMESPACE)
    wait_until(
        lambda: "no params found" in plane.refusal(*fewer, "--dry-run=server"), "the policy is in force"
    )
    # The operator has not recorded the lowest allowed number yet.
    changed = {"cluster": {"brokers": 5}, "nats": {"config": "max_payload: 2MB"}}
    assert "no params found" in release.is_refused("upgrade", **changed)
    plane.apply(counts())
    wait_until(lambda: not release.is_refused("upgrade", **changed), "the counts are known")

    cluster = plane.object("Cluster", "main", NAMESPACE)
    assert cluster["spec"]["brokers"] == 5
    assert cluster["status"] == status["status"]
    assert "max_payload: 2MB" in plane.object("ConfigMap", "tidelog-nats", NAMESPACE)["data"]["nats.conf"]
    # Helm would delete the Cluster with all its brokers.
    for other in ({"name": "other"}, {"create": False}):
        assert "this upgrade would delete the Cluster main" in release.is_refused("upgrade", cluster=other)

    release.does("uninstall")

    assert not [one for one in names(plane, *OF_RELEASES) if "tidelog" in one or "main" in one]
    assert names(plane, "crds", "streams.tidelog.io", "persistentvolumeclaims") == {
        "customresourcedefinition.apiextensions.k8s.io/clusters.tidelog.io",
        "customresourcedefinition.apiextensions.k8s.io/ingestions.tidelog.io",
        "customresourcedefinition.apiextensions.k8s.io/streams.tidelog.io",
        "stream.tidelog.io/orders",
        "persistentvolumeclaim/data-main-0",
    }

"""The API server accepts the rendered chart, also where pods must be "restricted"."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from chart.releases import RELEASES
from support.kube.chart import NAMESPACE, Manifest, rendered
from support.kube.control_plane import ControlPlane
from tidelog_operator.model import ClusterObject, read_cluster
from tidelog_operator.resources.stateful_set import Pods, stateful_set

pytestmark = pytest.mark.slow

SERVICE_MONITORS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


@pytest.fixture(scope="module")
def strict(plane: ControlPlane) -> ControlPlane:
    """An API server with ServiceMonitors, which rejects and warns of pods that are not "restricted"."""
    levels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    plane.apply_all(
        [SERVICE_MONITORS],
        [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": levels}}
            for name in (NAMESPACE, "shop", "farm")
        ],
    )
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    return plane


def asked(plane: ControlPlane, manifests: Sequence[Manifest]) -> str:
    """Returns errors and warnings of a dry run."""
    return plane.words_on("apply", "--server-side", "--dry-run=server", "-f", "-", given=list(manifests))


def pods(manifests: Sequence[Manifest]) -> Sequence[Manifest]:
    """Returns a pod of each template, and of the templates that the operator creates for a Cluster."""
    found = []
    for rendered_one in manifests:
        one = rendered_one
        if one["kind"] == "Cluster":
            given = {"uid": "7c5b1a0e-0000-4000-8000-000000000000", "generation": 1, "resourceVersion": "1"}
            cluster = read_cluster({**one, "metadata": {**one["metadata"], **given}})
            assert isinstance(cluster, ClusterObject)
            one = dict(stateful_set(cluster, Pods(3)))
        template = one if one["kind"] == "Pod" else one.get("spec", {}).get("template")
        if template is None:
            continue
        spec: dict[str, Any] = dict(template["spec"])
        claims = one["spec"].get("volumeClaimTemplates", ())
        mounted = [{"name": claim["metadata"]["name"], "emptyDir": {}} for claim in claims]
        spec["volumes"] = [*spec["volumes"], *mounted]
        name = f"{one['kind']}-{one['metadata']['name']}".lower()
        metadata = {"name": name, "namespace": NAMESPACE, "labels": template["metadata"]["labels"]}
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return found


@pytest.mark.parametrize("name", RELEASES)
def test_the_api_server_accepts_all_objects_without_a_warning(
    strict: ControlPlane, programs: Path, name: str
) -> None:
    assert asked(strict, rendered(programs, RELEASES[name])) == ""


def test_every_pod_is_restricted(strict: ControlPlane, programs: Path) -> None:
    made = pods(rendered(programs, RELEASES["everything said"]))

    assert {one["metadata"]["name"] for one in made} == {
        "deployment-log-operator", "statefulset-log-nats", "statefulset-orders", "job-log-definitions",
        "pod-log-test-records",
    }  # fmt: skip
    assert asked(strict, made) == ""


def test_an_unrestricted_pod_would_be_rejected(strict: ControlPlane, programs: Path) -> None:
    """Shows that the test above can fail."""
    for one in pods(rendered(programs)):
        (container,) = one["spec"]["containers"]
        del container["securityContext"]["allowPrivilegeEscalation"]

        assert 'violates PodSecurity "restricted' in asked(strict, [one])

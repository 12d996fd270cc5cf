"""Rights and resource use of the running pods, as the kubelets and the API server report them."""

from __future__ import annotations

import json
import shlex
from datetime import datetime
from typing import Any

import pytest

from e2e.conftest import NAMESPACE, Figures
from e2e.kube import Kube, Refused
from e2e.release import BROKERS, CLUSTER, NAME, OPERATORS, REGISTRY, Release

SERVERS = "app.kubernetes.io/name=tidelog-nats"
PARTS = {"broker": BROKERS, "operator": OPERATORS, "NATS server": SERVERS}
USER = "65532"

FORBIDDEN = (
    ("get", "secrets"),
    ("list", "secrets"),
    ("create", "pods"),
    ("create", "pods", "--subresource=exec"),
    ("create", "serviceaccounts", "--subresource=token"),
    ("delete", "statefulsets.apps"),
    ("patch", "nodes"),
    ("update", "clusters.tidelog.io"),
    ("create", "clusterrolebindings.rbac.authorization.k8s.io"),
    ("delete", "streams.tidelog.io"),
    ("delete", "configmaps"),
)


def test_the_namespace_allows_only_restricted_pods(healthy: Release, kube: Kube) -> None:
    """The whole release runs in it, so all its pods are restricted."""
    found = kube.get("namespace", NAMESPACE)
    assert found is not None
    assert found["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"

    with pytest.raises(Refused, match="violates PodSecurity"):
        kube.kubectl("run", "root", "--image=none", "--restart=Never")


@pytest.mark.parametrize("part", ["broker", "operator"])
def test_pods_run_without_rights_and_write_only_to_their_volumes(
    part: str, healthy: Release, kube: Kube
) -> None:
    pod = kube.list("pods", PARTS[part])[0]["metadata"]["name"]

    assert kube.exec(pod, "id", "-u").strip() == USER
    status = kube.exec(pod, "cat", "/proc/1/status")
    capabilities = {line.split()[1] for line in status.splitlines() if line.startswith("Cap")}
    assert capabilities == {"0" * 16}
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status
    with pytest.raises(Refused, match="Read-only file system"):
        kube.exec(pod, "sh", "-c", "echo >/opt/tidelog/file")


def test_only_operators_have_access_to_the_api_server(healthy: Release, kube: Kube) -> None:
    for part, labels in PARTS.items():
        for pod in kube.list("pods", labels):
            mounts = [one["mountPath"] for each in pod["spec"]["containers"] for one in each["volumeMounts"]]
            has_token = "/var/run/secrets/kubernetes.io/serviceaccount" in mounts
            assert has_token == (part == "operator"), pod["metadata"]["name"]


ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}-operator"


@pytest.mark.parametrize("words", FORBIDDEN, ids=" ".join)
def test_the_account_of_the_operator_lacks_other_rights(
    words: tuple[str, ...], healthy: Release, kube: Kube
) -> None:
    kube.kubectl("auth", "can-i", "list", "streams.tidelog.io", "--as", ACCOUNT)

    # Without the exit code of a failure, so that only an answer counts.
    command = shlex.join(["kubectl", "--namespace", NAMESPACE, "auth", "can-i", *words, "--as", ACCOUNT])
    assert kube.run("sh", "-c", f"{command} 2>/dev/null; test $? = 1") == "no\n"


def test_only_the_operator_may_remove_broker_pods(healthy: Release, kube: Kube) -> None:
    with pytest.raises(Refused, match=r"lower spec\.brokers of the Cluster instead"):
        kube.kubectl("scale", "statefulset", CLUSTER, "--replicas=2")


def test_memory_and_image_sizes_are_recorded(healthy: Release, kube: Kube, figures: Figures) -> None:
    """Records the figures, without a limit."""
    used: dict[str, list[float]] = {}
    images: dict[str, int] = {}
    for node in json.loads(kube.kubectl("get", "nodes", "--output", "json"))["items"]:
        where = f"/api/v1/nodes/{node['metadata']['name']}/proxy/stats/summary"
        for image in node["status"]["images"]:
            images |= {name: image["sizeBytes"] for name in image["names"] if name.startswith(REGISTRY)}
        summary: dict[str, Any] = json.loads(kube.kubectl("get", "--raw", where))
        for pod in summary["pods"]:
            if pod["podRef"]["namespace"] == NAMESPACE:
                used.setdefault(pod["podRef"]["name"], []).append(pod["memory"]["workingSetBytes"] / 1e6)
    for name, size in sorted(images.items()):
        figures.note(f"image {name.removeprefix(REGISTRY)[1:]}: megabytes on a node", round(size / 1e6))
    for part, labels in PARTS.items():
        pods = kube.list("pods", labels)
        sizes = [used[one["metadata"]["name"]][0] for one in pods if one["metadata"]["name"] in used]
        assert sizes
        figures.note(f"{part}, idle: megabytes of memory", sorted(round(size) for size in sizes))
        figures.note(f"{part}: seconds from its container's start to ready", max(map(_starting, pods)))


def _starting(pod: dict[str, Any]) -> float:
    state = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
    ready = next(one for one in pod["status"]["conditions"] if one["type"] == "Ready")
    moments = [datetime.fromisoformat(text) for text in (state, ready["lastTransitionTime"])]
    return (moments[1] - moments[0]).total_seconds()

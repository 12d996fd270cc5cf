"""The rights of the operator (the chart's rbac.yaml): enough for its work, and nothing else."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.kube import chart
from support.kube.broker_pods import BrokerPods
from support.kube.chart import NAMESPACE
from support.kube.control_plane import ControlPlane
from support.kube.operator_process import OperatorProcess
from support.waiting import wait_until

pytestmark = pytest.mark.long

OWN, OTHER = NAMESPACE, "default"
NAME = "tidelog-operator"

Resource = tuple[str, str]
"""Group and plural; a subresource after a slash."""

ANYWHERE: dict[Resource, str] = {
    ("tidelog.io", "clusters"): "list watch",
    ("tidelog.io", "ingestions"): "list watch",
    ("tidelog.io", "ingestions/status"): "patch",
    ("tidelog.io", "ingestions/finalizers"): "update",
    ("batch", "cronjobs"): "list watch create patch delete",
    ("batch", "jobs"): "list watch create delete",
    ("tidelog.io", "streams"): "list watch patch",
    ("tidelog.io", "clusters/status"): "patch",
    ("tidelog.io", "streams/status"): "patch",
    ("tidelog.io", "clusters/finalizers"): "update",
    ("apps", "statefulsets"): "list watch create patch",
    ("", "services"): "list watch create patch delete",
    ("", "configmaps"): "list watch create patch",
    ("policy", "poddisruptionbudgets"): "list watch create patch",
    ("", "pods"): "list watch delete",
    ("", "persistentvolumeclaims"): "list watch delete",
    ("", "nodes"): "list watch",
    ("apiextensions.k8s.io", "customresourcedefinitions"): "list watch",
    ("events.k8s.io", "events"): "create patch",
}
IN_ITS_OWN: dict[Resource, str] = {("coordination.k8s.io", "leases"): "create"}
"""Additional rights in its own namespace; the Lease has a test of its own."""

EVERYBODY: dict[Resource, str] = {
    ("authorization.k8s.io", "selfsubjectaccessreviews"): "create",
    ("authorization.k8s.io", "selfsubjectrulesreviews"): "create",
    ("authentication.k8s.io", "selfsubjectreviews"): "create",
}
"""Rights of every logged-in client: questions about its own rights."""

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
MORE_VERBS = ("*", "bind", "escalate", "impersonate", "approve", "sign", "attest", "use")
"""Special verbs about rights; checked for every resource too."""

HIDDEN: Sequence[Resource] = (
    ("tidelog.io", "clusters/finalizers"),
    ("tidelog.io", "ingestions/finalizers"),
    ("tidelog.io", "streams/finalizers"),
    ("", "users"),
    ("", "groups"),
    ("authentication.k8s.io", "uids"),
    ("authentication.k8s.io", "userextras"),
    ("certificates.k8s.io", "signers"),
    ("", "nodes/metrics"),
    ("*", "*"),
)
"""Resources that rights can name, but discovery does not."""


@pytest.fixture(scope="module")
def account(plane: ControlPlane, programs: Path) -> Path:
    plane.apply_all(chart.operators_account(programs))
    return plane.account(OWN, NAME)


class Asking:
    """Asks the API server what an account may do, through one connection."""

    def __init__(self, plane: ControlPlane, account: Path) -> None:
        address = urlsplit(plane.url)
        assert address.hostname is not None
        self._connection = http.client.HTTPSConnection(
            address.hostname, address.port, timeout=10, context=plane.tls
        )
        (user,) = json.loads(account.read_text())["users"]
        self._headers = {
            "Authorization": f"Bearer {user['user']['token']}",
            "Content-Type": "application/json",
        }

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def may(self, verb: str, resource: Resource, namespace: str, name: str = "") -> bool:
        plural, _, below = resource[1].partition("/")
        asked = {"verb": verb, "group": resource[0], "resource": plural, "subresource": below}
        return self._may({"resourceAttributes": {**asked, "namespace": namespace, "name": name}})

    def may_get(self, path: str) -> bool:
        return self._may({"nonResourceAttributes": {"verb": "get", "path": path}})

    def _may(self, spec: dict[str, Any]) -> bool:
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": spec,
        }
        url = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        self._connection.request("POST", url, json.dumps(body), self._headers)
        answer = json.loads(self._connection.getresponse().read())
        allowed: bool = answer["status"]["allowed"]
        return allowed


@pytest.fixture
def asking(plane: ControlPlane, account: Path) -> Iterator[Asking]:
    with Asking(plane, account) as made:
        yield made


def resources(plane: ControlPlane) -> dict[Resource, bool]:
    """Returns all resources of the API server, with subresources, and whether they are namespaced."""

    def named(group: str, path: str) -> dict[Resource, bool]:
        listed = json.loads(plane.get(path))["resources"]
        return {(group, one["name"]): one["namespaced"] for one in listed}

    found = named("", "/api/v1") | dict.fromkeys(HIDDEN, True)
    for group in json.loads(plane.get("/apis"))["groups"]:
        for version in group["versions"]:
            found |= named(group["name"], f"/apis/{version['groupVersion']}")
    return found


def pairs(table: dict[Resource, str]) -> set[tuple[str, Resource]]:
    return {(verb, resource) for resource, verbs in table.items() for verb in verbs.split()}


def test_the_operator_has_exactly_the_verbs_that_it_needs(plane: ControlPlane, asking: Asking) -> None:
    known = resources(plane)
    assert len(known) > 100
    assert known.keys() >= ANYWHERE.keys() | IN_ITS_OWN.keys() | EVERYBODY.keys()

    def allowed(namespace: str, verbs: Sequence[str]) -> set[tuple[str, Resource]]:
        return {
            (verb, resource)
            for resource, namespaced in known.items()
            for verb in verbs
            if asking.may(verb, resource, namespace if namespaced else "")
        }

    assert allowed(OTHER, VERBS + MORE_VERBS) == pairs(ANYWHERE) | pairs(EVERYBODY)
    assert allowed(OWN, VERBS) == pairs(ANYWHERE) | pairs(EVERYBODY) | pairs(IN_ITS_OWN)


def test_the_operator_may_write_only_its_own_lease(asking: Asking) -> None:
    leases = ("coordination.k8s.io", "leases")
    rights = {
        (verb, namespace, name)
        for verb in VERBS
        for namespace in (OWN, OTHER, "kube-system")
        for name in (NAME, "another")
        if asking.may(verb, leases, namespace, name)
    }

    # A create request has no name yet.
    may = {("get", NAME), ("update", NAME), ("create", NAME), ("create", "another")}
    assert rights == {(verb, OWN, name) for verb, name in may}


@pytest.mark.parametrize("path", ["/metrics", "/logs", "/debug/pprof", "/configz", "/*"])
def test_the_operator_has_no_rights_on_non_resource_paths(asking: Asking, path: str) -> None:
    assert not asking.may_get(path)


def test_forbidden_requests_of_the_operator_are_denied(plane: ControlPlane, account: Path) -> None:
    """Real requests instead of access reviews."""

    def refused(*words: str, given: object = None) -> str:
        return plane.refusal("--kubeconfig", str(account), *words, given=given)

    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "more"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "more", "namespace": OTHER},
        "spec": {"containers": [{"name": "shell", "image": "sh"}]},
    }
    for words in (
        ("delete", "--raw", "/api/v1/namespaces/default/configmaps/some"),
        ("delete", "--raw", "/apis/apps/v1/namespaces/default/statefulsets/some"),
        ("delete", "--raw", "/apis/tidelog.io/v1alpha1/namespaces/default/streams/some"),
        ("delete", "--raw", "/apis/tidelog.io/v1alpha1/namespaces/default/clusters/some"),
        ("delete", "--raw", "/api/v1/persistentvolumes/some"),
        ("get", "secret", "some"),
        ("get", "secrets", "--all-namespaces"),
        ("get", "--raw", "/api/v1/namespaces/default/pods/some/exec?command=sh&stdout=true"),
        ("create", "token", NAME, "--namespace", OWN),
        ("get", "leases", "--namespace", "kube-system"),
        ("get", "pods", "--as", "administrator", "--as-group", "system:masters"),
    ):
        assert "orbidden" in refused(*words), words
    assert "orbidden" in refused("create", "-f", "-", given=role)
    assert "orbidden" in refused("create", "-f", "-", given=pod)


# --- sufficient rights


@pytest.fixture(scope="module")
def operator(
    plane: ControlPlane, account: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """An operator with its account of the pod, and brokers for Streams."""
    cluster = {
        "apiVersion": "tidelog.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "main", "namespace": OTHER},
        "spec": {"image": "tidelog:1", "storage": {"size": "1Gi"}, "brokers": 1, "voters": 1},
    }
    plane.apply(cluster)
    wait_until(lambda: not plane.refusal("get", "streams.tidelog.io"), "Streams can be listed")
    folder = tmp_path_factory.mktemp("operator")
    with (
        BrokerPods(plane, tmp_path_factory.mktemp("brokers"), "main", 1),
        OperatorProcess(folder, account, "--lease-namespace", OWN) as made,
    ):
        yield made


def stream(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidelog.io/v1alpha1",
        "kind": "Stream",
        "metadata": {"name": name, "namespace": OTHER},
        "spec": {"cluster": "main", **spec},
    }


def reason(plane: ControlPlane, name: str) -> str:
    conditions = plane.object("Stream", name).get("status", {}).get("conditions", [])
    return next((one["reason"] for one in conditions if one["type"] == "Ready"), "")


def described(plane: ControlPlane, *words: str) -> list[str]:
    """Returns events in alphabetical order; without their age and reporter."""
    _, _, events = plane.kubectl("describe", *words).partition("\nEvents:")
    found = []
    for line in events.splitlines()[3:]:
        kind, why, rest = line.split(maxsplit=2)
        _, _, note = rest.partition("tidelog.io/operator")
        found.append(f"{kind} {why} {note.strip()}")
    return sorted(found)


def test_the_operator_works_with_its_own_account(plane: ControlPlane, operator: OperatorProcess) -> None:
    spec = {"partitions": 2, "deletionPolicy": "Delete"}
    plane.apply(stream("orders", **spec), stream("left"))
    wait_until(
        lambda: reason(plane, "orders") == reason(plane, "left") == "Serving", "both Streams are ready"
    )
    plane.apply(stream("orders", **spec, subject="orders.>"))
    plane.apply(stream("other", streamName="orders"))
    wait_until(lambda: reason(plane, "other") == "Conflict", "the second Stream has a conflict")

    wait_until(lambda: len(described(plane, "stream", "orders")) == 2, "both events are written")
    wait_until(lambda: len(described(plane, "stream", "other")) == 1, "the conflict is reported")
    assert described(plane, "stream", "orders") == [
        "Normal Altered Changed subject of the stream orders.",
        "Normal Created Created the stream orders with 2 partitions and 1 replica of each.",
    ]
    assert described(plane, "stream", "other")[0].startswith("Warning Conflict The stream orders belongs to")
    plane.kubectl("delete", "stream", "other", "orders", "left", "--timeout=20s")
    gone = "Normal Retained The Stream left was deleted. The brokers keep the stream left and its records."
    wait_until(lambda: gone in described(plane, "clusters.tidelog.io", "main"), "the event is written")
    words = operator.log_path.read_text().lower()
    for bad in ("forbidden", "permission", "error", "traceback", "warning"):
        assert bad not in words


@pytest.mark.usefixtures("operator")
def test_the_operator_creates_a_cluster_with_its_own_account(plane: ControlPlane) -> None:
    made = {
        "Created Created the ConfigMap main-formation.",
        "Applied Applied the PodDisruptionBudget main.",
        "Applied Applied the StatefulSet main with 1 broker.",
    }

    wait_until(lambda: len(described(plane, "clusters.tidelog.io", "main")) >= 6, "all events are written")

    shown = {line.removeprefix("Normal ") for line in described(plane, "clusters.tidelog.io", "main")}
    assert shown >= made
    assert not any("Failed" in line for line in shown)
    assert plane.object("StatefulSet", "main")["metadata"]["ownerReferences"][0]["blockOwnerDeletion"]
    assert plane.object("ConfigMap", "tidelog-broker-counts")["data"] == {"main": "1"}


def test_the_operator_serves_its_metrics(plane: ControlPlane, operator: OperatorProcess) -> None:
    plane.apply(stream("counted"))
    wait_until(lambda: reason(plane, "counted") == "Serving", "the stream exists")

    wait_until(
        lambda: "tidelog_operator_streams_not_ready 0.0" in operator.get("/metrics"), "the metrics show it"
    )
    page = operator.get("/metrics").splitlines()

    assert operator.get("/healthz") == "ok\n"
    assert operator.get("/readyz") == "ready\n"
    assert "tidelog_operator_leads 1.0" in page
    assert 'tidelog_operator_objects{kind="Cluster"} 1.0' in page
    assert 'tidelog_operator_objects{kind="Stream"} 1.0' in page
    assert any(line.startswith('tidelog_operator_actions_total{kind="CreateStream"}') for line in page)
    assert any(
        line.startswith(
            'tidelog_operator_api_requests_total{code="200",resource="streams/status",verb="patch"}'
        )
        for line in page
    )
    labels = 'cluster="main",namespace="default"'
    assert any(line.startswith(f"tidelog_operator_pass_seconds_count{{{labels}}}") for line in page)
    assert f"tidelog_operator_failed_passes_total{{{labels}}} 0.0" in page

"""The rendered objects fit together, and fit the objects that the operator creates for the Cluster."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from chart.releases import PLACED, RELEASES
from chart.rendered_release import BROKERS, DEFINITIONS, DRIVER, NATS, OPERATOR, TEST, Release
from support.kube.chart import CHART, NAMESPACE, Manifest, is_hook, rendered
from support.kube.control_plane import CRDS
from tidelog.cli.local.nats_server import find_nats_server
from tidelog_operator.__main__ import app

CLUSTER_WIDE = {
    "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip


@pytest.fixture(params=list(RELEASES))
def release(request: pytest.FixtureRequest, programs: Path) -> Release:
    return _release(programs, request.param)


@pytest.fixture
def full(programs: Path) -> Release:
    return _release(programs, "everything said")


@cache
def _release(programs: Path, name: str) -> Release:
    """Tests only read it, and Helm takes a second."""
    return Release(programs, RELEASES[name])


def test_the_definitions_are_those_of_the_repository() -> None:
    def texts(folder: Path) -> dict[str, str]:
        return {file.name: file.read_text("utf-8") for file in folder.iterdir()}

    assert texts(CHART / "crds") == texts(CRDS)


def test_selectors_match_the_right_pods(full: Release) -> None:
    selecting = {
        (one["kind"], one["metadata"]["name"]): full.selected(one["spec"]["selector"])
        for one in full.of("Service")
    } | {
        (one["kind"], one["metadata"]["name"]): full.selected(one["spec"]["selector"]["matchLabels"])
        for kind in ("PodDisruptionBudget", "Deployment", "StatefulSet")
        for one in full.of(kind)
    }

    assert selecting == {
        ("Service", "log-operator"): {OPERATOR},
        ("Service", "log-nats"): {NATS},
        ("Service", "log-nats-servers"): {NATS},
        ("PodDisruptionBudget", "log-operator"): {OPERATOR},
        ("PodDisruptionBudget", "log-nats"): {NATS},
        ("Deployment", "log-operator"): {OPERATOR},
        ("StatefulSet", "log-nats"): {NATS},
    }
    for part in (OPERATOR, NATS):
        for spread in full.pods[part]["spec"]["topologySpreadConstraints"]:
            assert full.selected(spread["labelSelector"]["matchLabels"]) == {part}


def test_services_use_ports_of_their_pods(release: Release) -> None:
    for service in release.services:
        (part,) = release.selected(service["spec"]["selector"])
        there = release.ports(part)
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in (*there, *there.values())


def allowed(release: Release, policy: Manifest) -> dict[str, set[str]]:
    """Returns by port which parts of the release, and which clients of the values, may connect."""
    (part,) = release.selected(policy["spec"]["podSelector"]["matchLabels"])
    found: dict[str, set[str]] = {}
    for rule in policy["spec"]["ingress"]:
        peers: set[str] = set()
        for peer in rule.get("from", [{"anybody": {}}]):
            labels = peer.get("podSelector", {}).get("matchLabels")
            peers |= release.selected(labels) if labels else set(peer)
        for port in rule["ports"]:
            assert port["port"] in release.ports(part)
            found[f"{part} {port['port']}"] = peers
    return found


def reachable(release: Release) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for policy in release.of("NetworkPolicy"):
        assert policy["spec"]["policyTypes"] == ["Ingress"]
        found |= allowed(release, policy)
    return found


def test_network_policies_allow_exactly_the_necessary_clients(full: Release, programs: Path) -> None:
    shop, prometheus, office = "namespaceSelector", "ipBlock", "ipBlock"

    spark = {
        "driver driver": {DRIVER},
        "driver blockmanager": {DRIVER},
        "driver report": {OPERATOR},
    }
    assert reachable(full) == spark | {
        "operator http": {prometheus},
        "brokers clients": {shop, BROKERS, OPERATOR, TEST, DRIVER},
        "brokers outside": {office},
        "brokers cloud": {office},
        "brokers peers": {BROKERS},
        "brokers http": {prometheus},
        "nats clients": {shop, BROKERS},
        "nats routes": {NATS},
    }
    as_it_comes = spark | {
        "operator http": {"anybody"},
        "brokers clients": {"anybody"},
        "brokers peers": {BROKERS},
        "brokers http": {"anybody"},
        "nats clients": {"anybody"},
        "nats routes": {NATS},
    }
    assert reachable(Release(programs, {})) == as_it_comes
    opened = reachable(Release(programs, RELEASES["a way from outside"]))
    assert opened == as_it_comes | {"brokers outside": {"anybody"}}


def test_every_pod_with_metrics_is_scraped_once(full: Release) -> None:
    scraped = []
    for monitor in full.of("ServiceMonitor"):
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        labels = monitor["spec"]["selector"]["matchLabels"]
        (endpoint,) = monitor["spec"]["endpoints"]
        for service in full.services:
            if labels.items() <= service["metadata"]["labels"].items():
                assert set(monitor["spec"].get("targetLabels", ())) <= service["metadata"]["labels"].keys()
                names = [
                    port["name"] for port in service["spec"]["ports"] if port["name"] == endpoint["port"]
                ]
                scraped += names and sorted(full.selected(service["spec"]["selector"]))

    assert sorted(scraped) == [BROKERS, OPERATOR]


def test_all_images_have_a_tag_and_are_those_of_the_values(release: Release, full: Release) -> None:
    for pod in release.pods.values():
        for container in pod["spec"]["containers"]:
            _, _, tag = container["image"].rpartition("/")[2].partition(":")
            assert tag
            assert container["imagePullPolicy"] == "IfNotPresent"
    broker = "registry.example.com:5000/tidelog/broker:1.2.3"
    images = {part: pod["spec"]["containers"][0]["image"] for part, pod in full.pods.items()}
    assert (images[BROKERS], images[TEST]) == (broker, broker)
    assert images[OPERATOR] == images[DEFINITIONS] == "tidelog/operator:0.1.0"
    assert all(pod["spec"]["imagePullSecrets"] == [{"name": "registry"}] for pod in full.pods.values())


def test_pods_have_the_resources_of_the_values(release: Release, full: Release) -> None:
    for part, pod in full.pods.items():
        assert pod["spec"]["containers"][0]["resources"]["requests"], part
    for part in (OPERATOR, NATS, DEFINITIONS, BROKERS, TEST):
        assert full.pods[part]["spec"]["nodeSelector"] == {"disk": "fast"}
        assert full.pods[part]["spec"]["tolerations"][0]["key"] == "tidelog"
    for pod in release.pods.values():
        assert pod["spec"]["enableServiceLinks"] is False


def test_only_pods_that_use_the_api_server_have_a_token(release: Release) -> None:
    with_token = {part for part, pod in release.pods.items() if pod["spec"]["automountServiceAccountToken"]}

    assert with_token <= {OPERATOR, DEFINITIONS}
    for part in with_token:
        name = release.pods[part]["spec"]["serviceAccountName"]
        assert release.one("ServiceAccount", name)["automountServiceAccountToken"] is False


def test_the_cluster_has_the_fields_of_the_values(full: Release) -> None:
    assert full.one("Cluster", "orders")["spec"] == {
        "brokers": 5,
        "voters": 5,
        "image": "registry.example.com:5000/tidelog/broker:1.2.3",
        "imagePullPolicy": "IfNotPresent",
        "imagePullSecrets": [{"name": "registry"}],
        "storage": {"size": "100Gi", "storageClassName": "fast"},
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        **PLACED,
        "priorityClassName": "system-cluster-critical",
        "nats": {"url": "nats://log-nats.tidelog-system.svc:4222"},
        "rackLabel": "example.com/rack",
        "listeners": RELEASES["everything said"]["cluster"]["listeners"],
        "settings": RELEASES["everything said"]["cluster"]["settings"],
        "replaceAfter": "1h30m",
        "moves": {"atOnce": 10000, "balance": False},
    }


@pytest.mark.parametrize(
    ("name", "nats"),
    [
        ("as it comes", {"url": "nats://tidelog-nats.tidelog-system.svc:4222"}),
        ("as little as can be", None),
        ("another NATS", {"url": "nats://one:4222,tls://two:4222"}),
    ],
)
def test_brokers_use_the_configured_nats(programs: Path, name: str, nats: object) -> None:
    release = Release(programs, RELEASES[name])

    assert release.one("Cluster", "main")["spec"].get("nats") == nats
    assert bool(release.of("StatefulSet")) == (name == "as it comes")


def test_names_that_look_like_other_types_stay_strings(programs: Path) -> None:
    names = {"priorityClassName": "1000", "storage": {"storageClassName": "1e3"}, "rackLabel": "null"}

    spec = Release(programs, {"cluster": names}).one("Cluster", "main")["spec"]

    found = (spec["priorityClassName"], spec["storage"]["storageClassName"], spec["rackLabel"])
    assert found == ("1000", "1e3", "null")


# --- the operator


def test_the_operator_gets_its_namespaces_and_its_lease(full: Release) -> None:
    account = full.one("ServiceAccount", "-operator")["metadata"]["name"]
    (container,) = full.pods[OPERATOR]["spec"]["containers"]
    words = container["command"]
    role = full.one("Role", "-operator")

    assert words[:2] == ["tidelog-operator", "run"]
    assert [one for one in words if "namespace" in one] == ["--namespace=shop", "--namespace=tidelog-system"]
    assert f"--lease-name={account}" in words
    assert [one.get("resourceNames") for one in role["rules"]] == [None, [account]]


def test_the_command_lines_are_valid(full: Release) -> None:
    for part in (OPERATOR, DEFINITIONS):
        (container,) = full.pods[part]["spec"]["containers"]
        _, command, *words = container["command"]
        known = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
        for word in words:
            assert word.startswith("/") or f"{word.partition('=')[0]} " in known


def test_with_namespaces_the_rights_cover_only_these(programs: Path) -> None:
    release = Release(programs, RELEASES["the operator alone"])
    role = "tidelog-system.tidelog-operator"

    where = [
        one["metadata"]["namespace"] for one in release.of("RoleBinding") if one["roleRef"]["name"] == role
    ]
    bound = [one["roleRef"]["name"] for one in release.of("ClusterRoleBinding") if not is_hook(one)]
    (everywhere,) = [one for one in release.of("ClusterRole") if one["metadata"]["name"] == bound[0]]

    assert where == ["farm", "shop", "tidelog-system"]
    assert bound == [f"{role}-nodes"]
    assert {resource for rule in everywhere["rules"] for resource in rule["resources"]} == {
        "nodes", "customresourcedefinitions", "namespaces",
    }  # fmt: skip


def test_every_role_is_bound_to_an_existing_account(release: Release) -> None:
    accounts = {
        (one["metadata"]["namespace"], one["metadata"]["name"]) for one in release.of("ServiceAccount")
    }
    roles = {(kind, one["metadata"]["name"]) for kind in ("Role", "ClusterRole") for one in release.of(kind)}

    for binding in [*release.of("RoleBinding"), *release.of("ClusterRoleBinding")]:
        (subject,) = binding["subjects"]
        assert (subject["namespace"], subject["name"]) in accounts
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in roles


def test_the_policy_exempts_the_operator_and_guards_only_its_namespaces(
    full: Release,
) -> None:
    (policy,) = full.of("ValidatingAdmissionPolicy")
    (condition,) = policy["spec"]["matchConditions"]
    own, labelled = (one["spec"] for one in full.of("ValidatingAdmissionPolicyBinding"))

    account = full.pods[OPERATOR]["spec"]["serviceAccountName"]
    assert condition["expression"].endswith(f"'system:serviceaccount:{NAMESPACE}:{account}'")
    assert own["matchResources"]["namespaceSelector"] == {
        "matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}
    }
    assert labelled["matchResources"]["namespaceSelector"] == {
        "matchLabels": {"tidelog.io/brokers": "true"},
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["shop", NAMESPACE]}
        ],
    }


def test_releases_do_not_share_objects_without_a_namespace(programs: Path) -> None:
    def names(release: str, namespace: str) -> set[tuple[str, str]]:
        objects = rendered(programs, release=release, namespace=namespace)
        for one in objects:
            assert ("namespace" in one["metadata"]) == (one["kind"] not in CLUSTER_WIDE)
        return {(one["kind"], one["metadata"]["name"]) for one in objects if one["kind"] in CLUSTER_WIDE}

    first, second, third = names("a", "b-c"), names("c-a", "b"), names("a", "c")

    assert first
    assert not first & second
    assert not first & third


# --- NATS


def nats_config(release: Release) -> str:
    config: str = release.one("ConfigMap", "-nats")["data"]["nats.conf"]
    return config


@pytest.mark.parametrize("name", ["as it comes", "everything said"])
def test_nats_takes_its_settings(programs: Path, name: str, tmp_path: Path) -> None:
    file = tmp_path / "nats.conf"
    file.write_text(nats_config(Release(programs, RELEASES[name])))

    words = [find_nats_server(), "-t", "--config", str(file)]
    done = subprocess.run(
        words, env={**os.environ, "POD_NAME": "log-nats-0"}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_nats_servers_find_each_other_by_dns_names_of_their_service(full: Release) -> None:
    (servers,) = full.of("StatefulSet")
    config = nats_config(full)

    service = full.one("Service", servers["spec"]["serviceName"])
    hosts = [f"log-nats-{number}.{service['metadata']['name']}.{NAMESPACE}.svc:6222" for number in range(5)]
    assert [line.strip() for line in config.splitlines() if "6222" in line][1:] == [
        f"nats://{host}" for host in hosts
    ]
    assert "max_payload: 2MB\nmax_connections: 1000" in config
    assert servers["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 30
    assert "lame_duck_duration: 30s" in config


def test_only_changed_settings_restart_nats(programs: Path) -> None:
    def template(**values: Any) -> Manifest:
        found: Manifest = Release(programs, values).one("StatefulSet", "-nats")["spec"]["template"]
        return found

    before = template()

    assert template(nats={"config": "max_payload: 2MB"}) != before
    assert template(cluster={"brokers": 5}, operator={"replicas": 1}) == before
    # A new version of the chart with the same NATS.
    assert set(before["metadata"]["labels"]) == {"app.kubernetes.io/name", "app.kubernetes.io/instance"}

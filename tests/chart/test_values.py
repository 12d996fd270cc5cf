"""The chart's values: each has a comment, and impossible values are rejected before anything is created."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.releases import RELEASES
from support.kube.chart import CHART, helm, rendered, templated
from support.kube.control_plane import CRDS

VALUES = (CHART / "values.yaml").read_text("utf-8")
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))


NODES: dict[str, Any] = {"name": "outside", "port": 9310, "type": "NodePort", "firstNodePort": 30000}
CLOUD: dict[str, Any] = {
    "name": "cloud",
    "port": 9320,
    "type": "LoadBalancer",
    "host": "{broker}.example.com",
}


def values_of(path: str, value: object) -> dict[str, Any]:
    """Returns a values file for `a.b` and a value."""
    found: Any = value
    for key in reversed(path.split(".")):
        found = {key: found}
    return dict(found)


def test_helm_lint_reports_nothing(programs: Path) -> None:
    done = helm(programs, "lint", "--strict", "--quiet", str(CHART))

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", RELEASES)
def test_valid_values_are_rendered(programs: Path, name: str) -> None:
    assert rendered(programs, RELEASES[name])


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("clusters", {}, "additional properties 'clusters' not allowed"),
        ("cluster.replicas", 3, "additional properties 'replicas' not allowed"),
        ("cluster.image.digest", "a", "additional properties 'digest' not allowed"),
        ("nameOverride", "Log", "'/nameOverride': 'Log' does not match pattern"),
        ("nameOverride", "a" * 41, "'/nameOverride': maxLength: got 41, want 40"),
        ("imagePullSecrets", ["registry"], "'/imagePullSecrets/0': got string, want object"),
        ("crds.upgrade", "yes", "'/crds/upgrade': got string, want boolean"),
        ("cluster.name", "main-brokers", "'/cluster/name': 'not' failed"),
        ("cluster.name", "1st", "'/cluster/name': '1st' does not match pattern"),
        ("cluster.name", "a" * 41, "'/cluster/name': maxLength: got 41, want 40"),
        ("cluster.name", None, "missing property 'name'"),
        ("cluster.brokers", 0, "'/cluster/brokers': minimum: got 0, want 1"),
        ("cluster.brokers", 100, "'/cluster/brokers': maximum: got 100, want 99"),
        ("cluster.brokers", "3", "'/cluster/brokers': got string, want integer"),
        ("cluster.brokers", 1.5, "'/cluster/brokers': got number, want integer"),
        ("cluster.voters", 2, "'/cluster/voters': value must be one of 1, 3, 5"),
        (
            "cluster.image.repository",
            "tidelog/broker:1",
            "'/cluster/image/repository': 'tidelog/broker:1' does",
        ),
        ("cluster.image.tag", 1, "'/cluster/image/tag': got number, want string"),
        ("cluster.image.tag", "a b", "'/cluster/image/tag': 'a b' does not match pattern"),
        ("cluster.image.pullPolicy", "Sometimes", "value must be one of 'Always', 'IfNotPresent', 'Never'"),
        ("cluster.storage.size", "10 GB", "'/cluster/storage/size': '10 GB' does not match pattern"),
        ("cluster.storage.size", None, "missing property 'size'"),
        ("cluster.storage.storageClassName", "a_b", "'/cluster/storage/storageClassName'"),
        ("cluster.resources.limits.memory", "2GB", "'/cluster/resources/limits/memory': '2GB' does not"),
        ("cluster.resources.claims", [], "additional properties 'claims' not allowed"),
        ("cluster.rackLabel", "", "'/cluster/rackLabel': minLength: got 0, want 1"),
        ("cluster.listeners", {}, "'/cluster/listeners': got object, want array"),
        ("cluster.listeners", [{**NODES, "name": name} for name in "abcde"], "maxItems: got 5, want 4"),
        ("cluster.listeners", [{**NODES, "tls": 1}], "additional properties 'tls' not allowed"),
        (
            "cluster.listeners",
            [{**NODES, "name": "Out"}],
            "'/cluster/listeners/0/name': 'Out' does not match",
        ),
        ("cluster.listeners", [{**NODES, "name": "a--b"}], "'/cluster/listeners/0/name': 'not' failed"),
        ("cluster.listeners", [{**NODES, "name": "peers"}], "'/cluster/listeners/0/name': 'not' failed"),
        ("cluster.listeners", [{**NODES, "port": 9210}], "'/cluster/listeners/0/port': 'not' failed"),
        ("cluster.listeners", [{**NODES, "firstNodePort": 32670}], "maximum: got 32,670, want 32,669"),
        (
            "cluster.listeners",
            [{**NODES, "host": "a_b"}],
            "'/cluster/listeners/0/host': 'a_b' does not match",
        ),
        (
            "cluster.listeners",
            [{**NODES, "sourceRanges": ["10.0.0.0/8"]}],
            "'/cluster/listeners/0/sourceRanges'",
        ),
        ("cluster.listeners", [{**NODES, "type": "LoadBalancer"}], "missing property 'host'"),
        ("cluster.listeners", [{**CLOUD, "type": "NodePort"}], "missing property 'firstNodePort'"),
        (
            "cluster.listeners",
            [{**CLOUD, "host": "one"}],
            "'/cluster/listeners/0/host': 'one' does not match",
        ),
        ("cluster.listeners", [{**CLOUD, "annotations": {"tidelog.io/a": ""}}], "'tidelog.io/a'"),
        ("cluster.settings.logLevel", "loud", "'/cluster/settings/logLevel': value must be one of"),
        ("cluster.settings.batchSize", 1, "additional properties 'batchSize' not allowed"),
        ("cluster.replaceAfter", "5 minutes", "'/cluster/replaceAfter': '5 minutes' does not match"),
        ("cluster.moves.atOnce", 0, "'/cluster/moves/atOnce': minimum: got 0, want 1"),
        ("operator.replicas", 0, "'/operator/replicas': minimum: got 0, want 1"),
        ("operator.namespaces", "shop", "'/operator/namespaces': got string, want array"),
        ("operator.namespaces", ["tidelog-system"] * 2, "items at 0 and 1 are equal"),
        ("operator.tolerations", [{"key": "a", "effect": "Never"}], "'/operator/tolerations/0/effect'"),
        (
            "cluster.nodeSelector",
            {"disk": "very fast"},
            "'/cluster/nodeSelector/disk': 'very fast'",
        ),
        ("cluster.nodeSelector", {"the disk": "fast"}, "'the disk'"),
        ("cluster.nodeSelector", {"a..b/c": "fast"}, "'a..b/c'"),
        ("cluster.nodeSelector", {f"{'a' * 254}/c": "fast"}, "/c'"),
        ("cluster.tolerations", [{"key": "", "value": "a"}], "'/cluster/tolerations/0/key': minLength"),
        ("cluster.tolerations", [{"value": "a"}], "'/cluster/tolerations/0': missing property 'key'"),
        ("cluster.tolerations", [{"operator": "Exists", "value": "a"}], "'/cluster/tolerations/0/value'"),
        (
            "cluster.tolerations",
            [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}],
            "'/cluster/tolerations/0/effect': value must be 'NoExecute'",
        ),
        ("cluster.priorityClassName", "Important", "'/cluster/priorityClassName'"),
        ("nats.url", "nats.messaging:4222", "'/nats/url': 'nats.messaging:4222' does not match pattern"),
        ("nats.url", "nats://nats.messaging:4222", "'/nats/url': value must be ''"),
        ("nats.replicas", 0, "'/nats/replicas': minimum: got 0, want 1"),
        ("nats.image.tag", "", "'/nats/image/tag': minLength: got 0, want 1"),
        ("networkPolicy.clients", [{}], "'/networkPolicy/clients/0': minProperties: got 0, want 1"),
        ("networkPolicy.outside", [{"ipBlock": {}}], "missing property 'cidr'"),
        ("networkPolicy.monitoring", [{"pods": {}}], "additional properties 'pods' not allowed"),
        ("monitoring.interval", "30", "'/monitoring/interval': '30' does not match pattern"),
    ],
)
def test_invalid_values_are_rejected_with_their_path(
    programs: Path, path: str, value: object, said: str
) -> None:
    done = templated(programs, values_of(path, value))

    assert done.returncode != 0
    assert said in done.stderr


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode != 0
    return done.stderr


def test_all_namespaces_with_a_list_of_namespaces_is_rejected(programs: Path) -> None:
    values = {"operator": {"allNamespaces": True, "namespaces": ["shop"]}}

    assert "Leave operator.namespaces empty" in refusal(templated(programs, values))


@pytest.mark.parametrize("name", ["tidelog-operator", "tidelog-nats"])
def test_a_cluster_with_the_name_of_another_part_is_rejected(programs: Path, name: str) -> None:
    refused = refusal(templated(programs, values_of("cluster.name", name)))

    assert f"cluster.name is {name}, but another part of this release has this name" in refused


def test_globals_are_allowed_for_a_subchart(programs: Path) -> None:
    assert templated(programs, values_of("global.region", "north")).returncode == 0


# --- comments


def sections(node: yaml.MappingNode, schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, bool]]:
    """Yields the path of each value, and whether a comment is above it. A value without a comment must be a
    group of other values that the schema knows."""
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    for part in schema.get("allOf", ()):
        if "$ref" in part:
            yield from sections(node, part, path)
            return
    keys = [key.value for key, _ in node.value]
    assert sorted(keys) == sorted(schema["properties"].keys() - {"global"}), f"values and schema of {path}"
    lines = VALUES.splitlines()
    for key, value in node.value:
        here = f"{path}.{key.value}".lstrip(".")
        above = lines[key.start_mark.line - 1].strip()
        told = above.startswith("# ") and above.endswith(".")
        if told or not isinstance(value, yaml.MappingNode):
            yield here, told
        else:
            yield from sections(value, schema["properties"][key.value], here)


def test_every_value_has_a_comment_and_a_schema_and_vice_versa() -> None:
    root = yaml.compose(VALUES)
    assert isinstance(root, yaml.MappingNode)

    found = list(sections(root, SCHEMA))

    assert len(found) > 40
    assert [path for path, told in found if not told] == []


def objects(schema: object, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields all parts of the schema that describe objects."""
    if isinstance(schema, Mapping):
        if schema.get("type") == "object":
            yield path, schema
        for key, below in schema.items():
            yield from objects(below, f"{path}/{key}")


def test_no_object_of_the_schema_allows_unknown_fields() -> None:
    loose = [path for path, one in objects(SCHEMA) if one.get("additionalProperties") is None]

    assert loose == ["/properties/global"]


def test_the_schema_of_a_cluster_matches_its_definition() -> None:
    """A value that the schema accepts and the definition rejects, or vice versa, would be useless."""
    (version,) = yaml.safe_load((CRDS / "cluster.yaml").read_text())["spec"]["versions"]
    defined = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    known = SCHEMA["properties"]["cluster"]["properties"]
    values = yaml.safe_load(VALUES)["cluster"]

    elsewhere = {"imagePullPolicy", "imagePullSecrets", "nats"}
    assert defined.keys() - elsewhere == known.keys() - {"create", "name"}
    assert defined["settings"]["properties"].keys() == known["settings"]["properties"].keys()
    listener = defined["listeners"]["items"]["properties"]
    assert listener.keys() == SCHEMA["definitions"]["listener"]["properties"].keys()
    toleration = defined["tolerations"]["items"]["properties"]
    assert toleration.keys() == SCHEMA["definitions"]["tolerations"]["items"]["properties"].keys()
    assert known["brokers"] == {key: defined["brokers"][key] for key in ("type", "minimum", "maximum")}
    assert known["voters"] == {"enum": defined["voters"]["enum"]}
    for name in ("brokers", "voters", "rackLabel", "replaceAfter"):
        assert values[name] == defined[name]["default"]
    assert values["moves"] == {name: one["default"] for name, one in defined["moves"]["properties"].items()}

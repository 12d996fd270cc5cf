"""Which Streams and Clusters the API server rejects, with which message, and which defaults it sets."""

from __future__ import annotations

import pytest

from support.kube.control_plane import ControlPlane
from support.kube.situations import CLUSTER_DEFAULTS, STREAM_DEFAULTS
from support.kube.specs import BALANCED, NODES, Spec, changed, cluster, stream
from support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"cluster": None}, "spec.cluster: Required value"),
        ({"cluster": "x" * 41}, "spec.cluster: Too long: may not be more than 40"),
        ({"streamName": "-a"}, "streamName may contain only letters, digits, '.', '_' and '-'"),
        ({"streamName": "a b"}, "streamName may contain only letters, digits, '.', '_' and '-'"),
        ({"streamName": "__ours"}, "streamName must not begin with '__': these names are reserved"),
        ({"streamName": "x" * 201}, "spec.streamName: Too long"),
        ({"subject": ""}, "spec.subject: Invalid value"),
        ({"subject": "a b"}, "subject must not contain spaces or control characters"),
        ({"subject": "a..b"}, "subject has an empty token"),
        ({"subject": ".a"}, "subject has an empty token"),
        ({"subject": "a."}, "subject has an empty token"),
        ({"subject": "a.b*"}, "'*' and '>' in subject must be whole tokens between dots"),
        ({"subject": "a.>b"}, "'*' and '>' in subject must be whole tokens between dots"),
        ({"subject": "a.>.b"}, "'>' may only be the last token of subject"),
        (
            {"subject": "$JS.>"},
            "A subject with wildcards that begins with '$' or '_INBOX.' would record nothing",
        ),
        (
            {"subject": "_INBOX.*"},
            "A subject with wildcards that begins with '$' or '_INBOX.' would record nothing",
        ),
        ({"partitions": 0}, "spec.partitions in body should be greater than or equal to 1"),
        ({"partitions": 10_001}, "spec.partitions in body should be less than or equal to 10000"),
        ({"partitions": "three"}, "spec.partitions in body must be of type integer"),
        ({"replicationFactor": 0}, "spec.replicationFactor in body should be greater than or equal to 1"),
        ({"replicationFactor": 16}, "spec.replicationFactor in body should be less than or equal to 15"),
        (
            {"replicationFactor": 3, "minInsyncReplicas": 4},
            "minInsyncReplicas is greater than replicationFactor, so no write could ever be acknowledged",
        ),
        ({"durability": "sometimes"}, 'spec.durability: Unsupported value: "sometimes"'),
        ({"retention": {"age": "a week"}}, "spec.retention.age: Invalid value"),
        ({"retention": {"bytes": "lots"}}, "spec.retention.bytes: Invalid value"),
        (
            {"retention": {"messages": 0}},
            "spec.retention.messages in body should be greater than or equal to 1",
        ),
        ({"segments": {"bytes": "1 GB"}}, "spec.segments.bytes: Invalid value"),
        ({"limits": {"timestampAhead": "-1h"}}, "spec.limits.timestampAhead: Invalid value"),
        ({"dedupe": {"count": -1}}, "spec.dedupe.count in body should be greater than or equal to 0"),
        ({"nats": {"ack": "Perhaps"}}, 'spec.nats.ack: Unsupported value: "Perhaps"'),
        ({"deletionPolicy": "Ask"}, 'spec.deletionPolicy: Unsupported value: "Ask"'),
        ({"partition": 3}, 'unknown field "spec.partition"'),
    ],
)
def test_an_impossible_stream_is_rejected(plane: ControlPlane, spec: Spec, sentence: str) -> None:
    manifest = stream(**spec)
    if spec.get("cluster", "") is None:
        del manifest["spec"]["cluster"]

    assert sentence in plane.created(manifest)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ({}, {"cluster": "other"}, "cluster cannot change: records do not move between clusters"),
        ({"streamName": "a"}, {"streamName": "b"}, "streamName cannot change: a stream keeps its name"),
        ({}, {"streamName": "b"}, "streamName cannot be added or removed"),
        ({"streamName": "a"}, {}, "streamName cannot be added or removed"),
        ({"partitions": 3}, {"partitions": 2}, "partitions cannot decrease: records never move"),
        (
            {"partitions": 3, "subject": "a.>"},
            {"partitions": 4, "subject": "a.>"},
            "partitions cannot change while a subject is recorded",
        ),
    ],
)
def test_an_impossible_change_of_a_stream_is_rejected(
    plane: ControlPlane, before: Spec, after: Spec, sentence: str
) -> None:
    manifest = changed(plane, stream(**before), stream(**after))

    assert sentence in plane.replaced(manifest)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"partitions": 3}, {"partitions": 9}),
        ({"subject": "a.>"}, {"subject": "b.*.c"}),
        ({"partitions": 3, "subject": "a.>"}, {"partitions": 3}),
        ({"partitions": 3}, {"partitions": 4, "subject": "a.>"}),
        ({"replicationFactor": 3}, {"replicationFactor": 2}),
        ({"replicationFactor": 3}, {}),
        ({}, {"replicationFactor": 1}),
        ({}, {"durability": "page-cache", "minInsyncReplicas": 1, "deletionPolicy": "Delete"}),
        ({"retention": {}}, {"retention": {"age": "1h30m", "bytes": "50Gi", "messages": 10}}),
        ({"retention": {"bytes": 1048576}}, {"retention": {"bytes": "1.5Gi"}}),
        (
            {},
            {
                "nats": {"ack": "Never"},
                "dedupe": {"window": "0s", "count": 0},
                "limits": {"batchBytes": "4Mi"},
            },
        ),
    ],
)
def test_a_possible_change_of_a_stream_is_accepted(plane: ControlPlane, before: Spec, after: Spec) -> None:
    manifest = changed(plane, stream(**before), stream(**after))

    assert not plane.replaced(manifest)

    kept = plane.object("Stream", manifest["metadata"]["name"])["spec"]
    for name, value in after.items():
        assert value.items() <= kept[name].items() if isinstance(value, dict) else value == kept[name]


def test_a_missing_field_of_a_stream_has_the_default_of_the_brokers(plane: ControlPlane) -> None:
    manifest = stream()

    assert not plane.created(manifest)

    kept = plane.object("Stream", manifest["metadata"]["name"])["spec"]
    assert kept == {"cluster": "main", **STREAM_DEFAULTS}


def test_a_missing_field_of_a_cluster_has_a_default(plane: ControlPlane) -> None:
    manifest = cluster()

    assert not plane.created(manifest)

    kept = plane.object("Cluster", manifest["metadata"]["name"])["spec"]
    assert kept == {**manifest["spec"], **CLUSTER_DEFAULTS}


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"image": None}, "spec.image: Required value"),
        ({"storage": {}}, "spec.storage.size: Required value"),
        ({"storage": {"size": "big"}}, "spec.storage.size: Invalid value"),
        ({"brokers": 0}, "spec.brokers in body should be greater than or equal to 1"),
        ({"brokers": 100}, "spec.brokers in body should be less than or equal to 99"),
        ({"voters": 2}, 'spec.voters: Unsupported value: 2: supported values: "1", "3", "5"'),
        ({"nats": {"url": "nats"}}, "spec.nats.url: Invalid value"),
        ({"nats": {}}, "spec.nats.url: Required value"),
        ({"imagePullPolicy": "Maybe"}, 'spec.imagePullPolicy: Unsupported value: "Maybe"'),
        ({"settings": {"logLevel": "loud"}}, 'spec.settings.logLevel: Unsupported value: "loud"'),
        (
            {"settings": {"catchUpBytesPerSecond": "fast"}},
            "spec.settings.catchUpBytesPerSecond: Invalid value",
        ),
        ({"replaceAfter": "soon"}, "spec.replaceAfter: Invalid value"),
        ({"moves": {"atOnce": 0}}, "spec.moves.atOnce in body should be greater than or equal to 1"),
        ({"replicas": 3}, 'unknown field "spec.replicas"'),
        ({"nodeSelector": {"disk": "very fast"}}, "spec.nodeSelector.disk: Invalid value"),
        ({"nodeSelector": {"the disk": "a"}}, "A key of nodeSelector must be a label name"),
        *(
            ({"nodeSelector": {key: "a"}}, "A key of nodeSelector must be a label name")
            for key in ("a..b/c", "a.-b/c", "A/c", "/c", "a/", f"{'a' * 254}/c", "c" * 64, "")
        ),
        ({"tolerations": [{"key": "the disk"}]}, "spec.tolerations[0].key: Invalid value"),
        ({"tolerations": [{"key": "a..b/c"}]}, "spec.tolerations[0].key: Invalid value"),
        (
            {"tolerations": [{"key": f"{'a' * 254}/c"}]},
            "The part of a key before the / has at most 253 characters",
        ),
        ({"tolerations": [{"key": "", "value": "a"}]}, "A toleration without a key matches all taints"),
        ({"tolerations": [{"key": "a", "effect": "Never"}]}, 'effect: Unsupported value: "Never"'),
        ({"tolerations": [{"value": "a"}]}, "A toleration without a key matches all taints"),
        (
            {"tolerations": [{"operator": "Exists", "value": "a"}]},
            "A toleration with the operator Exists must not have a value",
        ),
        (
            {"tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}]},
            "Only a toleration with the effect NoExecute may have tolerationSeconds",
        ),
        ({"priorityClassName": "Important"}, "spec.priorityClassName: Invalid value"),
    ],
)
def test_an_impossible_cluster_is_rejected(plane: ControlPlane, spec: Spec, sentence: str) -> None:
    manifest = cluster(**spec)
    if spec.get("image", "") is None:
        del manifest["spec"]["image"]

    assert sentence in plane.created(manifest)


def test_placement_fields_are_those_of_a_pod(plane: ControlPlane) -> None:
    """With the longest names, and with empty values."""
    label = f"{'a' * 63}.{'b' * 189}/{'c' * 63}"
    spec = {
        "nodeSelector": {label: "d" * 63, "empty": ""},
        "tolerations": [
            {"key": label, "operator": "", "value": "d" * 63, "effect": ""},
            {"key": "", "operator": "Exists", "value": ""},
            {"key": "a", "effect": "NoExecute", "tolerationSeconds": -1},
        ],
        "priorityClassName": "1000",
    }
    manifest = cluster(**spec)

    assert not plane.created(manifest)

    kept = plane.object("Cluster", manifest["metadata"]["name"])["spec"]
    assert {name: kept[name] for name in spec} == spec
    pod = {
        "containers": [{"name": "one", "image": "one"}],
        **spec,
        "priorityClassName": "system-node-critical",
    }
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "namespace": "default"},
        "spec": pod,
    }
    assert plane.kubectl("create", "--dry-run=server", "-f", "-", given=made)


@pytest.mark.parametrize("name", ["x" * 41, "1a", "main-brokers"])
def test_a_cluster_with_a_name_that_no_service_can_have_is_rejected(plane: ControlPlane, name: str) -> None:
    manifest = cluster()
    manifest["metadata"]["name"] = name

    assert "The name of a Cluster" in plane.created(manifest)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            {"storage": {"size": "10Gi"}},
            {"storage": {"size": "20Gi"}},
            "storage.size cannot change: the volumes of a StatefulSet keep their size",
        ),
        (
            {"storage": {"size": "10Gi", "storageClassName": "a"}},
            {"storage": {"size": "10Gi", "storageClassName": "b"}},
            "storage.storageClassName cannot change",
        ),
        (
            {"storage": {"size": "10Gi"}},
            {"storage": {"size": "10Gi", "storageClassName": "b"}},
            "storage.storageClassName cannot be added or removed",
        ),
        *(
            (
                {"listeners": [{**BALANCED, **before}]},
                {"listeners": [{**BALANCED, **after}]},
                "loadBalancerClass cannot change: services keep theirs. Add a listener with another name",
            )
            for before, after in (
                ({"loadBalancerClass": "a"}, {"loadBalancerClass": "b"}),
                ({"loadBalancerClass": "a"}, {}),
                ({}, {"loadBalancerClass": "b"}),
            )
        ),
        *(
            (
                {"listeners": [NODES]},
                {"listeners": [after]},
                "type and firstNodePort of a listener cannot change",
            )
            for after in ({**NODES, "firstNodePort": 30001}, {**BALANCED, "name": "outside"})
        ),
    ],
)
def test_an_impossible_change_of_a_cluster_is_rejected(
    plane: ControlPlane, before: Spec, after: Spec, sentence: str
) -> None:
    manifest = changed(plane, cluster(**before), cluster(**after))

    assert sentence in plane.replaced(manifest)


def test_listeners_can_be_changed_added_and_removed(plane: ControlPlane) -> None:
    stages = [
        [NODES],
        [{**NODES, "port": 9999, "host": "10.0.0.1"}, BALANCED],
        [{**BALANCED, "name": "more", "port": 9999, "loadBalancerClass": "a"}, BALANCED],
        [NODES],
        [],
    ]
    manifest = cluster(listeners=stages[0])
    assert not plane.created(manifest)

    for listeners in stages[1:]:
        manifest["spec"]["listeners"] = listeners
        assert not plane.replaced(manifest)

        assert plane.object("Cluster", manifest["metadata"]["name"])["spec"]["listeners"] == listeners


@pytest.mark.parametrize("path", ["stream.spec", "stream.status", "cluster.spec", "cluster.status"])
def test_every_field_is_explained(plane: ControlPlane, path: str) -> None:
    """`kubectl explain` is the documentation of every field."""
    kind, _, half = path.partition(".")
    plural = f"{kind}s.tidelog.io"
    (version,) = plane.object("CustomResourceDefinition", plural)["spec"]["versions"]

    bare = [
        name
        for name, schema in _fields(version["schema"]["openAPIV3Schema"]["properties"][half], half)
        if not schema.get("description")
    ]

    assert bare == []
    words = ("explain", f"{kind}s.{half}", "--api-version=tidelog.io/v1alpha1")
    # `kubectl explain` knows a field a moment after discovery.
    wait_until(lambda: not plane.refusal(*words), "it is explained")
    assert "DESCRIPTION" in plane.kubectl(*words)


def _fields(schema: Spec, path: str) -> list[tuple[str, Spec]]:
    found = [(path, schema)]
    if "items" in schema:
        found += _fields(schema["items"], f"{path}[]")[1:]
    for name, below in schema.get("properties", {}).items():
        if path.endswith("conditions[]"):
            continue
        found += _fields(below, f"{path}.{name}")
    return found

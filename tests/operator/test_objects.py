"""The cache of objects: lists, watch events and answers to writes overtake each other."""

from __future__ import annotations

from typing import Any

from support.kube.situations import CLUSTER, NAMESPACE, STREAM_DEFAULTS, cluster_manifest
from tidelog_operator.kubernetes.objects import Objects
from tidelog_operator.model import DeletionPolicy, ObjectKey

KEY = ObjectKey(NAMESPACE, "orders")


def manifest(version: int, *, uid: str = "one", name: str = "orders", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": NAMESPACE, "name": name, "uid": uid, "generation": version,
            "resourceVersion": str(version), "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"cluster": CLUSTER, **STREAM_DEFAULTS, **spec},
    }  # fmt: skip


def objects() -> Objects:
    return Objects(lambda cluster: None)


def test_the_newest_version_counts_in_any_order_of_arrival() -> None:
    known = objects()
    known.stream(manifest(7, partitions=3), gone=False)

    known.stream(manifest(5, partitions=2), gone=False)

    assert known.streams[KEY].settings.partitions == 3


def test_the_deletion_of_an_earlier_object_does_not_remove_the_present_one() -> None:
    known = objects()
    known.stream(manifest(7, uid="two"), gone=False)

    known.stream(manifest(6, uid="one"), gone=True)

    assert known.streams[KEY].uid == "two"


def test_an_object_missing_in_a_list_is_removed_unless_it_is_newer() -> None:
    known = objects()
    known.stream(manifest(3), gone=False)
    known.stream(manifest(9, name="later", uid="three"), gone=False)

    known.listed("Stream", NAMESPACE, [], 5)

    assert [key.name for key in known.streams] == ["later"]


def test_a_list_does_not_affect_other_kinds_or_namespaces() -> None:
    known = objects()
    known.stream(manifest(3), gone=False)

    known.listed("Cluster", NAMESPACE, [], 5)
    known.listed("Stream", "elsewhere", [], 5)

    assert list(known.streams) == [KEY]


def test_an_unreadable_stream_is_cached_with_the_reason() -> None:
    known = objects()

    known.stream(manifest(3, retention={"age": "for ever"}, deletionPolicy="Delete"), gone=False)
    known.stream(manifest(4, name="other", uid="two", deletionPolicy="Archive"), gone=False)
    known.stream(manifest(5, name="third", uid="three", limits={}), gone=False)

    orders, other, third = known.streams.values()
    assert "This operator cannot read the spec: 'for ever' is not a duration" in orders.unreadable
    assert orders.deletion_policy is DeletionPolicy.DELETE
    assert "deletionPolicy is 'Archive', but must be one of Retain, Delete" in other.unreadable
    assert "upgrade the operator" in other.unreadable
    assert other.deletion_policy is DeletionPolicy.RETAIN
    assert "the field batchBytes is missing" in third.unreadable


def test_an_unreadable_cluster_is_cached_with_the_reason() -> None:
    known, broken = objects(), cluster_manifest(replaceAfter="soon")

    known.cluster(broken, gone=False)

    (found,) = known.unreadable_clusters.values()
    assert known.clusters == {}
    assert "This operator cannot read the spec: 'soon' is not a duration" in found.why


def labelled(kind: str, name: str, **labels: str) -> dict[str, Any]:
    meta = {
        "namespace": NAMESPACE, "name": name, "uid": name, "resourceVersion": "1",
        "labels": {"tidelog.io/cluster": CLUSTER, **labels},
    }  # fmt: skip
    return {"kind": kind, "metadata": meta, "spec": {"nodeName": "node-1"}}


def test_a_copy_of_a_brokers_volume_is_not_its_volume() -> None:
    """A restored volume keeps its labels; the operator would delete it as an orphan."""
    known = objects()

    for name in ("data-main-0", "data-main-0-20261122", "restored-main-1", "data-main-01", "data-other-2"):
        known.claim(labelled("PersistentVolumeClaim", name), gone=False)

    assert [one.name for one in known.claims_of(ObjectKey(NAMESPACE, CLUSTER))] == ["data-main-0"]


def test_a_pod_with_the_labels_of_a_broker_is_not_a_broker() -> None:
    known, index = objects(), "apps.kubernetes.io/pod-index"

    for name in ("main-1", "readers-0", "main-readers-0"):
        number = name.rpartition("-")[2]
        known.pod(labelled("Pod", name, **{index: number}), gone=False)

    assert [one.name for one in known.pods_of(ObjectKey(NAMESPACE, CLUSTER))] == ["main-1"]


def test_zones_are_known_with_all_nodes_and_stay_known_when_one_is_deleted() -> None:
    known, key = objects(), ObjectKey(NAMESPACE, CLUSTER)
    known.pod(labelled("Pod", "main-0"), gone=False)
    node = {"metadata": {"name": "node-1", "labels": {"zone": "a"}}}
    before = known.has_zones_of(key)

    known.node(node, gone=False)
    known.node(node, gone=True)

    assert (before, known.has_zones_of(key)) == (False, True)
    assert known.zones_of(key, "zone") == {0: "a"}

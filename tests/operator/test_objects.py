"""What is known of objects: lists, watches and answers to writes overtake one another."""

from __future__ import annotations

from typing import Any

from support.kube.situations import CLUSTER, NAMESPACE, STREAM_DEFAULTS, cluster_manifest
from tidelog_operator.model import DeletionPolicy, ObjectKey
from tidelog_operator.objects import Objects

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


def test_the_newest_version_counts_whenever_it_comes() -> None:
    known = objects()
    known.stream(manifest(7, partitions=3), gone=False)

    known.stream(manifest(5, partitions=2), gone=False)

    assert known.streams[KEY].settings.partitions == 3


def test_the_end_of_an_earlier_object_of_the_name_is_not_that_of_the_present_one() -> None:
    known = objects()
    known.stream(manifest(7, uid="two"), gone=False)

    known.stream(manifest(6, uid="one"), gone=True)

    assert known.streams[KEY].uid == "two"


def test_what_is_missing_in_a_list_is_gone_unless_it_came_later() -> None:
    known = objects()
    known.stream(manifest(3), gone=False)
    known.stream(manifest(9, name="later", uid="three"), gone=False)

    known.listed("Stream", NAMESPACE, [], 5)

    assert [key.name for key in known.streams] == ["later"]


def test_a_list_of_one_kind_or_namespace_says_nothing_of_others() -> None:
    known = objects()
    known.stream(manifest(3), gone=False)

    known.listed("Cluster", NAMESPACE, [], 5)
    known.listed("Stream", "elsewhere", [], 5)

    assert list(known.streams) == [KEY]


def test_a_stream_that_cannot_be_read_says_why_and_is_there_all_the_same() -> None:
    known = objects()

    known.stream(manifest(3, retention={"age": "for ever"}, deletionPolicy="Delete"), gone=False)
    known.stream(manifest(4, name="other", uid="two", deletionPolicy="Archive"), gone=False)
    known.stream(manifest(5, name="third", uid="three", limits={}), gone=False)

    orders, other, third = known.streams.values()
    assert "this operator cannot read it: 'for ever' is no duration" in orders.unreadable
    assert orders.deletion_policy is DeletionPolicy.DELETE
    assert "let the operator be of that version, too" in other.unreadable
    assert other.deletion_policy is DeletionPolicy.RETAIN
    assert "the field 'batchBytes' is not there" in third.unreadable


def test_a_cluster_that_cannot_be_read_says_why() -> None:
    known, broken = objects(), cluster_manifest(replaceAfter="soon")

    known.cluster(broken, gone=False)

    (found,) = known.unreadable_clusters.values()
    assert known.clusters == {}
    assert "this operator cannot read it: 'soon' is no duration" in found.why

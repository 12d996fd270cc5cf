"""Streams on a real control plane, with real brokers behind hand-made pods, and the operator as a process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import tidelog.blocking
from support.kube.broker_pods import BrokerPods
from support.kube.control_plane import ControlPlane
from support.kube.operator_process import OperatorProcess
from support.waiting import wait_until
from tidelog_operator.model import FINALIZER

pytestmark = pytest.mark.slow

Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def pods(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPods]:
    plane.kubectl("apply", "--server-side", "-f", "-", given={
        "apiVersion": "tidelog.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "main", "namespace": "default"},
        "spec": {"image": "tidelog:1", "storage": {"size": "10Gi"}},
    })  # fmt: skip
    with BrokerPods(plane, tmp_path_factory.mktemp("brokers"), "main", 3) as made:
        yield made


@pytest.fixture(scope="module")
def operator(
    plane: ControlPlane, pods: BrokerPods, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    with OperatorProcess(tmp_path_factory.mktemp("operator"), plane.kubeconfig) as made:
        yield made


@pytest.fixture
def brokers(pods: BrokerPods) -> Iterator[tidelog.blocking.Client]:
    with tidelog.blocking.connect(pods.brokers[0].address) as client:
        yield client


def stream(name: str, **spec: Any) -> Manifest:
    return {
        "apiVersion": "tidelog.io/v1alpha1",
        "kind": "Stream",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"cluster": "main", **spec},
    }


def condition(plane: ControlPlane, name: str, kind: str = "Ready") -> Manifest:
    found = plane.object("Stream", name).get("status", {}).get("conditions", [])
    return next(
        (one for one in found if one["type"] == kind), {"status": "none", "reason": "", "message": ""}
    )


def until_ready(plane: ControlPlane, name: str) -> Manifest:
    def is_ready() -> bool:
        found = plane.object("Stream", name)
        generation = found.get("status", {}).get("observedGeneration")
        is_seen: bool = generation == found["metadata"]["generation"]
        return is_seen and bool(condition(plane, name)["status"] == "True")

    wait_until(is_ready, f"{name} is ready")
    status: Manifest = plane.object("Stream", name)["status"]
    return status


def until_left(brokers: tidelog.blocking.Client, name: str) -> None:
    wait_until(
        lambda: brokers.describe_stream(name).owner == f"retained:default/{name}",
        f"{name} says whose it was",
    )


def finalizers(plane: ControlPlane, name: str) -> list[str]:
    return list(plane.object("Stream", name)["metadata"].get("finalizers", ()))


@pytest.mark.usefixtures("operator")
def test_an_applied_stream_is_created_and_its_status_lists_its_replicas(
    plane: ControlPlane, brokers: tidelog.blocking.Client
) -> None:
    plane.apply(stream("orders", subject="orders.>", partitions=3, replicationFactor=3))

    until_ready(plane, "orders")

    def is_true() -> bool:
        status = plane.object("Stream", "orders")["status"]
        return bool(status["phase"] == "Ready") and status["partitions"] == [
            {"id": one.partition, "leader": one.leader, "replicas": list(one.replicas), "isr": list(one.isr)}
            for one in brokers.describe_stream("orders").partitions
        ]

    wait_until(is_true, "the status matches the brokers")
    made = brokers.describe_stream("orders")
    assert all(set(one.replicas) == {0, 1, 2} for one in made.partitions)
    assert made.owner.startswith("kubernetes:default/orders/")
    assert made.config.subject == "orders.>"


@pytest.mark.usefixtures("operator")
def test_a_stream_keeps_its_records_when_its_object_is_created_again(
    plane: ControlPlane, brokers: tidelog.blocking.Client
) -> None:
    plane.apply(stream("kept"))
    first = until_ready(plane, "kept")
    with brokers.producer("kept") as producer:
        producer.send(b"one")
    plane.kubectl("delete", "stream", "kept", "--timeout=20s")
    until_left(brokers, "kept")

    plane.apply(stream("kept"))

    assert until_ready(plane, "kept")["streamId"] == first["streamId"]
    assert brokers.offsets("kept") == {0: (0, 1)}


@pytest.mark.usefixtures("operator")
def test_a_stream_deleted_with_its_object_is_a_new_one_afterwards(
    plane: ControlPlane, brokers: tidelog.blocking.Client
) -> None:
    plane.apply(stream("deleted", deletionPolicy="Delete"))
    first = until_ready(plane, "deleted")
    plane.kubectl("delete", "stream", "deleted", "--timeout=20s")
    with pytest.raises(tidelog.errors.StreamNotFound):
        brokers.describe_stream("deleted")

    plane.apply(stream("deleted"))

    assert until_ready(plane, "deleted")["streamId"] != first["streamId"]


@pytest.mark.usefixtures("operator")
def test_the_second_of_two_streams_with_one_name_has_a_conflict(plane: ControlPlane) -> None:
    plane.apply(stream("mine", streamName="claimed"))
    until_ready(plane, "mine")

    plane.apply(stream("yours", streamName="claimed"))

    wait_until(lambda: condition(plane, "yours")["reason"] == "Conflict", "the second Stream has a conflict")
    assert "belongs to the Stream mine" in condition(plane, "yours")["message"]
    plane.kubectl("delete", "stream", "mine", "--timeout=20s")
    until_ready(plane, "yours")


@pytest.mark.usefixtures("operator")
def test_settings_and_replicas_follow_the_manifest(
    plane: ControlPlane, brokers: tidelog.blocking.Client
) -> None:
    plane.apply(stream("changed", partitions=1, replicationFactor=1))
    until_ready(plane, "changed")

    plane.apply(stream("changed", partitions=4, replicationFactor=3, retention={"messages": 100}))

    def matches() -> bool:
        found = brokers.describe_stream("changed")
        full = all(len(one.isr) == 3 and not one.adding for one in found.partitions)
        return full and len(found.partitions) == 4 and found.config.retention.messages == 100

    wait_until(matches, "the stream is in its desired state")
    wait_until(lambda: until_ready(plane, "changed")["replicationFactor"] == 3, "the status shows it")


@pytest.mark.usefixtures("operator")
def test_a_stream_that_waits_for_brokers_says_how_many(plane: ControlPlane) -> None:
    plane.apply(stream("wide", replicationFactor=5))

    wait_until(
        lambda: condition(plane, "wide")["reason"] == "WaitingForBrokers", "the status says that it waits"
    )

    assert "5 replicas of each partition need 5 brokers, but only 3" in condition(plane, "wide")["message"]
    plane.kubectl("delete", "stream", "wide", "--timeout=20s")


@pytest.mark.long
def test_a_killed_operator_continues_after_its_restart(
    plane: ControlPlane, operator: OperatorProcess
) -> None:
    operator.kill()
    plane.apply(*(stream(f"late-{number}") for number in range(5)))

    operator.start()

    for number in range(5):
        until_ready(plane, f"late-{number}")


@pytest.mark.long
def test_without_an_operator_only_streams_with_policy_delete_wait(
    plane: ControlPlane, operator: OperatorProcess, brokers: tidelog.blocking.Client
) -> None:
    names = ("left-0", "left-1", "left-2")
    plane.apply(*(stream(name) for name in names), stream("taken", deletionPolicy="Delete"))
    for name in (*names, "taken"):
        until_ready(plane, name)
    with brokers.producer("left-0") as producer:
        producer.send(b"one")
    operator.kill()

    # As when the operator is deleted with its namespace: no operator runs, and no object waits for one.
    plane.kubectl("delete", "stream", *names, "--timeout=20s")
    plane.kubectl("delete", "stream", "taken", "--wait=false")

    assert "deletionTimestamp" in plane.object("Stream", "taken")["metadata"]
    assert finalizers(plane, "taken") == [FINALIZER]
    assert all(brokers.describe_stream(name).owner.startswith("kubernetes:") for name in (*names, "taken"))

    operator.start()

    plane.kubectl("wait", "--for=delete", "stream/taken", "--timeout=20s")
    with pytest.raises(tidelog.errors.StreamNotFound):
        brokers.describe_stream("taken")
    for name in names:
        until_left(brokers, name)
    assert brokers.offsets("left-0") == {0: (0, 1)}


@pytest.mark.usefixtures("operator")
def test_the_finalizer_follows_the_deletion_policy(
    plane: ControlPlane, brokers: tidelog.blocking.Client
) -> None:
    plane.apply(stream("minds"))
    first = until_ready(plane, "minds")
    assert finalizers(plane, "minds") == []

    plane.apply(stream("minds", deletionPolicy="Delete"))
    until_ready(plane, "minds")
    assert finalizers(plane, "minds") == [FINALIZER]

    plane.apply(stream("minds", deletionPolicy="Retain"))
    until_ready(plane, "minds")
    assert finalizers(plane, "minds") == []

    # As earlier operators left it.
    held = json.dumps({"metadata": {"finalizers": [FINALIZER]}})
    plane.kubectl("patch", "stream", "minds", "--type=merge", "--patch", held)
    wait_until(lambda: finalizers(plane, "minds") == [], "it has no finalizer any more")

    plane.apply(stream("minds", deletionPolicy="Delete"))
    assert until_ready(plane, "minds")["streamId"] == first["streamId"]
    plane.kubectl("delete", "stream", "minds", "--timeout=20s")
    with pytest.raises(tidelog.errors.StreamNotFound):
        brokers.describe_stream("minds")


@pytest.mark.usefixtures("operator")
def test_kubectl_get_shows_the_important_columns(plane: ControlPlane) -> None:
    plane.apply(stream("shown", subject="shown.*", partitions=2))
    until_ready(plane, "shown")

    header, row = plane.kubectl("get", "tls", "shown").splitlines()

    assert header.split() == ["NAME", "CLUSTER", "SUBJECT", "PARTITIONS", "REPLICAS", "READY", "PHASE", "AGE"]
    assert row.split()[:7] == ["shown", "main", "shown.*", "2", "3", "True", "Ready"]
    assert json.loads(plane.kubectl("get", "tidelog", "-o", "json"))["items"]

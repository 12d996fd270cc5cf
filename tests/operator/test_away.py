"""The API server and the operator are unavailable: brokers continue, and the status is correct afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tidelog.blocking
from support.kube.broker_pods import BrokerPods
from support.kube.control_plane import ControlPlane
from support.kube.operator_process import OperatorProcess
from support.waiting import wait_until

pytestmark = pytest.mark.long

CLUSTER = {
    "apiVersion": "tidelog.io/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": "main", "namespace": "default"},
    "spec": {"image": "tidelog:1", "storage": {"size": "10Gi"}},
}
STREAM = {
    "apiVersion": "tidelog.io/v1alpha1",
    "kind": "Stream",
    "metadata": {"name": "orders", "namespace": "default"},
    "spec": {"cluster": "main", "replicationFactor": 3},
}


@pytest.fixture(scope="module")
def pods(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPods]:
    plane.apply(CLUSTER)
    with BrokerPods(plane, tmp_path_factory.mktemp("brokers"), "main", 3) as made:
        yield made


@pytest.fixture(scope="module")
def operator(
    plane: ControlPlane, pods: BrokerPods, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    folder = tmp_path_factory.mktemp("operator")
    with OperatorProcess(folder, plane.kubeconfig, "--identity", "tidelog-operator-0") as made:
        yield made


def partition(plane: ControlPlane) -> dict[str, Any]:
    status = plane.object("Stream", "orders").get("status", {})
    (one,) = status.get("partitions") or [{}]
    return dict(one)


def test_leaders_change_without_kubernetes_and_the_status_shows_it_afterwards(
    plane: ControlPlane, pods: BrokerPods, operator: OperatorProcess
) -> None:
    plane.apply(STREAM)
    wait_until(lambda: len(partition(plane).get("isr", ())) == 3, "all replicas are in sync")
    leader = partition(plane)["leader"]
    other = pods.brokers[(leader + 1) % 3].address
    with tidelog.blocking.connect(other) as client, client.producer("orders") as producer:
        producer.send(b"before")
        operator.kill()
        plane.stop_api()

        pods.brokers[leader].kill()
        producer.send(b"after")

        assert client.offsets("orders") == {0: (0, 2)}
        now = client.describe_stream("orders").partitions[0].leader
    assert now not in (None, leader)
    plane.start_api()
    operator.start()
    wait_until(lambda: partition(plane)["leader"] == now, "the status names the leader")
    wait_until(lambda: leader not in partition(plane)["isr"], "the status names the replica that is behind")

    pods.brokers[leader].launch()
    pods.brokers[leader].wait_ready()

    wait_until(lambda: len(partition(plane)["isr"]) == 3, "it has caught up")
    # After a while, without any change.
    wait_until(lambda: partition(plane)["leader"] == leader, "the preferred leader leads again")


def test_the_operator_continues_after_the_api_server_was_unavailable(
    plane: ControlPlane, pods: BrokerPods, operator: OperatorProcess
) -> None:
    assert operator.running
    plane.stop_api()
    with tidelog.blocking.connect(pods.brokers[0].address) as client:
        before = {one.name for one in client.list_streams()}
        plane.start_api()
        plane.apply({**STREAM, "metadata": {"name": "later", "namespace": "default"}})

        def is_created() -> bool:
            # A starting API server lists few resources. An operator that looks at this moment ends.
            operator.restart_if_watch_lost()
            return "later" in {one.name for one in client.list_streams()}

        wait_until(is_created, lambda: f"it is created. The operator: {operator.log()}")

        assert before <= {one.name for one in client.list_streams()}
    operator.restart_if_watch_lost()


def test_an_operator_that_starts_before_the_api_server_sees_everything(
    plane: ControlPlane, pods: BrokerPods, operator: OperatorProcess
) -> None:
    """A starting API server lists few resources, and kopf looks only once."""
    for number in range(4):
        operator.kill()
        plane.stop_api()
        operator.launch()
        plane.start_api()
        name = f"early-{number}"
        plane.apply({**STREAM, "metadata": {"name": name, "namespace": "default"}})

        def is_ready(name: str = name) -> bool:
            status = plane.object("Stream", name).get("status", {})
            return any(one["reason"] == "Serving" for one in status.get("conditions", ()))

        wait_until(is_ready, "it is created", 30)

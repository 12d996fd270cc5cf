"""A Cluster from its manifest to its brokers and back: real controllers, and a real broker in each pod."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import tidelog
from support.kube import chart
from support.kube.control_plane import ControlPlane
from support.kube.nodes import Nodes
from support.kube.operator_process import OperatorProcess
from support.kube.situation import ClusterOnNodes
from support.tcp_proxy import TcpProxy
from support.waiting import wait_until

pytestmark = pytest.mark.long

Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def plane(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(programs, tmp_path_factory.mktemp("plane"), controllers=True) as made:
        made.add_crds()
        made.apply_all(chart.operators_account(programs), chart.policy(programs))
        made.kubectl("label", "namespace", "default", "tidelog.io/brokers=true")
        yield made


@pytest.fixture(scope="module")
def nodes(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with Nodes(plane, tmp_path_factory.mktemp("nodes") / "nodes") as made:
        yield made


@pytest.fixture(scope="module")
def cluster(
    plane: ControlPlane, nodes: Nodes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterOnNodes]:
    """Three brokers, created by the operator, with the stream `orders`."""
    account = plane.account("tidelog-system", "tidelog-operator")
    folder = tmp_path_factory.mktemp("operator")
    with OperatorProcess(folder, account, "--lease-namespace", "tidelog-system") as operator:
        made = ClusterOnNodes(plane, nodes, "main")
        made.apply(brokers=3)
        made.until_ready(3)
        made.apply_stream("orders", partitions=6, replicationFactor=3)
        yield made
        assert "forbidden" not in operator.log().lower()


def test_brokers_form_one_cluster_with_the_id_of_the_object(
    plane: ControlPlane, cluster: ClusterOnNodes
) -> None:
    with cluster.connected() as brokers:
        wait_until(lambda: len(brokers.describe_cluster().voters) == 3, "three brokers vote")
        found = brokers.describe_cluster()

    assert found.cluster_id == cluster.uid.bytes
    status = cluster.status()
    assert status["clusterId"] == str(cluster.uid)
    assert {one["zone"] for one in status["brokers"]} == {"zone-a", "zone-b", "zone-c"}


def test_more_brokers_and_fewer_again_while_records_are_written(cluster: ClusterOnNodes) -> None:
    with cluster.load("orders") as load:
        cluster.apply(brokers=5)
        cluster.until_ready(5)
        wait_until(lambda: {3, 4} <= cluster.holders("orders"), "the new brokers hold replicas")
        load.until_more(100)

        cluster.apply(brokers=3)
        cluster.until_ready(3)
        load.until_more(100)

    assert cluster.holders("orders") == {0, 1, 2}
    assert load.errors == []
    assert cluster.records("orders") == load.acknowledged
    claims = ["data-main-0", "data-main-1", "data-main-2"]
    wait_until(lambda: sorted(cluster.claims()) == claims, "the volumes of the removed brokers are deleted")


def test_fewer_brokers_than_vote_wait_for_fewer_voters(cluster: ClusterOnNodes) -> None:
    cluster.apply_stream("orders", partitions=6, replicationFactor=2, wait=False)
    wait_until(lambda: cluster.copies("orders") == [2] * 6, "there are fewer replicas")
    before = cluster.records("orders")

    cluster.apply(brokers=2)
    wait_until(lambda: "Set voters to 1 first" in str(cluster.status()), "the status names the obstacle")
    assert cluster.ready_pods() == 3
    cluster.apply(voters=1)

    wait_until(lambda: cluster.says_so(2), "there are two brokers", 110)
    with cluster.connected() as brokers:
        assert len(brokers.describe_cluster().voters) == 1
    assert cluster.records("orders") == before
    cluster.apply(brokers=3, voters=3)
    cluster.until_ready(3)
    cluster.apply_stream("orders", partitions=6, replicationFactor=3)
    wait_until(lambda: cluster.copies("orders") == [3] * 6, "the number of replicas is as before")


def test_only_the_operator_may_remove_brokers(plane: ControlPlane, cluster: ClusterOnNodes) -> None:
    cluster.until_ready(3)

    refused = plane.kubectl("scale", "statefulset", "main", "--replicas=2", fails=True)

    assert "Lower spec.brokers of the Cluster instead" in refused
    assert cluster.ready_pods() == 3


def test_another_image_replaces_one_broker_after_the_other(cluster: ClusterOnNodes) -> None:
    before = cluster.pod_uids()
    with cluster.load("orders") as load:
        cluster.apply(image="tidelog.test/broker:2")

        def is_through() -> bool:
            assert cluster.ready_pods() >= 2, "two are not ready at a time"
            now = cluster.pod_uids()
            return not set(now.values()) & set(before.values()) and cluster.ready_pods() == 3

        wait_until(is_through, "each pod is replaced")
        load.until_more(100)
    cluster.until_ready(3)

    assert load.errors == []


def test_clients_outside_reach_every_broker_at_the_port_of_its_own_service(
    plane: ControlPlane, cluster: ClusterOnNodes, nodes: Nodes
) -> None:
    """Nothing here simulates the network of services: the test maps node ports to the ports of pods."""

    def ports() -> dict[str, int]:
        found = plane.objects("Service", "tidelog.io/cluster=main,tidelog.io/listener=outside")
        return {one["metadata"]["name"]: one["spec"]["ports"][0]["nodePort"] for one in found}

    listener = {"name": "outside", "port": 9310, "type": "NodePort", "firstNodePort": 30000}

    def set_to(*listeners: Manifest) -> None:
        before = set(cluster.pod_uids().values())
        cluster.apply(listeners=list(listeners))
        wait_until(lambda: not before & set(cluster.pod_uids().values()), "each pod is replaced", 110)
        cluster.until_ready(3)

    set_to(listener)
    pods = [f"main-{number}" for number in range(3)]
    assert ports() == {f"main-outside-{number}": 30000 + number for number in range(3)}
    records = cluster.records("orders")

    async def from_outside() -> tuple[set[bytes], list[int]]:
        async with AsyncExitStack() as stack:
            proxies = [
                await stack.enter_async_context(TcpProxy(f"{address}:9310", f"{address}:{30000 + number}"))
                for number, address in enumerate(map(nodes.address, pods))
            ]
            client = await stack.enter_async_context(tidelog.connect(proxies[0].address))
            async with client.producer("orders") as producer:
                for number in range(100):
                    await producer.send(f"outside-{number}".encode(), key=str(number).encode())
            found = {bytes(one.value or b"") async for one in client.reader("orders", follow=False)}
            return found, [one.connections for one in proxies]

    found, connections = asyncio.run(from_outside())

    assert found - records == {f"outside-{number}".encode() for number in range(100)}
    assert all(connections), "each of them leads something"
    with cluster.connected() as brokers:
        outside = [
            one.target
            for broker in brokers.describe_cluster().brokers
            for one in broker.listeners
            if one.name == "outside"
        ]
    assert outside == [f"{nodes.address(pod)}:{30000 + number}" for number, pod in enumerate(pods)]
    set_to()
    assert ports() == {}


def test_a_lost_volume_is_replaced_and_filled(cluster: ClusterOnNodes, nodes: Nodes) -> None:
    with cluster.connected() as brokers, brokers.producer("orders") as producer:
        producer.send(b"kept")
    before = cluster.records("orders")
    nodes.lose_volume("data-main-1")

    wait_until(lambda: "VolumeLost" in cluster.reasons(), "the status shows it")
    cluster.until_ready(3)
    wait_until(lambda: cluster.in_sync("orders"), "all replicas are in sync again")
    assert cluster.records("orders") == before


def test_broker_0_with_an_empty_volume_joins_and_forms_no_second_cluster(
    cluster: ClusterOnNodes, nodes: Nodes
) -> None:
    before = cluster.records("orders")

    nodes.lose_volume("data-main-0")

    wait_until(lambda: "VolumeLost" in cluster.reasons(), "the status shows it")
    cluster.until_ready(3)
    wait_until(lambda: cluster.in_sync("orders"), "all replicas are in sync again")
    with cluster.connected() as brokers:
        assert brokers.describe_cluster().cluster_id == cluster.uid.bytes
    assert cluster.records("orders") == before

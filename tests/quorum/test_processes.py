"""Three brokers as users run them: formatted once, joined by seeds, killed, and asked at any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from support.api import Api
from support.broker import BrokerProcess
from support.hosts import HOST, free_port
from support.trio import Trio
from support.waiting import until_true
from tidelog_proto import admin_pb2, metadata_pb2

pytestmark = pytest.mark.slow

WAIT_SECONDS = 15.0
PEERS = ("--peer-listener", f"{HOST}:0")


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    one = Trio(tmp_path)
    try:
        one.start()
        yield one
    finally:
        one.stop()


async def described(address: str) -> admin_pb2.DescribeClusterResponse:
    async with Api(address) as api:
        found: admin_pb2.DescribeClusterResponse = await api.admin.DescribeCluster(
            admin_pb2.DescribeClusterRequest()
        )
        return found


async def eventually(
    broker: BrokerProcess, condition: Callable[[admin_pb2.DescribeClusterResponse], bool]
) -> admin_pb2.DescribeClusterResponse:
    found = admin_pb2.DescribeClusterResponse()

    async def holds() -> bool:
        nonlocal found
        found = await described(broker.address)
        return condition(found)

    await until_true(holds, lambda: str(found), WAIT_SECONDS)
    return found


async def test_brokers_join_by_seeds_and_serve_admin_requests_without_the_first_controller(
    trio: Trio,
) -> None:
    first = await eventually(trio.brokers[1], lambda found: list(found.voters) == [0, 1, 2])
    assert [broker.broker_id for broker in first.brokers] == [0, 1, 2]
    assert first.controller == 0

    async with Api(trio.brokers[2].address) as api:
        stream = await api.create("orders")
        resolved = await api.metadata.Resolve(metadata_pb2.ResolveRequest(names=["orders"]))
        assert resolved.streams[0].stream_id == stream.stream_id
        assert [len(partition.replicas) for partition in stream.partitions] == [3]
        assert "peer" not in {entry.name for broker in resolved.brokers for entry in broker.listeners}
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await api.admin.DeleteStream(admin_pb2.DeleteStreamRequest(name="nothing"))
        assert raised.value.code() is grpc.StatusCode.NOT_FOUND

    trio.brokers[0].kill()
    after = await eventually(
        trio.brokers[1], lambda found: found.HasField("controller") and found.controller != 0
    )
    assert list(after.voters) == [0, 1, 2]
    for broker in trio.brokers[1:]:
        async with Api(broker.address) as api:
            await api.create(f"after-{broker.pid}")

    trio.brokers[0].start()
    back = await eventually(trio.brokers[0], lambda found: found.stream_count == 3)
    assert list(back.voters) == [0, 1, 2]

    assert [broker.stop() for broker in trio.brokers] == [0, 0, 0]


def test_a_broker_that_waits_for_its_cluster_stops_when_it_is_told_to(tmp_path: Path) -> None:
    port = free_port()
    lonely = BrokerProcess(tmp_path, flags=(*PEERS, "--broker-id", "1", "--seeds", f"{HOST}:{port}"))
    lonely.launch()
    while "no seed answers yet" not in lonely.log():
        assert lonely.running, lonely.log()

    assert lonely.stop() == 0
    assert not lonely.data.exists()


def test_a_broker_that_joins_without_an_id_is_told_what_to_give(tmp_path: Path) -> None:
    nameless = BrokerProcess(tmp_path, flags=(*PEERS, "--seeds", "127.0.0.1:1"))
    nameless.launch()

    assert nameless.wait() == 1
    assert "give --broker-id" in nameless.log()


def test_a_broker_with_seeds_and_nowhere_to_be_reached_is_told_what_to_give(tmp_path: Path) -> None:
    unreachable = BrokerProcess(tmp_path, flags=("--broker-id", "1", "--seeds", "127.0.0.1:1"))
    unreachable.launch()

    assert unreachable.wait() == 1
    assert "give --peer-listener" in unreachable.log()


def test_a_broker_of_another_cluster_ends_with_one_sentence(trio: Trio, tmp_path: Path) -> None:
    (tmp_path / "stranger").mkdir()
    flags = (*PEERS, "--broker-id", "7", "--seeds", f"{HOST}:{trio.ports[0]}")
    stranger = BrokerProcess(tmp_path / "stranger", flags=flags)
    stranger.command("format", "--broker-id", "7")
    stranger.launch()

    assert stranger.wait() == 1
    last = stranger.log().strip().splitlines()[-1]
    assert "the cluster refuses this broker" in last
    assert "belongs to cluster" in last

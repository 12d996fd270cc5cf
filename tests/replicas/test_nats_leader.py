"""Only the broker that leads records a subject and answers; the next leader goes on (N5)."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator

import pytest
from nats.aio.client import Client

import nats
from replicas.conftest import Cluster
from support.nats_server import NatsServer
from support.waiting import until
from tidelog_broker.nats.connection import Connection
from tidelog_broker.nats.recorder import Recorder
from tidelog_broker.nats.recording import fnv1a_32
from tidelog_broker.nats.settings import Settings


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with NatsServer() as process:
        yield process


@pytest.fixture
async def client(server: NatsServer) -> AsyncIterator[Client]:
    one = await nats.connect(server.url)
    yield one
    await one.close()


async def record(cluster: Cluster, server: NatsServer) -> list[Connection]:
    made = []
    for number, node in cluster.nodes.items():
        connection = Connection(Settings(servers=(server.url,)), random.Random(number))
        connection.start()
        await connection.wait_connected(10)
        node.broker.listen(Recorder(node.broker, connection))
        made.append(connection)
    return made


async def request(client: Client, subject: str, value: bytes) -> tuple[int, int]:
    """Partition and offset, asked for until somebody answers."""
    async with asyncio.timeout(10):
        while True:
            try:
                answer = json.loads((await client.request(subject, value, timeout=2)).data)
            except (nats.errors.TimeoutError, nats.errors.NoRespondersError):
                continue
            assert "error" not in answer, answer
            return answer["partition"], answer["offset"]


async def test_the_next_leader_records_and_the_deposed_one_is_silent(
    cluster: Cluster, server: NatsServer, client: Client
) -> None:
    await cluster.start()
    connections = await record(cluster, server)
    await cluster.create(subject="handover.>")
    assert await request(client, "handover.x", b"before") == (0, 0)

    cluster.controller.change(leader=2)
    await until(lambda: cluster[2].partition().leads, "the new leader")
    await until(lambda: not cluster[1].partition().leads, "the old one knows")
    found = [await request(client, "handover.x", b"%d" % number) for number in range(5)]

    # Each was recorded once, by one broker.
    assert found == [(0, 1 + number) for number in range(5)]
    await cluster.become_equal()
    for connection in connections:
        await connection.close()


async def test_each_leader_of_a_stream_keeps_its_share_of_the_subjects(
    cluster: Cluster, server: NatsServer, client: Client
) -> None:
    await cluster.start()
    connections = await record(cluster, server)
    await cluster.create(subject="shares.>", partitions=3)
    for number in (1, 2):
        cluster.controller.change(number, leader=number + 1)
    await until(lambda: all(cluster[n + 1].partition(n).leads for n in range(3)), "three leaders")

    for number in range(12):
        subject = f"shares.{number}"
        partition, _ = await request(client, subject, b"x")
        assert partition == fnv1a_32(subject.encode()) % 3

    for number in range(3):
        await cluster.become_equal(number)
    assert sum(cluster[1].partition(number).log.end_offset for number in range(3)) == 12
    for connection in connections:
        await connection.close()

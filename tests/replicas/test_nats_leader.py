"""Only the broker that leads records a subject and answers; the next leader goes on (N5)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

import pytest
from nats.aio.client import Client

import nats
from replicas.conftest import Cluster
from support.fake_nats_server import FakeNatsServer, Peer
from support.nats_server import NatsServer
from support.waiting import until
from tidelog_broker.nats import answering as answering_module
from tidelog_broker.nats.connection import NatsConnection
from tidelog_broker.nats.recorder import Recorder
from tidelog_broker.nats.recording import fnv1a_32
from tidelog_broker.nats.settings import NatsSettings


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with NatsServer() as process:
        yield process


@pytest.fixture
async def client(server: NatsServer) -> AsyncIterator[Client]:
    one = await nats.connect(server.url)
    yield one
    await one.close()


async def record(cluster: Cluster, server: NatsServer) -> list[NatsConnection]:
    made = []
    for number, node in cluster.nodes.items():
        connection = NatsConnection(NatsSettings(servers=(server.url,)), random.Random(number))
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


class ScriptedServer:
    """A server that the test has answer pings when it likes, and send what it likes."""

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.sid = b""
        self.holds = False
        self.held = 0
        """Pings without an answer."""
        self.told: list[bytes] = []
        """Answers to publishers."""

    async def serve(self, peer: Peer) -> None:
        peer.send_info()
        self.peer = peer
        with contextlib.suppress(EOFError):
            while True:
                words = (await peer.line()).split()
                if words[0] == b"SUB":
                    self.sid = words[-1]
                elif words[0] == b"PING" and self.holds:
                    self.held += 1
                elif words[0] == b"PING":
                    peer.send(b"PONG\r\n")
                elif words[0] == b"PUB":
                    self.told.append(await peer.line())

    def send(self, subject: bytes, value: bytes, reply: bytes = b"") -> None:
        assert self.peer is not None
        words = b" ".join(word for word in (subject, self.sid, reply) if word)
        self.peer.send(b"MSG %b %d\r\n%b\r\n" % (words, len(value), value))

    def answer(self) -> None:
        assert self.peer is not None
        self.holds = False
        self.peer.send(b"PONG\r\n" * self.held)


class Scripted(NamedTuple):
    """The first broker's recorder, and the server that it hears."""

    script: ScriptedServer
    connection: NatsConnection
    recorder: Recorder


@contextlib.asynccontextmanager
async def scripted(cluster: Cluster) -> AsyncIterator[Scripted]:
    script = ScriptedServer()
    async with FakeNatsServer(script.serve) as server:
        await cluster.start()
        settings = NatsSettings(servers=(server.url,), reconnect_wait_seconds=0.01)
        connection = NatsConnection(settings, random.Random(1))
        connection.start()
        await connection.wait_connected(10)
        recorder = Recorder(cluster[1].broker, connection)
        cluster[1].broker.listen(recorder)
        yield Scripted(script, connection, recorder)
        await connection.close()


async def test_a_new_leader_leaves_what_was_sent_before_to_the_one_before_it(cluster: Cluster) -> None:
    """It has a subscription already, for another partition: the same messages went to both brokers."""
    async with scripted(cluster) as (script, connection, _):
        await cluster.create(subject="late.>", partitions=2)
        cluster.controller.change(0, leader=2)
        await until(lambda: cluster[2].partition(0).leads, "another leader")
        await connection.flush(5)
        here, there = (
            next(b"late.%d" % n for n in range(9) if fnv1a_32(b"late.%d" % n) % 2 == p) for p in (0, 1)
        )

        script.holds = True
        cluster.controller.change(0, leader=1)
        await until(lambda: cluster[1].partition(0).leads and script.held > 0, "the first again")
        script.send(here, b"sent to both")
        script.send(there, b"led all the time")
        await until(lambda: cluster[1].partition(1).log.end_offset == 1, "the other partition goes on")
        script.answer()
        await connection.flush(5)
        script.send(here, b"sent to this one")
        await until(lambda: cluster[1].partition(0).log.end_offset > 0, "a record")

        await cluster.become_equal(0)
        assert cluster[1].partition(0).log.end_offset == 1
        assert b"sent to this one" in cluster[1].data(0)


async def test_a_partition_that_is_led_again_is_recorded_after_a_break_of_the_link(cluster: Cluster) -> None:
    async with scripted(cluster) as (script, connection, _):
        await cluster.create(subject="late", partitions=2)
        number = fnv1a_32(b"late") % 2
        cluster.controller.change(number, leader=2)
        await until(lambda: cluster[2].partition(number).leads, "another leader")

        script.holds = True
        cluster.controller.change(number, leader=1)
        await until(lambda: cluster[1].partition(number).leads and script.held > 0, "the first again")
        script.holds = False
        assert script.peer is not None
        script.peer.writer.close()
        await until(lambda: connection.counters.connects == 2, "the next link")
        await connection.flush(5)
        script.send(b"late", b"recorded")
        await until(lambda: cluster[1].partition(number).log.end_offset == 1, "a record")


async def test_refusals_that_nobody_confirms_are_dropped_and_later_ones_are_sent(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering_module, "REFUSALS_MAX", 2)
    async with scripted(cluster) as (script, connection, recorder):
        await cluster.create(subject="doubtful", batch_bytes_max=1 << 12)
        await connection.flush(5)
        refused = cluster[1].broker.metrics.nats_messages.labels("too_large")

        async def refuse(count: int, total: int) -> None:
            for _ in range(count):
                script.send(b"doubtful", bytes(1 << 13), b"box")
            await until(lambda: refused._value.get() == total, "refusals")
            await recorder.refused()
            await connection.flush(5)

        cluster.controller.unreachable = True
        await refuse(2, 2)
        assert script.told == []
        cluster.controller.unreachable = False
        await refuse(1, 3)
        assert len(script.told) == 1

        recorder._answers._refusals_count = 2
        await refuse(1, 4)
        assert len(script.told) == 1, "more than may wait are not answered"


@pytest.mark.parametrize("deposed", [False, True])
async def test_a_leader_refuses_what_it_led_when_the_controller_was_asked(
    cluster: Cluster, deposed: bool
) -> None:
    async with scripted(cluster) as (script, connection, recorder):
        await cluster.create(subject="doubtful", batch_bytes_max=1 << 12)
        await connection.flush(5)
        cluster.controller.hold(1)
        if deposed:
            cluster.controller.change(leader=2)
        assert cluster[1].partition().leads, "it has not heard of it"

        script.send(b"doubtful", bytes(1 << 13), b"box")
        refused = cluster[1].broker.metrics.nats_messages.labels("too_large")
        await until(lambda: refused._value.get() == 1, "a refusal")
        await recorder.refused()

        await connection.flush(5)
        assert len(script.told) == (0 if deposed else 1)
        cluster.controller.release(1)


async def test_a_leader_that_may_be_deposed_refuses_nothing(cluster: Cluster) -> None:
    async with scripted(cluster) as (script, connection, recorder):
        await cluster.create(subject="doubtful")
        await connection.flush(5)
        cluster.controller.unreachable = True
        for number in (2, 3):
            await cluster[number].kill()

        script.send(b"doubtful", b"x", b"box")
        await until(lambda: cluster[1].partition().uncommitted == 1, "a record without a commit")
        recorder.session(False)
        cluster[1].broker.session(False)
        await until(lambda: cluster[1].partition().uncommitted == 0, "the broker gives it up")
        # Asked now, the controller would say that it led.
        cluster.controller.unreachable = False
        await recorder.refused()

        await connection.flush(5)
        assert script.told == []

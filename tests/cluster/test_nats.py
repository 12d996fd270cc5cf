"""NATS publishers that wait for the answer lose nothing when leaders go, and repeats are stored once (N5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client as NatsClient
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeout

import nats
import tidelog
from cluster.conftest import STREAM, read_all
from support.nats_server import NatsServer
from support.trio import Trio, complete, joined

pytestmark = pytest.mark.slow

ANSWER_SECONDS = 0.5
KILLS = 2


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with NatsServer() as process:
        yield process


@pytest.fixture
def recording(server: NatsServer, tmp_path: Path) -> Iterator[Trio]:
    one = Trio(tmp_path, nats=server.url)
    try:
        one.start()
        yield one
    finally:
        one.stop()


class Publisher:
    """One that repeats each message, under its id, until it is acknowledged."""

    def __init__(self, url: str) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self._url = url
        self.stopped = False

    async def run(self) -> None:
        client = await nats.connect(self._url)
        number = 0
        while not self.stopped:
            await self._publish(client, b"message %d" % number, f"id-{number}")
            number += 1
        await client.close()

    async def _publish(self, client: NatsClient, payload: bytes, message_id: str) -> None:
        while True:
            try:
                answer = await client.request(
                    "orders.new", payload, timeout=ANSWER_SECONDS, headers={"Nats-Msg-Id": message_id}
                )
            except (NatsTimeout, NoRespondersError):
                await asyncio.sleep(0.01)
                continue
            said = json.loads(answer.data)
            if "error" in said:
                await asyncio.sleep(0.01)
                continue
            self.acknowledged[said["seq"] - 1] = payload
            return

    async def more(self, count: int) -> None:
        target = len(self.acknowledged) + count
        async with asyncio.timeout(20):
            while len(self.acknowledged) < target:  # noqa: ASYNC110  what it counts comes over a socket
                await asyncio.sleep(0.01)


@pytest.mark.long
async def test_what_publishers_were_told_is_stored_is_stored_once_through_kills_of_leaders(
    recording: Trio, server: NatsServer
) -> None:
    async with tidelog.connect(recording.addresses[0]) as client:
        await joined(client)
        await client.create_stream(STREAM, subject="orders.>")
        await complete(client, STREAM)
    publisher = Publisher(server.url)
    publishing = asyncio.create_task(publisher.run())
    for kill in range(KILLS):
        await publisher.more(100)
        async with tidelog.connect(recording.addresses[kill]) as client:
            leader = (await client.describe_stream(STREAM)).partitions[0].leader
        assert leader is not None
        recording.brokers[leader].kill()
        await publisher.more(100)
        recording.brokers[leader].start()
        async with tidelog.connect(recording.addresses[leader]) as client:
            await complete(client, STREAM)
    publisher.stopped = True
    await publishing

    # No value comes twice: `read_all` looks.
    found = await read_all(recording.addresses[0])
    stored = {offset: value for (_, offset), value in found.items()}
    assert {offset: stored.get(offset) for offset in publisher.acknowledged} == publisher.acknowledged

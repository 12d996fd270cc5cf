"""Servers and connections for the tests of NATS in."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio
from nats.aio.client import Client

import nats
from support.nats_server import NatsServer
from tidelog_broker.nats.connection import NatsConnection
from tidelog_broker.nats.settings import NatsSettings

Connect = Callable[..., NatsConnection]
ConnectOther = Callable[[str], Awaitable[Client]]


@pytest.fixture
def nats_server() -> Iterator[NatsServer]:
    """A real server, for this test alone."""
    with NatsServer() as server:
        yield server


@pytest_asyncio.fixture
async def connect() -> AsyncIterator[Connect]:
    """Makes connections, started, with pauses short enough for tests; closes them at the end."""
    made: list[NatsConnection] = []

    def make(*servers: str, **options: Any) -> NatsConnection:
        callbacks = {
            name: options.pop(name) for name in ("on_connected", "on_disconnected") if name in options
        }
        options = {"reconnect_wait_seconds": 0.01, "reconnect_wait_seconds_max": 0.05, **options}
        connection = NatsConnection(NatsSettings(servers=servers, **options), random.Random(7), **callbacks)
        connection.start()
        made.append(connection)
        return connection

    yield make
    for connection in made:
        await connection.close()


@pytest_asyncio.fixture
async def connect_other() -> AsyncIterator[ConnectOther]:
    """Connects with nats-py, the client that is not ours; closes at the end.

    Its ``flush`` (2.16) sends PING ahead of what it has buffered, so it tells nothing: wait for effects.
    """
    made: list[Client] = []

    async def make(url: str) -> Client:
        made.append(await nats.connect(url))
        return made[-1]

    yield make
    for client in made:
        await client.close()

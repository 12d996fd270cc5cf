"""Two ends of a connection in one event loop, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from support.hosts import HOST
from tidelog_broker.peers.connection import PeerConnection
from tidelog_broker.peers.hello import Hello, Identity
from tidelog_broker.peers.listener import PeerListener

CLUSTER = bytes(range(16))


def identity(broker_id: int, *, cluster_id: bytes = CLUSTER, run: int = 0) -> Identity:
    return Identity(broker_id, cluster_id, bytes([broker_id]) * 16, bytes([broker_id, run]) * 8)


class Recorded:
    """A receiver that keeps what it is told."""

    def __init__(self) -> None:
        self.connections: list[PeerConnection] = []
        self.frames: list[tuple[bytes, bytes]] = []
        self.writables = 0
        self.ends: list[str] = []

    def opened(self, connection: PeerConnection) -> None:
        self.connections.append(connection)

    def received(self, connection: PeerConnection, header: bytes, payload: memoryview) -> None:
        self.frames.append((header, bytes(payload)))

    def writable(self, connection: PeerConnection) -> None:
        self.writables += 1

    def closed(self, connection: PeerConnection, reason: str) -> None:
        self.ends.append(reason)


class Station(Recorded):
    """A broker that takes connections."""

    def __init__(self, me: Identity) -> None:
        super().__init__()
        self.me = me
        self.hellos: list[Hello] = []
        self.dialed: list[PeerConnection] = []
        """The other ends, to be closed with the test."""
        self.listener = PeerListener(lambda: self.me, self._accept)

    def _accept(self, hello: Hello) -> Recorded:
        self.hellos.append(hello)
        return self

    @property
    def port(self) -> int:
        return self.listener.port


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Brokers run on uvloop; what holds there holds on the standard loop."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def station() -> AsyncIterator[Station]:
    """Broker 1, at a free port of loopback."""
    made = Station(identity(1))
    await made.listener.start(HOST, 0)
    yield made
    await made.listener.stop("the test is over")
    await asyncio.gather(*(connection.end("the test is over") for connection in made.dialed))

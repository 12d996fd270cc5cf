"""The network between brokers: each direction of each pair can be cut, healed and reset."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from chaos.links import Links, around, between, incoming, outgoing
from chaos.proxy import HOST, Proxy
from tidelog.cli.local.processes import free_ports
from tidelog_broker.peers.framing import pack
from tidelog_broker.peers.hello import ConnectionKind, Hello, Identity, encode

QUIET_SECONDS = 0.1
"""No bytes may arrive in this time."""


class Broker:
    """A server behind a proxy. It answers every line with the same line in capitals."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.greeted = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        length = int.from_bytes(await reader.readexactly(4), "little")
        await reader.readexactly(length)
        self.greeted += 1
        while line := await reader.readline():
            writer.write(line.upper())

    async def stop(self) -> None:
        self._server.close()
        await closed(self._writers)


class Net:
    """Broker 0 behind its proxy."""

    def __init__(self) -> None:
        port, behind = free_ports(2)
        self.links = Links()
        self.proxy = Proxy(0, port, behind, self.links)
        self.broker = Broker(behind)
        self._writers: list[asyncio.StreamWriter] = []

    async def dial(self, dialer: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(HOST, self.proxy.port)
        self._writers.append(writer)
        words = encode(Hello(Identity(dialer), ConnectionKind.CONTROL, target=0))
        writer.write(pack(words))
        return reader, writer

    async def stop(self) -> None:
        await closed(self._writers)
        await self.proxy.close()
        await self.broker.stop()


async def closed(writers: list[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def said(reader: asyncio.StreamReader) -> bytes:
    return await asyncio.wait_for(reader.readline(), 5)


@pytest.fixture
async def net() -> AsyncIterator[Net]:
    made = Net()
    await made.broker.start()
    await made.proxy.open()
    yield made
    await made.stop()


async def test_a_proxy_forwards_the_greeting_and_bytes_in_both_directions(net: Net) -> None:
    reader, writer = await net.dial(1)
    writer.write(b"hello\n")

    assert await said(reader) == b"HELLO\n"
    assert net.broker.greeted == 1


@pytest.mark.parametrize("link", [(1, 0), (0, 1)])
async def test_bytes_sent_into_a_cut_arrive_when_the_cut_ends(net: Net, link: tuple[int, int]) -> None:
    reader, writer = await net.dial(1)
    writer.write(b"one\n")
    await said(reader)
    net.links.cut([link])

    writer.write(b"two\n")
    waiting = asyncio.ensure_future(reader.readline())
    done, _ = await asyncio.wait([waiting], timeout=QUIET_SECONDS)
    assert not done
    net.links.heal([link])

    assert await asyncio.wait_for(waiting, 5) == b"TWO\n"


async def test_a_cut_of_two_brokers_leaves_a_third_connected(net: Net) -> None:
    net.links.cut(between(0, 1))

    reader, writer = await net.dial(2)
    writer.write(b"still here\n")

    assert await said(reader) == b"STILL HERE\n"


async def test_a_dial_over_a_cut_link_waits_until_the_cut_ends(net: Net) -> None:
    net.links.cut(incoming(0, (0, 1, 2)))
    reader, writer = await net.dial(1)
    writer.write(b"late\n")
    waiting = asyncio.ensure_future(reader.readline())
    await asyncio.wait([waiting], timeout=QUIET_SECONDS)
    assert net.broker.greeted == 0

    net.links.heal(incoming(0, (0, 1, 2)))

    assert await asyncio.wait_for(waiting, 5) == b"LATE\n"


async def test_a_reset_breaks_open_connections_and_allows_new_ones(net: Net) -> None:
    reader, writer = await net.dial(1)
    writer.write(b"one\n")
    await said(reader)

    assert net.proxy.reset() == 1

    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 5)
    again, other = await net.dial(1)
    other.write(b"two\n")
    assert await said(again) == b"TWO\n"


async def test_the_proxy_of_a_broker_that_is_down_refuses_connections(net: Net) -> None:
    await net.proxy.refuse()

    with pytest.raises(ConnectionRefusedError):
        await net.dial(1)


def test_a_link_that_two_faults_cut_is_passable_only_when_both_have_ended() -> None:
    async def story() -> None:
        links = Links()
        links.cut(around(0, (0, 1, 2)))
        links.cut(outgoing(0, (0, 1, 2)))
        links.heal(around(0, (0, 1, 2)))

        assert links.is_cut((0, 1))
        assert not links.is_cut((1, 0))
        links.heal(outgoing(0, (0, 1, 2)))
        await asyncio.wait_for(links.passable((0, 1)), 1)

    asyncio.run(story())

"""Connections over real sockets: first words, frames, ends."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import pytest
from msgspec.structs import replace

from peers.conftest import Recorded, Station, identity
from support.hosts import HOST
from support.waiting import until
from tidelog_broker.peers import hello as hello_module
from tidelog_broker.peers.connection import KEEPALIVE_SECONDS, PeerConnection
from tidelog_broker.peers.dialing import dial
from tidelog_broker.peers.errors import PeerRefused, PeerUnreachable, ProtocolBroken, WrongPeer
from tidelog_broker.peers.framing import pack
from tidelog_broker.peers.hello import ConnectionKind, Hello, Identity, encode


async def call(station: Station, me: Identity, **options: Any) -> PeerConnection:
    lane = options.pop("lane", ConnectionKind.CONTROL)
    connection = await dial(
        HOST, station.port, lambda: me, lane, **{"target": 1, "timeout_s": 5.0, **options}
    )
    station.dialed.append(connection)
    return connection


async def test_both_ends_know_who_they_talk_to_and_frames_arrive_in_order(station: Station) -> None:
    mine = Recorded()
    connection = await call(station, identity(2), lane=ConnectionKind.REPLICA, message=b"before all else")
    connection.serve(mine)
    assert connection.peer == identity(1)
    await until(lambda: station.connections, "the other end is served")
    theirs = station.connections[0]
    assert (theirs.peer, theirs.kind) == (identity(2), ConnectionKind.REPLICA)
    assert station.hellos[0].message == b"before all else"
    large = bytes(range(256)) * 20_000
    for number in range(100):
        connection.send(b"%d" % number)
    connection.send(b"large", large[:100], memoryview(large)[100:])
    theirs.send(b"answer", b"x")
    await until(lambda: len(station.frames) == 101 and mine.frames, "everything is there")
    assert station.frames[:100] == [(b"%d" % number, b"") for number in range(100)]
    assert station.frames[100] == (b"large", large)
    assert mine.frames == [(b"answer", b"x")]
    connection.close("done")
    await until(lambda: station.ends and mine.ends, "both ends know")
    assert mine.ends == ["done"]
    assert connection.closed
    assert theirs.closed


class Eager(Recorded):
    """Says much as soon as it may."""

    def opened(self, connection: PeerConnection) -> None:
        super().opened(connection)
        for number in range(5):
            connection.send(b"%d" % number, b"early")


async def test_what_is_said_together_with_the_first_words_is_not_lost(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    eager, mine = Eager(), Recorded()
    monkeypatch.setattr(station.listener, "_accept", lambda hello: eager)
    connection = await call(station, identity(2))
    await until(lambda: eager.connections, "the other end has said all five before anybody listens")
    connection.serve(mine)
    await until(lambda: len(mine.frames) == 5, "all five are there")
    assert mine.frames == [(b"%d" % number, b"early") for number in range(5)]


async def test_an_idle_connection_says_that_it_is_alive(station: Station) -> None:
    connection = await call(station, identity(2))
    connection.serve(Recorded())
    await until(lambda: station.connections, "served")
    theirs, loop = station.connections[0], asyncio.get_running_loop()
    since = loop.time()
    await until(lambda: connection.heard > since and theirs.heard > since, "both have heard of each other")
    assert loop.time() - since < 20 * KEEPALIVE_SECONDS
    assert station.frames == [], "a sign of life is no message"


async def test_a_closed_port_is_told_apart_from_one_that_says_nothing() -> None:
    with socket.socket() as silent:
        silent.bind((HOST, 0))
        port = silent.getsockname()[1]
        with pytest.raises(PeerRefused, match="refuses connections"):
            await dial(HOST, port, lambda: identity(2), ConnectionKind.CONTROL, target=1, timeout_s=5)
        silent.listen(1)
        with pytest.raises(PeerUnreachable, match=r"did not answer within 0\.1 s"):
            await dial(HOST, port, lambda: identity(2), ConnectionKind.CONTROL, target=1, timeout_s=0.1)


@pytest.mark.parametrize(
    ("me", "target", "sentence"),
    [
        (
            identity(2, cluster_id=b"\xee" * 16),
            1,
            "belongs to cluster eeeeeeee-.*check the addresses of peers",
        ),
        (identity(2), 3, "this is broker 1, not 3"),
        (identity(1, run=9), 1, "both ends are broker 1"),
    ],
)
async def test_who_must_not_be_talked_to_is_told_why(
    station: Station, me: Identity, target: int, sentence: str
) -> None:
    with pytest.raises(WrongPeer, match=sentence):
        await call(station, me, target=target)
    assert station.connections == []


async def test_another_version_is_told_so(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    say = hello_module.encode
    monkeypatch.setattr(
        "tidelog_broker.peers.connection.encode",
        lambda words: say(replace(words, version=7) if isinstance(words, hello_module.Hello) else words),
    )
    with pytest.raises(WrongPeer, match="broker 2 uses version 7"):
        await call(station, identity(2))


async def test_a_broker_without_a_cluster_may_ask_any(station: Station) -> None:
    connection = await call(station, identity(2, cluster_id=b""), target=None)
    assert connection.peer.broker_id == 1
    connection.close("done")


@pytest.mark.parametrize(
    "noise",
    [
        struct.pack("<II", 200 << 20, 10),
        b"GET / HTTP/1.1\r\n\r\n",
        pack(b"\x81\xa4type\xa3no!"),
        pack(b"\xff" * 50),
    ],
)
async def test_a_stranger_is_cut_off(station: Station, noise: bytes) -> None:
    reader, writer = await asyncio.open_connection(HOST, station.port)
    writer.write(noise)
    assert await reader.read() == b""
    writer.close()
    assert station.connections == []


async def test_a_server_of_another_kind_is_no_peer() -> None:
    async def banner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(pack(b"\xc1 this is no MessagePack"))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(banner, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises((ProtocolBroken, PeerUnreachable), match="not the greeting of a broker"):
            await dial(HOST, port, lambda: identity(2), ConnectionKind.CONTROL, target=1, timeout_s=5)


async def test_a_full_connection_says_so_and_says_when_it_is_not(station: Station) -> None:
    mine = Recorded()
    connection = await call(station, identity(2))
    connection.serve(mine)
    await until(lambda: station.connections, "served")
    station.connections[0].pause_reading()
    sent = 0
    while connection.writable:
        connection.send(b"n", bytes(1 << 20))
        sent += 1
        assert sent < 100
    station.connections[0].resume_reading()
    await until(lambda: mine.writables and len(station.frames) == sent, "it drained")
    assert connection.writable


async def test_who_does_not_read_does_not_call_the_other_end_silent(station: Station) -> None:
    connection = await call(station, identity(2))
    connection.serve(Recorded())
    connection.pause_reading()
    connection._heard = 0.0
    assert connection.heard == pytest.approx(asyncio.get_running_loop().time(), abs=1.0)


async def test_a_dial_given_up_as_it_succeeds_leaves_no_timer(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvloop closes the transport of a dial that is cancelled then, and never calls `connection_lost`."""
    loop, made = asyncio.get_running_loop(), list[PeerConnection]()
    connection_made = PeerConnection.connection_made
    reported: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda loop, context: reported.append(context))

    def greeted_and_cancelled(self: PeerConnection, transport: asyncio.BaseTransport) -> None:
        connection_made(self, transport)
        if self._hello is None:
            return
        made.append(self)
        # The answer comes before the dialing task has its turn, and so does its timeout.
        reply = pack(encode(Hello(identity(1), ConnectionKind.CONTROL, target=2)))
        self.get_buffer(-1)[: len(reply)] = reply
        self.buffer_updated(len(reply))
        dialing.cancel()

    monkeypatch.setattr(PeerConnection, "connection_made", greeted_and_cancelled)
    dialing = asyncio.create_task(
        dial(HOST, station.port, lambda: identity(2), ConnectionKind.CONTROL, target=1, timeout_s=5)
    )
    with pytest.raises(asyncio.CancelledError):
        await dialing

    (connection,) = made
    timer = connection._timer
    assert timer is not None
    # As long as the timer would take, and longer.
    await asyncio.sleep(2 * KEEPALIVE_SECONDS)
    assert reported == []
    assert timer.cancelled()

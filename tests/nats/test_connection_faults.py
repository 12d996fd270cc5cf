"""The connection against servers that fall silent, talk nonsense, read slowly, or refuse."""

import asyncio
import random
import signal

import pytest

from support.fake_nats_server import FakeNatsServer, Peer
from support.nats_server import NatsServer
from support.waiting import until
from tidelog_broker.log_limit import KEYS_MAX, LOG_INTERVAL_SECONDS, LogLimit
from tidelog_broker.nats.errors import NatsConnectionLost, PayloadTooLarge, WriteBufferFull
from tidelog_broker.nats.redial import Redialer
from tidelog_broker.nats.servers import Servers
from tidelog_broker.nats.session import Session
from tidelog_broker.nats.settings import NatsSettings

from .conftest import Connect


async def test_a_silent_server_is_given_up_after_the_missed_answers(connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.gone()

    async with FakeNatsServer(script) as server:
        connection = connect(server.url, ping_interval_seconds=0.02)
        await until(lambda: connection.counters.connects >= 2, "a second link")
        assert "nothing heard from the server" in connection.last_failure
        await connection.close()


async def test_a_server_that_answers_is_kept(nats_server: NatsServer, connect: Connect) -> None:
    connection = connect(nats_server.url, ping_interval_seconds=0.1)
    await connection.wait_connected(5)
    link = connection._session.link
    assert link is not None
    heard = 0
    deadline = asyncio.get_running_loop().time() + 10
    while heard < 10 and asyncio.get_running_loop().time() < deadline:
        heard += link.heard
        await asyncio.sleep(0.005)
    await connection.flush(5)
    assert heard >= 10
    assert connection.counters.disconnects == 0


async def test_a_stopped_process_is_noticed_and_left(connect: Connect) -> None:
    with NatsServer() as server:
        connection = connect(server.url, ping_interval_seconds=0.05, connect_timeout_seconds=0.2)
        await connection.wait_connected(5)
        server.signal(signal.SIGSTOP)
        await until(lambda: connection.server is None, "the silence to be noticed")
        server.signal(signal.SIGCONT)
        await connection.wait_connected(10)
        await connection.flush(5)


async def test_nonsense_ends_the_link_and_the_next_one_serves(connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        said = await peer.welcome()
        assert b"SUB a 1" in said
        if server.connections == 1:
            peer.send(b"MSG a 1 1\r\nx\r\nNONSENSE\r\nMSG a 1 1\r\ny\r\n")
        else:
            peer.send(b"MSG a 1 1\r\nz\r\n")
        await peer.gone()

    payloads: list[bytes] = []
    async with FakeNatsServer(script) as server:
        connection = connect(server.url)
        connection.subscribe(b"a", lambda batch: payloads.extend(payload for *_, payload in batch))
        await until(lambda: payloads == [b"x", b"z"], "the message before and the message after")
        assert "NONSENSE" in connection.last_failure
        await connection.close()


@pytest.mark.parametrize(
    "greeting", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"PING\r\n", b"INFO {}\r\n", b"x" * 70_000]
)
async def test_a_handshake_that_leads_nowhere_is_tried_again(connect: Connect, greeting: bytes) -> None:
    async def script(peer: Peer) -> None:
        if server.connections < 3:
            peer.send(greeting)
            await peer.gone()
        else:
            await peer.welcome()
            await peer.gone()

    async with FakeNatsServer(script) as server:
        connection = connect(server.url, connect_timeout_seconds=0.05)
        await connection.wait_connected(10)
        # A busy machine may not get through a good handshake in time either.
        assert connection.counters.connects_failed == server.connections - 1 >= 2
        await connection.close()


async def test_a_pong_belongs_to_the_flush_that_asked(connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        for _ in range(3):
            await peer.lines_until(b"PING")
        peer.send(b"PONG\r\nPONG\r\n")
        await release.wait()
        peer.send(b"PONG\r\n")
        await peer.gone()

    release = asyncio.Event()
    async with FakeNatsServer(script) as server:
        connection = connect(server.url)
        await connection.wait_connected(5)
        flushes = [asyncio.create_task(connection.flush(5)) for _ in range(3)]
        await until(lambda: flushes[1].done(), "the second answer")
        assert not flushes[2].done()
        release.set()
        await asyncio.gather(*flushes)
        await connection.close()


async def test_a_flush_under_way_when_the_link_breaks_says_so(connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.lines_until(b"PING")

    async with FakeNatsServer(script) as server:
        connection = connect(server.url)
        await connection.wait_connected(5)
        with pytest.raises(NatsConnectionLost):
            await connection.flush(5)
        await connection.close()


async def test_a_slow_server_costs_a_bounded_buffer_and_then_writes_are_refused(connect: Connect) -> None:
    received = 0

    async def script(peer: Peer) -> None:
        nonlocal received
        await peer.welcome()
        await release.wait()
        while data := await peer.reader.read(1 << 20):
            received += len(data)

    release = asyncio.Event()
    limit = 1_000_000
    frame = b"PUB a 9990\r\n" + b"x" * 9990 + b"\r\n"
    async with FakeNatsServer(script) as server:
        connection = connect(server.url, write_buffer_bytes_max=limit)
        await connection.wait_connected(5)
        written = 0

        async def fill() -> None:
            nonlocal written
            while True:
                connection.write(frame)
                written += len(frame)
                assert connection.unsent_bytes <= limit
                await asyncio.sleep(0)

        with pytest.raises(WriteBufferFull) as full:
            await fill()
        assert full.value.retriable
        assert connection.counters.writes_refused == 1
        with pytest.raises(PayloadTooLarge):
            connection.write(b"x" * (limit + 1))
        waiting = asyncio.create_task(connection.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        release.set()
        async with asyncio.timeout(10):
            await waiting
        assert connection.unsent_bytes <= limit // 2
        connection.write(frame)
        written += len(frame)
        await until(lambda: received == written, "all that was accepted")
        await connection.close()


async def test_the_buffer_is_bounded_while_there_is_no_server(connect: Connect) -> None:
    with NatsServer() as server:
        server.stop()
        connection = connect(server.url, write_buffer_bytes_max=1000)
        for _ in range(10):
            connection.write(b"PUB a 89\r\n" + b"x" * 88 + b"\r\n")
        with pytest.raises(WriteBufferFull):
            connection.write(b"PUB a 1\r\nx\r\n")


async def test_many_writes_of_one_turn_are_sent_as_one(connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        await peer.gone()

    async with FakeNatsServer(script) as server:
        connection = connect(server.url)
        await connection.wait_connected(5)
        link = connection._session.link
        assert link is not None
        sent: list[bytes] = []
        link.write = lambda data: sent.append(data)  # type: ignore[method-assign]

        for _ in range(100):
            connection.write(b"PUB a 0\r\n\r\n")
        await asyncio.sleep(0)

        assert sent == [b"PUB a 0\r\n\r\n" * 100]
        del link.write
        await connection.close()


async def test_control_lines_for_a_lost_link_are_not_sent_to_the_next(connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        said.append(await peer.welcome())
        said.append(await peer.lines_until(b"PING"))
        if server.connections > 1:
            peer.send(b"PONG\r\n")
            await peer.gone()

    said: list[list[bytes]] = []
    async with FakeNatsServer(script) as server:
        connection = connect(server.url)
        await connection.wait_connected(5)
        link = connection._session.link
        assert link is not None
        link.write_paused = True
        subscription = connection.subscribe(b"a", lambda batch: None)
        flush = asyncio.create_task(connection.flush(5))
        connection.write(b"PUB x 0\r\n\r\n")
        await asyncio.sleep(0)
        link.abort("for the test")
        with pytest.raises(NatsConnectionLost):
            await flush
        await until(lambda: connection.counters.connects == 2, "the second link")
        connection.unsubscribe(subscription)
        await connection.flush(5)

        assert [line for line in said[1][1:] if line] == [b"SUB a 1", b"PING"]
        assert [line for line in said[2] if line] == [b"PUB x 0", b"UNSUB 1", b"PING"]
        await connection.close()


async def test_a_subscription_made_during_the_handshake_is_announced_after_it(connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        peer.send_info()
        await peer.lines_until(b"PING")
        connection.subscribe(b"late", lambda batch: None)
        connection.unsubscribe(early)
        peer.send(b"PONG\r\n")
        said.extend(await peer.lines_until(b"PING"))
        peer.send(b"PONG\r\n")
        await peer.gone()

    said: list[bytes] = []
    async with FakeNatsServer(script) as server:
        connection = connect(server.url)
        early = connection.subscribe(b"early", lambda batch: None)
        await connection.wait_connected(5)
        await connection.flush(5)
        assert said == [b"SUB late 2", b"UNSUB 1", b"PING"]
        await connection.close()


async def test_hostile_info_harms_nothing(connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome(
            max_payload="many", connect_urls=[1, None, "http://x", "a:b:c", *(f"h{n}:1" for n in range(500))]
        )
        await peer.lines_until(b"PING")
        peer.send(b'INFO {"max_payload": -1, "connect_urls": 7, "ldm": "yes"}\r\nPONG\r\n')
        await peer.gone()

    async with FakeNatsServer(script) as server:
        connection = connect(server.url)
        await connection.wait_connected(5)
        await connection.flush(5)
        assert connection.max_payload_bytes is None
        assert len(connection._session._servers.known) <= 101
        await connection.close()


async def test_a_server_that_sends_everyone_away_is_not_pestered(connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.welcome()
        peer.send(b"-ERR 'maximum connections exceeded'\r\n")

    async with FakeNatsServer(script) as server:
        connection = connect(server.url, reconnect_wait_seconds=0.05, reconnect_wait_seconds_max=30.0)
        with pytest.raises(AssertionError):
            await until(lambda: connection.counters.connects > 5, "pestering", seconds=0.5)
        assert connection.counters.connects <= 5
        assert "maximum connections exceeded" in connection.last_failure
        await connection.close()


def test_pauses_double_up_to_the_longest_and_vary() -> None:
    settings = NatsSettings(
        servers=("nats://127.0.0.1:1",), reconnect_wait_seconds=0.1, reconnect_wait_seconds_max=5.0
    )
    rng = random.Random(3)
    servers = Servers(settings.servers, rng)
    session = Session(settings, servers, lambda server: None, lambda reason: None)
    redialer = Redialer(session, settings, servers, rng)
    for rounds in (0, 1, 2, 5, 6, 100, 10**6):
        redialer._rounds = rounds
        nominal = min(5.0, 0.1 * 2.0 ** min(rounds, 30))
        pauses = {redialer.pause_seconds() for _ in range(20)}
        assert len(pauses) > 1
        assert all(nominal / 2 <= pause <= nominal for pause in pauses)


def test_a_line_is_logged_once_a_minute_and_says_how_many_were_left_out() -> None:
    now = 0.0
    limit = LogLimit(lambda: now)
    assert limit.left_out("a") == 0
    assert [limit.left_out("a") for _ in range(5)] == [None] * 5
    assert limit.left_out("b") == 0
    now = LOG_INTERVAL_SECONDS
    assert limit.left_out("a") == 5
    assert limit.left_out("a") is None
    for number in range(2 * KEYS_MAX):
        limit.left_out(str(number))
    assert len(limit._seen) <= KEYS_MAX

"""The connection against a real nats-server, with nats-py as the other client."""

import asyncio
import json
import random
import re
import signal
from collections import Counter

import pytest
import uvloop

from support.hosts import HOST
from support.nats_server import NatsServer
from support.waiting import until
from tidelog_broker.nats import headers
from tidelog_broker.nats.connection import NatsConnection
from tidelog_broker.nats.errors import (
    ConnectionClosed,
    NatsNotConnected,
    NatsTimeout,
    PayloadTooLarge,
    ServerAddressInvalid,
    SubjectInvalid,
)
from tidelog_broker.nats.parser import Message
from tidelog_broker.nats.settings import NatsSettings

from .conftest import Connect, ConnectOther


async def test_what_is_published_arrives_in_order_and_in_few_calls(
    nats_server: NatsServer, connect: Connect, connect_other: ConnectOther
) -> None:
    calls: list[list[Message]] = []
    connection = connect(nats_server.url)
    await connection.wait_connected(5)
    connection.subscribe(b"orders.*", calls.append)
    await connection.flush(5)
    client = await connect_other(nats_server.url)

    for number in range(1000):
        await client.publish("orders.eu", b"%d" % number)
    await until(lambda: connection.counters.messages_received == 1000, "all messages")

    received = [message for call in calls for message in call]
    assert received == [(b"orders.eu", None, None, b"%d" % number) for number in range(1000)]
    assert len(calls) < 500


async def test_a_reply_subject_is_handed_over_and_an_answer_reaches_the_requester(
    nats_server: NatsServer, connect: Connect, connect_other: ConnectOther
) -> None:
    connection = connect(nats_server.url)
    await connection.wait_connected(5)

    def answer(batch: list[Message]) -> None:
        for _, reply, _, payload in batch:
            assert reply is not None
            connection.publish(reply, payload.upper(), headers=[(b"A", b"1")])

    connection.subscribe(b"shout", answer)
    await connection.flush(5)
    client = await connect_other(nats_server.url)

    response = await client.request("shout", b"hello", timeout=5)

    assert response.data == b"HELLO"
    assert response.headers == {"A": "1"}


async def test_repeated_headers_arrive_in_their_order(nats_server: NatsServer, connect: Connect) -> None:
    batches: list[list[Message]] = []
    connection = connect(nats_server.url)
    await connection.wait_connected(5)
    connection.subscribe(b"a", batches.append)
    fields = [(b"B", b"1"), (b"A", b"2"), (b"B", b"3"), (b"b", b"\xff")]

    connection.publish(b"a", b"x", headers=fields)
    await connection.flush(5)

    ((_, _, block, payload),) = batches[0]
    assert block is not None
    assert headers.parse(block) == fields
    assert payload == b"x"


async def test_a_request_nobody_serves_is_answered_with_a_status(
    nats_server: NatsServer, connect: Connect
) -> None:
    batches: list[list[Message]] = []
    connection = connect(nats_server.url)
    await connection.wait_connected(5)
    connection.subscribe(b"inbox", batches.append)

    connection.publish(b"nobody", b"", reply=b"inbox")
    await connection.flush(5)
    await until(lambda: batches, "the answer")

    block = batches[0][0][2]
    assert block is not None
    assert headers.status(block) == headers.Status(503, b"")


async def test_a_subject_that_is_not_utf_8_harms_nothing(nats_server: NatsServer, connect: Connect) -> None:
    subjects: list[bytes] = []
    connection = connect(nats_server.url)
    publisher = connect(nats_server.url)
    await connection.wait_connected(5)
    await publisher.wait_connected(5)
    connection.subscribe(b">", lambda batch: subjects.extend(subject for subject, *_ in batch))
    await connection.flush(5)

    publisher.write(b"PUB a.\xff\xfe 1\r\nx\r\nPUB b.\xc3( 1\r\nx\r\nPUB c 1\r\nx\r\n")
    await until(lambda: b"c" in subjects, "the message after them")

    assert subjects == [b"a.\xff\xfe", b"b.\xc3(", b"c"]
    assert connection.counters.disconnects == 0


async def test_a_queue_group_gets_each_message_once(
    nats_server: NatsServer, connect: Connect, connect_other: ConnectOther
) -> None:
    payloads: Counter[bytes] = Counter()
    members = [connect(nats_server.url) for _ in range(3)]
    for member in members:
        await member.wait_connected(5)
        member.subscribe(
            b"work", lambda batch: payloads.update(payload for *_, payload in batch), queue=b"group"
        )
        await member.flush(5)
    client = await connect_other(nats_server.url)

    for number in range(300):
        await client.publish("work", b"%d" % number)
    await until(lambda: payloads.total() >= 300, "all messages")
    for member in members:
        await member.flush(5)

    assert set(payloads.values()) == {1}
    assert all(member.counters.messages_received > 0 for member in members)


async def test_after_the_server_restarts_subscriptions_stand_again(
    nats_server: NatsServer, connect: Connect
) -> None:
    states: list[str] = []
    payloads: list[bytes] = []
    connection = connect(
        nats_server.url,
        on_connected=lambda server: states.append("up"),
        on_disconnected=lambda reason: states.append("down"),
    )
    await connection.wait_connected(5)
    connection.subscribe(b"a.>", lambda batch: payloads.extend(payload for *_, payload in batch))
    ended = connection.subscribe(b"b", lambda batch: None)
    connection.unsubscribe(ended)
    await connection.flush(5)

    for round_number in range(3):
        (nats_server.kill if round_number % 2 else nats_server.stop)()
        await until(lambda: connection.server is None, "the loss to be noticed")
        with pytest.raises(NatsNotConnected):
            await connection.flush(1)
        nats_server.start()
        await connection.wait_connected(10)
        connection.publish(b"a.x", b"%d" % round_number)
        connection.publish(b"b", b"")
        await connection.flush(5)

    assert payloads == [b"0", b"1", b"2"]
    assert states == ["up", "down"] * 3 + ["up"]
    assert (connection.counters.connects, connection.counters.disconnects) == (4, 3)
    assert connection.counters.messages_unclaimed == 0


async def test_what_is_written_while_the_server_is_away_is_sent_when_it_is_back(
    nats_server: NatsServer, connect: Connect
) -> None:
    payloads: list[bytes] = []
    connection = connect(nats_server.url)
    await connection.wait_connected(5)
    nats_server.stop()
    await until(lambda: connection.server is None, "the loss to be noticed")

    subscription = connection.subscribe(b"a", lambda batch: payloads.extend(each[3] for each in batch))
    connection.publish(b"a", b"later")
    assert connection.unsent_bytes > 0
    nats_server.start()
    await connection.wait_connected(10)
    await connection.flush(5)

    assert payloads == [b"later"]
    assert subscription.messages_received == 1


async def test_a_connection_may_be_started_before_there_is_a_server(connect: Connect) -> None:
    with NatsServer() as server:
        server.stop()
        connection = connect(server.url)
        batches: list[list[Message]] = []
        connection.subscribe(b"a", batches.append)
        await until(lambda: connection.last_failure, "the refusal")
        with pytest.raises(NatsTimeout, match=rf"no connection to NATS within 0\.1 s: {re.escape(HOST)}"):
            await connection.wait_connected(0.1)
        server.start()
        await connection.wait_connected(10)
        connection.publish(b"a", b"x")
        await connection.flush(5)
        assert len(batches) == 1


async def test_a_handler_that_raises_is_counted_and_the_next_batch_comes(
    nats_server: NatsServer, connect: Connect
) -> None:
    connection = connect(nats_server.url, on_connected=lambda server: 1 / 0)
    await connection.wait_connected(5)
    connection.subscribe(b"bad", lambda batch: 1 / 0)  # type: ignore[arg-type]
    batches: list[list[Message]] = []
    connection.subscribe(b"good", batches.append)

    for _ in range(3):
        connection.publish(b"bad", b"x")
        connection.publish(b"good", b"x")
        await connection.flush(5)

    assert connection.counters.handler_errors == 4
    assert len(batches) == 3
    assert connection.counters.disconnects == 0


async def test_draining_delivers_what_the_server_had_sent(nats_server: NatsServer, connect: Connect) -> None:
    count = 0

    def add(batch: list[Message]) -> None:
        nonlocal count
        count += len(batch)

    connection = connect(nats_server.url)
    await connection.wait_connected(5)
    subscription = connection.subscribe(b"a", add)
    await connection.flush(5)
    publisher = connect(nats_server.url)
    await publisher.wait_connected(5)
    for _ in range(5000):
        publisher.publish(b"a", b"x" * 100)
    await publisher.flush(5)

    await connection.drain([subscription], 5)
    publisher.publish(b"a", b"late")
    await publisher.flush(5)
    await connection.flush(5)

    assert count == 5000
    assert subscription.closed
    assert connection.counters.messages_unclaimed == 0


async def test_pausing_holds_messages_back_until_reading_resumes(
    nats_server: NatsServer, connect: Connect
) -> None:
    connection = connect(nats_server.url)
    await connection.wait_connected(5)
    subscription = connection.subscribe(b"a", lambda batch: None)
    await connection.flush(5)
    publisher = connect(nats_server.url)
    await publisher.wait_connected(5)

    connection.pause_reading()
    for _ in range(100):
        publisher.publish(b"a", b"x")
    await publisher.flush(5)
    with pytest.raises(NatsTimeout):
        await connection.flush(0.05)
    assert subscription.messages_received == 0
    connection.resume_reading()
    await connection.flush(5)

    assert subscription.messages_received == 100


async def test_more_than_the_server_takes_is_refused_and_the_connection_stays(connect: Connect) -> None:
    with NatsServer("max_payload: 1000") as server:
        connection = connect(server.url)
        await connection.wait_connected(5)
        assert connection.max_payload_bytes == 1000

        connection.publish(b"a", b"x" * 1000)
        with pytest.raises(PayloadTooLarge, match="at most 1000"):
            connection.publish(b"a", b"x" * 1001)
        with pytest.raises(PayloadTooLarge):
            connection.publish(b"a", b"x" * 990, headers=[(b"A", b"1")])
        await connection.flush(5)

        assert connection.counters.server_errors == 0


async def test_what_is_not_permitted_is_refused_without_ending_the_connection(connect: Connect) -> None:
    config = """
    authorization { users = [
      { user: "tide", password: "p@ss", permissions: { subscribe: ["open.>"], publish: ["open.>"] } }
    ] }
    """
    with NatsServer(config) as server:
        connection = connect(server.url.replace("://", "://tide:p%40ss@"))
        await connection.wait_connected(5)
        allowed = connection.subscribe(b"open.a", lambda batch: None)
        forbidden = connection.subscribe(b"secret.*", lambda batch: None)
        grouped = connection.subscribe(b"secret.b", lambda batch: None, queue=b"q")
        connection.publish(b"secret.a", b"x")
        connection.publish(b"open.a", b"x")
        await connection.flush(5)

        assert connection.counters.server_errors == 3
        assert connection.counters.disconnects == 0
        assert allowed.refused is None
        assert forbidden.refused is not None
        assert grouped.refused is not None
        assert allowed.messages_received == 1


@pytest.mark.parametrize(
    ("config", "credentials"),
    [
        ('authorization { user: "u", password: "p w" }', "u:p%20w@"),
        ('authorization { token: "s3cret" }', "s3cret@"),
    ],
)
async def test_credentials_let_us_in_and_wrong_ones_are_not_tried_in_a_hurry(
    connect: Connect, config: str, credentials: str
) -> None:
    with NatsServer(config) as server:
        good = connect(server.url.replace("://", f"://{credentials}"))
        await good.wait_connected(5)

        bad = connect(server.url, reconnect_wait_seconds_max=30.0)
        await until(lambda: bad.counters.connects_failed, "the refusal")
        with pytest.raises(NatsTimeout, match="Authorization Violation"):
            await bad.wait_connected(0.3)
        assert bad.counters.connects_failed == 1
        for secret in ("p w", "p%20w", "s3cret"):
            assert secret not in repr(good) + repr(good._session._settings) + bad.last_failure


async def test_a_server_in_lame_duck_mode_is_left_for_one_it_told_us_of(connect: Connect) -> None:
    cluster = f'cluster {{{{ name: "c", listen: "{HOST}:-1" {{routes}} }}}}'
    with NatsServer(cluster.format(routes="")) as first:
        ports = json.loads(next(first.directory.glob("*.ports")).read_text())
        route = ports["cluster"][0].rsplit(":", 1)[1]
        routes = f', routes: ["nats-route://{HOST}:{route}"]'
        with NatsServer(cluster.format(routes=routes)) as second:
            connection = connect(first.url)
            await connection.wait_connected(5)
            assert connection.server == f"{HOST}:{first.port}"
            known = connection._session._servers
            await until(lambda: second.port in [each.port for each in known.known], "the second server")

            first.signal(signal.SIGUSR2)
            await until(lambda: known.known[-1].port == first.port, "the announcement")
            first.kill()
            await until(lambda: connection.server == f"{HOST}:{second.port}", "the second server")
            await connection.flush(5)


async def test_closing_sends_what_is_buffered_and_leaves_nothing_behind(
    nats_server: NatsServer, connect: Connect
) -> None:
    batches: list[list[Message]] = []
    listener = connect(nats_server.url)
    await listener.wait_connected(5)
    listener.subscribe(b"a", batches.append)
    await listener.flush(5)
    tasks = asyncio.all_tasks()
    connection = connect(nats_server.url)
    await connection.wait_connected(5)

    connection.publish(b"a", b"last words")
    await asyncio.gather(connection.close(), connection.close())
    await connection.close()
    await until(lambda: batches, "the last words")

    assert asyncio.all_tasks() == tasks
    assert batches[0][0][3] == b"last words"
    for call in (
        lambda: connection.write(b""),
        lambda: connection.subscribe(b"a", batches.append),
        connection.start,
    ):
        with pytest.raises(ConnectionClosed):
            call()
    for waiting in (connection.flush(1), connection.wait_connected(1), connection.room()):
        with pytest.raises(ConnectionClosed):
            await waiting


async def test_closing_while_connecting_ends_the_attempt(connect: Connect) -> None:
    with NatsServer() as server:
        server.signal(signal.SIGSTOP)
        connection = connect(server.url)
        waiting = asyncio.create_task(connection.wait_connected(10))
        await until(lambda: connection._session.server, "an attempt")

        await connection.close()

        with pytest.raises(ConnectionClosed):
            await waiting
        assert not connection.connected


def test_invalid_subjects_are_refused_before_the_server_hears_of_them() -> None:
    connection = NatsConnection(NatsSettings(servers=("nats://127.0.0.1:1",)), random.Random(1))
    for call in (
        lambda: connection.subscribe(b"a..b", lambda batch: None),
        lambda: connection.subscribe(b"a", lambda batch: None, queue=b"q 1"),
        lambda: connection.publish(b"a\r\nPUB b", b""),
        lambda: connection.publish(b"a.*", b""),
        lambda: connection.publish(b"a", b"", reply=b"r 1"),
    ):
        with pytest.raises(SubjectInvalid):
            call()


@pytest.mark.parametrize(
    "address",
    ["", "http://a:1", "nats://", "nats://a:port", "nats://a:99999", "nats://a/b", "nats://u:hush@[::1:4"],
)
def test_an_address_that_makes_no_sense_is_refused_without_its_credentials(address: str) -> None:
    with pytest.raises(ServerAddressInvalid) as caught:
        NatsConnection(NatsSettings(servers=(address,)), random.Random(1))
    assert "hush" not in str(caught.value)


def test_it_runs_on_uvloop_too(nats_server: NatsServer) -> None:
    async def scenario() -> None:
        payloads: list[bytes] = []
        settings = NatsSettings(servers=(nats_server.url,), reconnect_wait_seconds=0.01)
        connection = NatsConnection(settings, random.Random(1))
        connection.start()
        await connection.wait_connected(5)
        connection.subscribe(b"a", lambda batch: payloads.extend(payload for *_, payload in batch))
        connection.publish(b"a", b"1")
        await connection.flush(5)
        nats_server.restart()
        await until(lambda: connection.counters.connects == 2, "the second link")
        connection.pause_reading()
        connection.pause_reading()
        connection.resume_reading()
        connection.resume_reading()
        connection.publish(b"a", b"x" * 1_000_000)
        await connection.flush(5)
        await connection.close()
        assert [len(payload) for payload in payloads] == [1, 1_000_000]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())

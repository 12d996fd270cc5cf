"""Streams record their NATS subjects: a real broker and server, and clients that are not ours (N1–N3, N5)."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.js.errors import APIError

import nats
from support.api import Api, record
from support.broker import BrokerProcess
from support.hosts import HOST
from support.nats_server import NatsServer
from tidelog_proto import admin_pb2, common_pb2, log_pb2


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with NatsServer() as process:
        yield process


@pytest.fixture(scope="module")
def recording(server: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that records from `server`."""
    with BrokerProcess(tmp_path_factory.mktemp("recording"), nats=server.url) as process:
        yield process


@pytest_asyncio.fixture
async def api(recording: BrokerProcess) -> AsyncIterator[Api]:
    async with Api(recording.address) as client:
        yield client


@pytest_asyncio.fixture
async def client(server: NatsServer) -> AsyncIterator[Client]:
    one = await nats.connect(server.url)
    yield one
    await one.close()


async def _values(
    api: Api, stream: common_pb2.StreamDescription, count: int, partition: int = 0
) -> list[bytes]:
    """The first `count` records, once they are there."""
    found: list[bytes] = []
    part = log_pb2.FetchPartition(
        stream_id=stream.stream_id, partition=partition, earliest=True, end_offset=count
    )
    async with asyncio.timeout(10):
        async for response in api.fetch(part, follow=True):
            found += [one.record.value for one in response.records.records]
    return found


async def _ask(client: Client, subject: str, value: bytes, **headers: str) -> dict[str, Any]:
    named = {name.replace("_", "-"): text for name, text in headers.items()} or None
    answer = await client.request(subject, value, timeout=5, headers=named)
    told: dict[str, Any] = json.loads(answer.data)
    return told


async def test_an_unmodified_jetstream_publish_is_recorded_and_acknowledged(api: Api, client: Client) -> None:
    stream = await api.create("orders", subject="orders.>")
    js = client.jetstream()
    acks = [await js.publish("orders.new", b"%d" % number) for number in range(3)]
    assert [(ack.stream, ack.seq, ack.duplicate) for ack in acks] == [("orders", n, None) for n in (1, 2, 3)]
    assert await api.values(stream) == [b"0", b"1", b"2"]
    (first, *_) = await api.read(stream)
    assert first.record.subject == "orders.new"


async def test_the_answer_names_partition_offset_and_epoch_beside_jetstreams_own_fields(
    api: Api, client: Client
) -> None:
    stream = await api.create("fields", subject="fields")
    told = await _ask(client, "fields", b"x")
    epoch = stream.partitions[0].leader_epoch
    assert told == {"stream": "fields", "seq": 1, "partition": 0, "offset": 0, "epoch": epoch}


async def test_a_duplicate_message_id_is_flagged_with_the_first_sequence(api: Api, client: Client) -> None:
    stream = await api.create("dedupe", subject="dedupe")
    js = client.jetstream()
    first = await js.publish("dedupe", b"a", headers={"Nats-Msg-Id": "one"})
    await js.publish("dedupe", b"b", headers={"Nats-Msg-Id": "two"})
    again = await js.publish("dedupe", b"c", headers={"Nats-Msg-Id": "one"})
    assert (again.seq, again.duplicate) == (first.seq, True)
    assert await api.values(stream) == [b"a", b"b"]


async def test_ids_of_nats_and_of_grpc_are_one_window(api: Api, client: Client) -> None:
    stream = await api.create("window", subject="window")
    await api.publish(stream, record(b"a", message_id="same"))
    assert (await _ask(client, "window", b"b", Nats_Msg_Id="same"))["duplicate"] is True


async def test_a_publisher_that_wants_no_answer_is_recorded_too(api: Api, client: Client) -> None:
    stream = await api.create("plain", subject="plain.*")
    for number in range(100):
        await client.publish(f"plain.{number % 3}", b"%d" % number)
    assert await _values(api, stream, 100) == [b"%d" % number for number in range(100)]


async def test_wildcards_record_what_they_match_and_never_inboxes(api: Api, client: Client) -> None:
    stream = await api.create("everything", subject="*.deep.>")
    await client.publish("a.deep.b", b"in")
    await client.publish("a.shallow.b", b"out")
    await client.publish("_INBOX.deep.x", b"inbox")
    await client.publish("$SYS.deep.x", b"system")
    await client.publish("b.deep.c.d", b"in too")
    assert await _values(api, stream, 2) == [b"in", b"in too"]


async def test_headers_are_kept_in_order_with_repeats(api: Api, server: NatsServer) -> None:
    stream = await api.create("headers", subject="headers")
    block = b"NATS/1.0\r\nB: 1\r\nA: 2\r\nB: 3\r\nEmpty: \r\n\r\n"
    _raw(server, b"HPUB headers %d %d\r\n%bv\r\n" % (len(block), len(block) + 1, block))
    await _values(api, stream, 1)
    (found,) = await api.read(stream)
    assert [(h.name, h.value) for h in found.record.headers] == [
        ("B", b"1"), ("A", b"2"), ("B", b"3"), ("Empty", b""),
    ]  # fmt: skip


async def test_a_subject_that_is_no_utf8_harms_nothing(
    api: Api, server: NatsServer, client: Client, recording: BrokerProcess
) -> None:
    stream = await api.create("bytes", subject="bytes.>")
    _raw(server, b"PUB bytes.\xff\xfe 3\r\nbad\r\n")
    assert (await _ask(client, "bytes.good", b"fine"))["offset"] == 0
    assert await api.values(stream) == [b"fine"]
    metrics = await asyncio.to_thread(recording.get, "/metrics")
    assert 'tidelog_nats_messages_total{outcome="invalid_message"}' in metrics


async def test_the_subject_of_a_stream_can_change_under_traffic(api: Api, client: Client) -> None:
    stream = await api.create("moving", subject="moving.old", partitions=2)
    await _ask(client, "moving.old", b"1")
    await api.admin.AlterStream(
        admin_pb2.AlterStreamRequest(name="moving", config=common_pb2.StreamConfig(subject="moving.new"))
    )
    told = await _ask(client, "moving.new", b"2")
    assert told["stream"] == "moving"
    await client.publish("moving.old", b"never")
    await _ask(client, "moving.new", b"3")
    values = await api.values(stream, 0) + await api.values(stream, 1)
    assert sorted(values) == [b"1", b"2", b"3"]


async def test_a_stream_gets_its_subject_later_and_loses_it_again(api: Api, client: Client) -> None:
    await api.create("late")

    async def alter(subject: str) -> None:
        await api.admin.AlterStream(
            admin_pb2.AlterStreamRequest(name="late", config=common_pb2.StreamConfig(subject=subject))
        )

    with pytest.raises(nats.errors.NoRespondersError):
        await client.request("late", b"x", timeout=5)
    await alter("late")
    assert (await _ask(client, "late", b"y"))["seq"] == 1
    await alter("")
    with pytest.raises(nats.errors.NoRespondersError):
        await client.request("late", b"z", timeout=5)


async def test_deleting_a_stream_ends_its_subscription(api: Api, client: Client) -> None:
    await api.create("doomed", subject="doomed")
    await _ask(client, "doomed", b"x")
    await api.admin.DeleteStream(admin_pb2.DeleteStreamRequest(name="doomed"))
    with pytest.raises(nats.errors.NoRespondersError):
        await client.request("doomed", b"y", timeout=5)


async def test_a_stream_that_never_answers_records_and_leaves_the_answer_to_others(
    api: Api, client: Client
) -> None:
    stream = await api.create("silent", subject="silent", nats_ack=common_pb2.NATS_ACK_NEVER)

    async def service(message: Any) -> None:
        await message.respond(b"the real answer")

    await client.subscribe("silent", cb=service)
    for _ in range(5):
        assert (await client.request("silent", b"question", timeout=5)).data == b"the real answer"
    assert await _values(api, stream, 5) == [b"question"] * 5


@pytest.mark.parametrize(
    ("value", "headers", "code"),
    [
        (bytes(20_000), {}, 10054),
        (b"x", {"Nats-Expected-Stream": "another"}, 10060),
        (b"x", {"Nats-Expected-Last-Sequence": "7"}, 10003),
        (b"x", {"Nats-Rollup": "all"}, 10003),
        (b"x", {"Nats-Msg-Id": "m" * 2000}, 10003),
    ],
    ids=["too large", "wrong stream", "expected sequence", "rollup", "long id"],
)
async def test_what_cannot_be_stored_is_answered_with_jetstreams_error(
    api: Api, client: Client, value: bytes, headers: dict[str, str], code: int
) -> None:
    stream = await api.create("errors", subject="errors", batch_bytes_max=16_384)
    before = len(await api.values(stream))
    with pytest.raises(APIError) as caught:
        await client.jetstream().publish("errors", value, headers=headers)
    assert caught.value.err_code == code
    assert len(await api.values(stream)) == before
    assert "error" not in await _ask(client, "errors", b"good", Nats_Expected_Stream="errors")


async def test_one_message_too_large_harms_none_of_those_it_came_with(api: Api, client: Client) -> None:
    stream = await api.create("mixed", subject="mixed", batch_bytes_max=16_384)
    good = [b"%d" % number for number in range(40)]
    for value in (*good[:20], bytes(20_000), *good[20:]):
        await client.publish("mixed", value)
    assert await _values(api, stream, 40) == good


async def test_two_streams_on_one_subject_both_record_it(api: Api, client: Client) -> None:
    one = await api.create("twin-one", subject="twin")
    two = await api.create("twin-two", subject="twin")
    for number in range(10):
        await client.publish("twin", b"%d" % number)
    expected = [b"%d" % number for number in range(10)]
    assert await _values(api, one, 10) == expected
    assert await _values(api, two, 10) == expected


async def test_several_partitions_keep_the_order_of_each_subject(api: Api, client: Client) -> None:
    stream = await api.create("spread", subject="spread.>", partitions=4)
    answers = await asyncio.gather(
        *(_ask(client, f"spread.{number % 20}", b"%d" % number) for number in range(400))
    )
    places: dict[str, set[int]] = {}
    for number, told in enumerate(answers):
        places.setdefault(f"spread.{number % 20}", set()).add(told["partition"])
    assert all(len(partitions) == 1 for partitions in places.values())
    assert len(set.union(*places.values())) > 1
    for partition in range(4):
        by_subject: dict[str, list[int]] = {}
        for found in await api.read(stream, partition):
            by_subject.setdefault(found.record.subject, []).append(int(found.record.value))
        assert all(numbers == sorted(numbers) for numbers in by_subject.values())


async def test_more_than_may_wait_is_pushed_back_to_the_server_and_nothing_is_lost(
    api: Api, client: Client
) -> None:
    stream = await api.create("flood", subject="flood", partitions=1)
    value = bytes(100_000)
    for number in range(1000):
        await client.publish("flood", b"%06d" % number + value)
        if number % 50 == 49:
            await client.flush()
    last = await client.request("flood", b"last", timeout=60)
    assert json.loads(last.data)["offset"] == 1000
    numbers: list[int] = []
    async for response in api.fetch(log_pb2.FetchPartition(stream_id=stream.stream_id, earliest=True)):
        numbers += [int(r.record.value[:6]) for r in response.records.records if len(r.record.value) > 6]
    assert numbers == list(range(1000))


async def test_recording_resumes_when_the_server_comes_back(tmp_path: Any) -> None:
    with NatsServer() as server, BrokerProcess(tmp_path, nats=server.url) as broker:
        async with Api(broker.address) as api:
            stream = await api.create("resumed", subject="resumed")
            one = await nats.connect(server.url)
            assert (await _ask(one, "resumed", b"before"))["seq"] == 1
            await one.close()
            await asyncio.to_thread(server.restart)
            two = await nats.connect(server.url)
            async with asyncio.timeout(15):
                while True:
                    try:
                        told = await _ask(two, "resumed", b"after", Nats_Msg_Id="once")
                        break
                    except nats.errors.NoRespondersError:
                        await asyncio.sleep(0.02)
            assert told["seq"] == 2
            assert await api.values(stream) == [b"before", b"after"]
            # A clean stop takes in what was sent, and answers it.
            asked = [asyncio.create_task(_ask(two, "resumed", b"%d" % n)) for n in range(50)]
            await asyncio.sleep(0)
            # The library's PING goes in front of what it has buffered, a second one behind it.
            await two.flush()
            await two.flush()
            assert await asyncio.to_thread(broker.stop) == 0
            answers = await asyncio.gather(*asked)
            assert sorted(one["offset"] for one in answers) == list(range(2, 52))
            await two.close()
        await asyncio.to_thread(broker.start)
        async with Api(broker.address) as api:
            assert len(await api.values(stream)) == 52


async def test_a_broker_without_a_nats_server_serves_grpc_and_waits(tmp_path: Any) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        url = f"nats://{HOST}:{taken.getsockname()[1]}"
        with BrokerProcess(tmp_path, nats=url) as broker:
            async with Api(broker.address) as api:
                stream = await api.create("alone", subject="alone")
                await api.publish(stream, b"x")
                assert await api.values(stream) == [b"x"]
            assert broker.stop() == 0


def _raw(server: NatsServer, frames: bytes) -> None:
    """Publishes what no client library would, and waits until the server has taken it."""
    with socket.create_connection((HOST, server.port), timeout=5) as connection:
        connection.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n' + frames + b"PING\r\n")
        said = b""
        while b"PONG" not in said:
            received = connection.recv(4096)
            assert received, said
            said += received

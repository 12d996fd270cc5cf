"""Acknowledgements: their form, JetStream's codes, and agreement with a real nats-server and nats-py."""

import asyncio
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nats.js import api
from nats.js.errors import APIError, BadRequestError, ServiceUnavailableError

from support.nats_server import NatsServer
from tidelog_broker.nats import jetstream
from tidelog_broker.nats.jetstream import API_ERRORS, Acknowledger, Failure, publication
from tidelog_broker.nats.parser import Message

from .conftest import Connect, ConnectOther


def test_an_acknowledgement_says_what_jetstream_says_and_ours_beside_it() -> None:
    acknowledger = Acknowledger("orders", 3, 7)

    assert json.loads(acknowledger.accepted(41)) == {
        "stream": "orders",
        "seq": 42,
        "partition": 3,
        "offset": 41,
        "epoch": 7,
    }
    assert json.loads(acknowledger.duplicate(41))["duplicate"] is True


@given(
    st.lists(
        st.tuples(st.sampled_from([b"_INBOX.a", b"r\xff", None]), st.integers(0, 2**63 - 2)), max_size=20
    )
)
@example([(b"r", 9), (b"r", 99), (b"r", 10**18 - 1)])
def test_many_at_once_are_the_same_as_one_by_one(messages: list[tuple[bytes | None, int]]) -> None:
    acknowledger = Acknowledger("s-1.x%d", 0, 1)
    replies, offsets = [reply for reply, _ in messages], [offset for _, offset in messages]

    assert acknowledger.publications(replies, offsets) == [
        publication(reply, acknowledger.accepted(offset)) for reply, offset in messages if reply
    ]


def test_a_stream_name_is_written_as_json() -> None:
    assert json.loads(Acknowledger('a"b\\', 0, 0).accepted(0))["stream"] == 'a"b\\'


@pytest.mark.parametrize("failure", Failure)
def test_every_failure_has_an_error_that_clients_understand(failure: Failure) -> None:
    body = json.loads(Acknowledger("orders", 0, 1).refused(failure, "because"))

    assert body["stream"] == "orders"
    assert body["seq"] == 0
    assert set(body["error"]) == {"code", "err_code", "description"}
    assert body["error"]["description"] == f"{API_ERRORS[failure].description}: because"
    with pytest.raises(APIError) as caught:
        raise APIError.from_error(body["error"])
    assert caught.value.err_code == API_ERRORS[failure].err_code


@pytest.mark.parametrize("name", jetstream.UNSUPPORTED_HEADERS)
def test_a_header_we_cannot_honour_is_noticed(name: bytes) -> None:
    block = b"NATS/1.0\r\nNats-Msg-Id: 1\r\n%b: 5\r\n\r\n" % name
    assert jetstream.unsupported_header(block) == name


def test_headers_we_honour_or_do_not_know_are_left_alone() -> None:
    block = (
        b"NATS/1.0\r\nNats-Msg-Id: 1\r\nNats-Expected-Stream: s\r\nnats-ttl: 5\r\n"
        b"X-Nats-TTL: 1\r\nNats-TTL-X: 1\r\nA: Nats-TTL: 1\r\n\r\n"
    )
    assert jetstream.unsupported_header(block) is None
    assert jetstream.message_id(block) == b"1"
    assert jetstream.expected_stream(block) == b"s"


async def test_an_unmodified_jetstream_client_publishes_and_gets_our_answers(
    nats_server: NatsServer, connect: Connect, connect_other: ConnectOther
) -> None:
    acknowledger = Acknowledger("orders", 0, 1)
    offsets: dict[bytes, int] = {}
    answers = {
        b"too large": Failure.TOO_LARGE,
        b"disk full": Failure.DISK_FULL,
        b"stopping": Failure.STOPPING,
    }

    def record(batch: list[Message]) -> None:
        for _, reply, block, payload in batch:
            assert reply is not None
            identity = jetstream.message_id(block) if block else None
            if payload in answers:
                answer = acknowledger.refused(answers[payload])
            elif block and jetstream.expected_stream(block) not in (None, b"orders"):
                answer = acknowledger.refused(Failure.WRONG_STREAM)
            elif block and (name := jetstream.unsupported_header(block)):
                answer = acknowledger.refused(Failure.UNSUPPORTED_HEADER, f"{name.decode()} is not supported")
            elif identity in offsets:
                answer = acknowledger.duplicate(offsets[identity])
            else:
                offset = offsets[identity or payload] = len(offsets)
                answer = acknowledger.accepted(offset)
            recorder.write(publication(reply, answer))

    recorder = connect(nats_server.url)
    await recorder.wait_connected(5)
    recorder.subscribe(b"orders.>", record)
    await recorder.flush(5)
    client = await connect_other(nats_server.url)
    js = client.jetstream()

    first = await js.publish("orders.eu", b"a", headers={"Nats-Msg-Id": "1"})
    assert (first.stream, first.seq, first.duplicate) == ("orders", 1, None)
    again = await js.publish("orders.eu", b"a", headers={"Nats-Msg-Id": "1"})
    assert (again.seq, again.duplicate) == (1, True)
    assert (await js.publish("orders.us", b"b", stream="orders")).seq == 2
    with pytest.raises(BadRequestError) as wrong:
        await js.publish("orders.us", b"c", stream="other")
    assert wrong.value.err_code == 10060
    with pytest.raises(BadRequestError) as unsupported:
        await js.publish("orders.us", b"c", headers={api.Header.EXPECTED_LAST_SEQUENCE: "4"})
    assert unsupported.value.err_code == 10003
    with pytest.raises(BadRequestError) as large:
        await js.publish("orders.us", b"too large")
    assert large.value.err_code == 10054
    for payload, code in ((b"disk full", 10023), (b"stopping", 10008)):
        with pytest.raises(ServiceUnavailableError) as unavailable:
            await js.publish("orders.us", payload)
        assert unavailable.value.err_code == code


async def test_jetstream_itself_reads_headers_and_answers_as_we_do(
    connect: Connect, connect_other: ConnectOther
) -> None:
    with NatsServer("", "-js") as server:
        client = await connect_other(server.url)
        js = client.jetstream()
        await js.add_stream(name="orders", subjects=["orders.>"], max_msg_size=50)
        answers: list[dict[str, object]] = []
        connection = connect(server.url)
        await connection.wait_connected(5)
        connection.subscribe(
            b"answers", lambda batch: answers.extend(json.loads(payload) for *_, payload in batch)
        )
        blocks = [
            b"NATS/1.0\r\nNats-Msg-Id: a\r\n\r\n",
            b"NATS/1.0\r\nnats-msg-id: a\r\n\r\n",
            b"NATS/1.0\r\nNats-Msg-Id:a\r\n\r\n",
            b"NATS/1.0\r\nNats-Msg-Id:   a  \r\n\r\n",
            b"NATS/1.0\r\nNats-Msg-Id: b\r\nNats-Msg-Id: a\r\n\r\n",
            b"NATS/1.0\r\nX: Nats-Msg-Id: b\r\n\r\n",
            b"NATS/1.0\r\nXNats-Msg-Id: b\r\n\r\n",
            b"NATS/1.0\r\nNats-Msg-Id : b\r\n\r\n",
            b"NATS/1.0\r\nNats-Msg-Id: b",
        ]
        for block in blocks:
            size = len(block)
            connection.write(b"HPUB orders.x answers %d %d\r\n%b\r\n" % (size, size, block))
        await connection.flush(5)
        deadline = asyncio.get_running_loop().time() + 10
        while len(answers) < len(blocks) and asyncio.get_running_loop().time() < deadline:
            await connection.flush(5)

        seen: set[bytes] = set()
        for block, answer in zip(blocks, answers, strict=True):
            identity = jetstream.message_id(block)
            assert answer.get("duplicate", False) == (identity in seen), block
            if identity is not None:
                seen.add(identity)

        with pytest.raises(BadRequestError) as wrong:
            await js.publish("orders.x", b"", stream="other")
        assert wrong.value.err_code == API_ERRORS[Failure.WRONG_STREAM].err_code
        assert wrong.value.description == API_ERRORS[Failure.WRONG_STREAM].description
        with pytest.raises(BadRequestError) as large:
            await js.publish("orders.x", b"x" * 51)
        assert large.value.err_code == API_ERRORS[Failure.TOO_LARGE].err_code
        assert large.value.description == API_ERRORS[Failure.TOO_LARGE].description

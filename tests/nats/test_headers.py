"""Header blocks: order and repeats kept, JetStream's rules for finding one, refusal of the malformed."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_broker.nats.errors import HeadersInvalid
from tidelog_broker.nats.headers import HEADERS_BYTES_MAX, Finder, Status, parse, render, status

names = st.binary(min_size=1, max_size=20).filter(lambda name: not re.search(rb"[:\r\n]|\A[ \t]", name))
values = st.binary(max_size=30).filter(lambda value: not re.search(rb"[\r\n]|\A[ \t]", value))
fields = st.lists(st.tuples(names, values), max_size=8)


def slow_find(block: bytes, name: bytes) -> bytes | None:
    for found, value in parse(block):
        if found == name:
            return value
    return None


@given(fields)
def test_fields_come_back_in_their_order_with_repeats(wanted: list[tuple[bytes, bytes]]) -> None:
    assert parse(render(wanted)) == wanted


@given(fields, names)
def test_the_finder_agrees_with_reading_everything(wanted: list[tuple[bytes, bytes]], name: bytes) -> None:
    block = render(wanted)
    for each in [name, *(found for found, _ in wanted)]:
        assert Finder(each)(block) == slow_find(block, each)


@pytest.mark.parametrize(
    ("block", "value"),
    [
        (b"NATS/1.0\r\nNats-Msg-Id: a\r\n\r\n", b"a"),
        (b"NATS/1.0\r\nNats-Msg-Id:a\r\n\r\n", b"a"),
        (b"NATS/1.0\r\nNats-Msg-Id:   a \r\n\r\n", b"a "),
        (b"NATS/1.0\r\nNats-Msg-Id: b\r\nNats-Msg-Id: a\r\n\r\n", b"b"),
        (b"NATS/1.0\r\nNats-Msg-Id:\r\n\r\n", b""),
        (b"NATS/1.0 200 OK\r\nNats-Msg-Id: a\r\n\r\n", b"a"),
        (b"NATS/1.0\r\nNats-Msg-Id: a", b"a"),
        (b"NATS/1.0\r\nnats-msg-id: a\r\n\r\n", None),
        (b"NATS/1.0\r\nX: Nats-Msg-Id: a\r\n\r\n", None),
        (b"NATS/1.0\r\nXNats-Msg-Id: a\r\n\r\n", None),
        (b"NATS/1.0\r\nNats-Msg-Id-X: a\r\n\r\n", None),
        (b"NATS/1.0\r\nNats-Msg-Id : a\r\n\r\n", None),
        (b"NATS/1.0\r\n\r\n", None),
        (b"", None),
    ],
)
def test_one_header_is_found_by_the_rules_of_jetstream(block: bytes, value: bytes | None) -> None:
    assert Finder(b"Nats-Msg-Id")(block) == value


def test_a_status_in_the_first_line_is_not_a_header() -> None:
    assert parse(b"NATS/1.0 503\r\n\r\n") == []
    assert status(b"NATS/1.0 503\r\n\r\n") == Status(503, b"")
    assert status(b"NATS/1.0 408 Request Timeout\r\nA: b\r\n\r\n") == Status(408, b"Request Timeout")
    assert parse(b"NATS/1.0 408 Request Timeout\r\nA: b\r\n\r\n") == [(b"A", b"b")]
    assert status(b"NATS/1.0\r\n\r\n") is None
    assert status(b"NATS/1.0 \r\n\r\n") is None


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"garbage",
        b"NATS/1.0",
        b"NATS/1.0\r\n",
        b"NATS/1.1\r\n\r\n",
        b"NATS/1.0x\r\n\r\n",
        b"NATS/1.0 abc\r\n\r\n",
        b"NATS/1.0 5\r\n\r\n",
        b"NATS/1.0\r\nno colon\r\n\r\n",
        b"NATS/1.0\r\n: no name\r\n\r\n",
        b"NATS/1.0\r\n folded: line\r\n\r\n",
        b"NATS/1.0\r\nA: b\nC: d\r\n\r\n",
        b"NATS/1.0\r\nA: b\rC: d\r\n\r\n",
        b"NATS/1.0\r\nA: b\r\n",
        b"NATS/1.0\r\nA: b\r\n\r\nrest",
        b"NATS/1.0\r\n\r\n\r\n",
        b"NATS/1.0\r\nA: " + b"x" * HEADERS_BYTES_MAX + b"\r\n\r\n",
    ],
)
def test_a_malformed_block_is_refused(block: bytes) -> None:
    with pytest.raises(HeadersInvalid) as caught:
        parse(block)
    assert len(caught.value.offending) <= 64


@pytest.mark.parametrize(
    "field",
    [
        (b"", b"x"),
        (b"A:", b"x"),
        (b" A", b"x"),
        (b"A\r\n", b"x"),
        (b"A", b"x\r\nB: y"),
        (b"A", b"x\n"),
        (b"A", b"x" * HEADERS_BYTES_MAX),
    ],
)
def test_a_field_that_would_read_as_something_else_is_not_written(field: tuple[bytes, bytes]) -> None:
    with pytest.raises(HeadersInvalid):
        render([field])


@given(st.binary(max_size=80))
def test_arbitrary_bytes_give_fields_or_the_typed_error(tail: bytes) -> None:
    for block in (tail, b"NATS/1.0\r\n" + tail, b"NATS/1.0\r\n" + tail + b"\r\n\r\n"):
        try:
            found = parse(block)
        except HeadersInvalid:
            continue
        assert parse(render(found)) == found

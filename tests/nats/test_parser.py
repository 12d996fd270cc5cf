"""The parser against transcripts cut everywhere, against a slow twin, and against garbage."""

import itertools
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_broker.nats.errors import ProtocolError
from tidelog_broker.nats.parser import Control, Info, Message, Parser, ServerError, Signal

TRANSCRIPT = b"".join(
    [
        b'INFO {"server_id":"A","max_payload":1048576,"connect_urls":["10.0.0.1:4222"]} \r\n',
        b"PONG\r\n",
        b"MSG orders.eu 1 5\r\nhello\r\n",
        b"MSG orders.eu 2 _INBOX.x.1 0\r\n\r\n",
        b"PING\r\n",
        b"HMSG orders.us 1 23 25\r\nNATS/1.0\r\nA: 1\r\nA:2\r\n\r\nhi\r\n",
        b"HMSG orders.us 1 _INBOX.y 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n",
        b"MSG a\xff\xfe\x0b.b 12 11\r\nMSG x 1 1\r\n\r\n",
        b"+OK\r\n",
        b'INFO {"ldm":true}\r\n',
    ]
)
MESSAGES: dict[int, list[Message]] = {
    1: [
        (b"orders.eu", None, None, b"hello"),
        (b"orders.us", None, b"NATS/1.0\r\nA: 1\r\nA:2\r\n\r\n", b"hi"),
        (b"orders.us", b"_INBOX.y", b"NATS/1.0 503\r\n\r\n", b""),
    ],
    2: [(b"orders.eu", b"_INBOX.x.1", None, b"")],
    12: [(b"a\xff\xfe\x0b.b", None, None, b"MSG x 1 1\r\n")],
}
CONTROL: list[Control] = [
    Info({"server_id": "A", "max_payload": 1048576, "connect_urls": ["10.0.0.1:4222"]}),
    Signal.PONG,
    Signal.PING,
    ServerError('Permissions Violation for Publish to "x"'),
    Signal.OK,
    Info({"ldm": True}),
]

Outcome = tuple[dict[int, list[Message]], list[Control], str | None]


def run(chunks: list[bytes], parser: Parser | None = None) -> Outcome:
    """Feed all chunks and put together what came of them."""
    parser = parser or Parser()
    messages: dict[int, list[Message]] = {}
    control: list[Control] = []
    error: ProtocolError | None = None
    for chunk in chunks:
        parsed = parser.feed(chunk)
        for sid, batch in parsed.messages.items():
            messages.setdefault(sid, []).extend(batch)
        control += parsed.control
        error = parsed.error
    return messages, control, str(error) if error else None


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def slow_twin(data: bytes) -> tuple[dict[int, list[Message]], list[Control]]:
    """The protocol in the plainest words, for valid input only."""
    messages: dict[int, list[Message]] = {}
    control: list[Control] = []
    while data:
        line, _, data = data.partition(b"\r\n")
        words = line.split(b" ")
        if words[0] in (b"MSG", b"HMSG"):
            sizes = [int(word) for word in words[-1:]] if words[0] == b"MSG" else [int(w) for w in words[-2:]]
            names = words[1 : len(words) - len(sizes)]
            body, data = data[: sizes[-1]], data[sizes[-1] + 2 :]
            head = body[: sizes[0]] if len(sizes) == 2 else None
            reply = names[2] if len(names) == 3 else None
            message = (names[0], reply, head, body[len(head or b"") :])
            messages.setdefault(int(names[1]), []).append(message)
        elif line.startswith(b"INFO "):
            control.append(Info(json.loads(line[5:])))
        elif line.startswith(b"-ERR "):
            control.append(ServerError(line[6:-1].decode()))
        else:
            control.append(Signal(line.decode()))
    return messages, control


def test_a_whole_transcript_gives_its_messages_and_control_lines_in_order() -> None:
    assert run([TRANSCRIPT]) == (MESSAGES, CONTROL, None)
    assert slow_twin(TRANSCRIPT) == (MESSAGES, CONTROL)


def test_every_cut_in_two_gives_the_same() -> None:
    for place in range(len(TRANSCRIPT) + 1):
        assert run(cut(TRANSCRIPT, [place])) == (MESSAGES, CONTROL, None)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64])
def test_pieces_of_any_size_give_the_same(size: int) -> None:
    pieces = [TRANSCRIPT[start : start + size] for start in range(0, len(TRANSCRIPT), size)]
    assert run(pieces) == (MESSAGES, CONTROL, None)


words = st.binary(min_size=1, max_size=12).filter(lambda word: not re.search(rb"[ \r\n\t]", word))
sids = st.integers(0, 5) | st.integers(0, 10**18)


@st.composite
def elements(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from(["msg", "hmsg", "ping", "pong", "ok", "err", "info"]))
    if kind in ("msg", "hmsg"):
        reply = draw(st.none() | words)
        head = draw(st.binary(max_size=40)) if kind == "hmsg" else b""
        payload = draw(st.binary(max_size=300))
        names = [draw(words), b"%d" % draw(sids), *([reply] if reply is not None else [])]
        sizes = [b"%d" % len(head)] if kind == "hmsg" else []
        line = b" ".join([kind.upper().encode(), *names, *sizes, b"%d" % len(head + payload)])
        return line + b"\r\n" + head + payload + b"\r\n"
    if kind == "err":
        return b"-ERR '" + draw(st.sampled_from([b"Slow Consumer", b"Stale Connection"])) + b"'\r\n"
    if kind == "info":
        return b"INFO " + json.dumps({"max_payload": draw(st.integers())}).encode() + b"\r\n"
    return {"ping": b"PING\r\n", "pong": b"PONG\r\n", "ok": b"+OK\r\n"}[kind]


@given(st.lists(elements(), max_size=12).map(b"".join), st.lists(st.integers(0, 10**6), max_size=8))
def test_any_valid_input_cut_anywhere_gives_what_the_slow_twin_says(data: bytes, places: list[int]) -> None:
    assert run(cut(data, places)) == (*slow_twin(data), None)


@given(
    st.lists(elements(), max_size=4).map(b"".join),
    st.binary(max_size=60),
    st.lists(elements(), max_size=2).map(b"".join),
    st.lists(st.integers(0, 10**6), max_size=6),
)
def test_garbage_gives_the_same_outcome_wherever_it_is_cut(
    before: bytes, garbage: bytes, after: bytes, places: list[int]
) -> None:
    data = before + garbage + after
    whole = run([data], Parser(1000, 100))
    assert run(cut(data, places), Parser(1000, 100)) == whole
    assert run([data[place : place + 1] for place in range(len(data))], Parser(1000, 100)) == whole


@pytest.mark.parametrize(
    "bad",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"msg a 1 1\r\nx\r\n",
        b"MSG a 1\r\n",
        b"MSG a 1 r 1 1\r\nx\r\n",
        b"MSG a 1  1\r\nx\r\n",
        b"MSG a one 1\r\nx\r\n",
        b"MSG a -1 1\r\nx\r\n",
        b"MSG a 1 +1\r\nx\r\n",
        b"MSG a 1 1_0\r\n0123456789\r\n",
        b"MSG a 1 99999999999999999999\r\n",
        b"MSG a 1 1\r\nxyz",
        b"HMSG a 1 1\r\nx\r\n",
        b"HMSG a 1  1 1\r\nx\r\n",
        b"HMSG a 1 5 3\r\nabc\r\n",
        b"HMSG a 1 x 3\r\nabc\r\n",
        b"INFO {\r\n",
        b"INFO []\r\n",
        b"INFO " + b"[" * 50_000 + b"\r\n",
        b"\r\n",
        b"PINGPING\r\n",
    ],
)
def test_nonsense_is_a_typed_error_after_what_was_good(bad: bytes) -> None:
    parsed = Parser().feed(b"MSG a 1 1\r\nx\r\n" + bad + b"MSG b 1 1\r\ny\r\n")

    assert parsed.messages == {1: [(b"a", None, None, b"x")]}
    assert isinstance(parsed.error, ProtocolError)
    assert 0 < len(parsed.error.offending) <= 64 or bad == b"\r\n"


def test_a_failed_parser_stays_failed() -> None:
    parser = Parser()
    error = parser.feed(b"nonsense\r\n").error

    assert parser.feed(b"MSG a 1 1\r\nx\r\n") == ({}, [], error)


def test_a_message_over_the_limit_is_refused_before_its_payload_comes() -> None:
    assert Parser(payload_bytes_max=10).feed(b"MSG a 1 10\r\n").error is None

    error = Parser(payload_bytes_max=10).feed(b"MSG a 1 11\r\n").error

    assert error is not None
    assert "limit of 10" in str(error)


def test_a_line_of_the_greatest_length_passes_and_one_byte_more_does_not() -> None:
    line = b"MSG " + b"s" * 91 + b" 1 0"
    assert len(line) == 99
    assert run([line[:50], line[50:] + b"\r", b"\n\r\n"], Parser(10, 99))[2] is None
    assert run([line + b"\r\n\r\n"], Parser(10, 98))[2] is not None
    assert run([b"x" * 100], Parser(10, 98))[2] is not None


def test_what_is_kept_of_incomplete_input_is_bounded() -> None:
    parser = Parser(payload_bytes_max=1000, control_line_bytes_max=100)
    for _ in range(5000):
        parsed = parser.feed(b"x")
        if parsed.error:
            break
        assert parser.pending_bytes <= 102
    assert parser.feed(b"").error is not None

    parser = Parser(payload_bytes_max=1000, control_line_bytes_max=100)
    parser.feed(b"MSG a 1 1000\r\n")
    for _ in range(1000):
        assert parser.feed(b"y").messages == {}
        assert parser.pending_bytes <= 1100
    assert parser.feed(b"\r\n").messages == {1: [(b"a", None, None, b"y" * 1000)]}
    assert parser.pending_bytes == 0


def test_more_different_sizes_than_are_remembered_do_no_harm() -> None:
    data = b"".join(b"MSG a 1 %d\r\n%b\r\n" % (size, b"x" * size) for size in range(5000))
    messages, _, error = run([data])
    assert error is None
    assert [len(message[3]) for message in messages[1]] == list(range(5000))


def test_a_large_payload_in_small_chunks_takes_linear_time() -> None:
    payload = b"z" * 8_000_000
    data = b"MSG a 1 %d\r\n%b\r\n" % (len(payload), payload)
    parser = Parser()
    parsed = parser.feed(b"")
    for start in range(0, len(data), 1000):
        parsed = parser.feed(data[start : start + 1000])
    assert parsed.messages == {1: [(b"a", None, None, payload)]}

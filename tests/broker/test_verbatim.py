"""The two messages that pass protobuf by, as the broker takes and gives them, against protobuf itself."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import InvalidRequest
from tidelog.large_field import SMALL_MESSAGE_BYTES
from tidelog_broker.api.calls import REQUEST_BYTES_MAX
from tidelog_broker.api.verbatim import VerbatimAnswer, parse_produce
from tidelog_proto import log_pb2

SIZES = st.sampled_from([0, 1, 500, SMALL_MESSAGE_BYTES - 1, SMALL_MESSAGE_BYTES, 3 * SMALL_MESSAGE_BYTES])


def request(size: int, **fields: Any) -> log_pb2.ProduceRequest:
    return log_pb2.ProduceRequest(stream_id=b"s" * 16, batch=bytes(range(256)) * (size // 256 + 1), **fields)


@given(SIZES, st.integers(0, 2**63), st.integers(0, 2**31), st.integers(0, 2**40))
def test_a_request_reads_as_protobuf_reads_it(
    size: int, request_id: int, partition: int, expected: int
) -> None:
    message = request(size, request_id=request_id, partition=partition, expected_offset=expected)

    found = parse_produce(message.SerializeToString())

    assert bytes(found.batch) == message.batch
    for facts in (found.facts, message):
        facts.ClearField("batch")
    assert found.facts == message


def test_fields_may_stand_behind_the_batch_and_of_two_batches_the_last_counts() -> None:
    first, second = request(8000, partition=1), request(9000, request_id=7)

    found = parse_produce(first.SerializeToString() + second.SerializeToString())

    assert bytes(found.batch) == second.batch
    assert (found.facts.partition, found.facts.request_id) == (1, 7)


def test_a_large_batch_is_not_copied() -> None:
    assert isinstance(parse_produce(request(8000).SerializeToString()).batch, memoryview)


@pytest.mark.parametrize("size", [10, 1 << 20, (5 << 20) + 3])
def test_an_answer_that_a_thread_serializes_has_the_same_bytes_once(size: int) -> None:
    facts = log_pb2.FetchResponse(index=3, high_watermark=9)
    answer = VerbatimAnswer(facts, [b"header", memoryview(bytes(size))])

    encoded = answer.encoded()

    assert encoded.SerializeToString() == answer.SerializeToString()
    assert encoded.SerializeToString() == b""


@pytest.mark.parametrize("cut", [1, 5000, 8000])
def test_a_request_that_is_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(DecodeError):
        parse_produce(request(8000).SerializeToString()[:-cut])


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(0, 2**63))
def test_an_answer_is_what_protobuf_would_have_written(parts: list[bytes], high: int) -> None:
    facts = log_pb2.FetchResponse(index=3, high_watermark=high, next=log_pb2.Position(offset=high))

    found = log_pb2.FetchResponse.FromString(VerbatimAnswer(facts, parts).SerializeToString())

    facts.batches = b"".join(parts)
    assert found == facts


@pytest.mark.parametrize(
    "data",
    [
        b"\x78\1" * (REQUEST_BYTES_MAX // 2 + 1),
        request(REQUEST_BYTES_MAX).SerializeToString() * 2,
        b"\x78\1" * 40_000 + request(REQUEST_BYTES_MAX).SerializeToString(),
    ],
    ids=["no batch", "two batches", "much beside a batch"],
)
def test_what_would_take_protobuf_long_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="ProduceRequest"):
        parse_produce(data)

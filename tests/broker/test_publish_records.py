"""Publish requests that take long to parse are parsed in slices, or refused before anything is parsed."""

from __future__ import annotations

import pytest

from support.api import record
from tidelog.errors import InvalidRequest
from tidelog.large_field import cut, fields
from tidelog_broker.api.protobuf_writing import bytes_tag, number_tag, varint
from tidelog_broker.api.publish_records import (
    LARGE_RECORD_FIELDS_MAX,
    PARSED_BYTES_MAX,
    PARSED_HERE_BYTES_MAX,
    PUBLISH_RECORDS_MAX,
    LargePublish,
    PublishMessage,
    parse_publish,
)
from tidelog_proto import common_pb2, log_pb2

RECORDS = log_pb2.PublishRequest.RECORDS_FIELD_NUMBER


def request_of(*records: log_pb2.PublishRecord) -> log_pb2.PublishRequest:
    return log_pb2.PublishRequest(name="s", records=records, timeout_ms=7)


def nested(content: bytes, *numbers: int) -> bytes:
    """`content` as a field of a field of … a message."""
    for number in reversed(numbers):
        content = bytes_tag(number) + varint(len(content)) + content
    return content


def test_a_large_request_parsed_in_slices_is_the_one_that_was_sent() -> None:
    headers = [(f"h{number}", b"x" * 10) for number in range(1024)]
    request = request_of(
        record(bytes(3 * PARSED_BYTES_MAX)),
        *(
            record(b"v" * 1000, key=b"k", message_id=str(number), headers=headers[:3])
            for number in range(900)
        ),
        record(bytes(PARSED_BYTES_MAX), headers=headers),
    )
    data = request.SerializeToString()
    message = parse_publish(data)
    assert isinstance(message, LargePublish)
    assert message.parsed() == PublishMessage(request, len(data))


def test_a_small_request_is_parsed_at_once() -> None:
    message = parse_publish(request_of(record(b"x")).SerializeToString())
    assert isinstance(message, PublishMessage)


@pytest.mark.parametrize(
    "data",
    [
        nested(b"", RECORDS) * (PARSED_HERE_BYTES_MAX + PUBLISH_RECORDS_MAX),
        (number_tag(15) + b"\1") * PARSED_HERE_BYTES_MAX,
        nested(nested(b"", 3) * PARSED_BYTES_MAX, RECORDS, 1),
        nested(nested(b"", 1) * PARSED_BYTES_MAX, RECORDS, 1, 3),
        nested((number_tag(15) + b"\1") * PARSED_BYTES_MAX, RECORDS),
    ],
    ids=["records", "other fields", "headers", "names of a header", "unknown fields"],
)
def test_a_request_of_very_many_parts_is_refused_by_their_number(data: bytes) -> None:
    message = parse_publish(data)
    assert isinstance(message, LargePublish)
    with pytest.raises(InvalidRequest, match=r"more than|too many fields"):
        message.parsed()


def test_a_large_record_may_have_as_many_headers_as_any() -> None:
    headers = [("n", b"v")] * 1024
    assert 3 * len(headers) < LARGE_RECORD_FIELDS_MAX
    parsed = LargePublish(request_of(record(bytes(PARSED_BYTES_MAX), headers=headers)).SerializeToString())
    assert len(parsed.parsed().request.records[0].record.headers) == len(headers)


@pytest.mark.parametrize("broken", [b"\xff" * 100_000, nested(bytes(100_000), RECORDS)[:-1], b"\x2a\x05a"])
def test_bytes_that_are_no_request_are_refused(broken: bytes) -> None:
    with pytest.raises(InvalidRequest, match="not a valid PublishRequest"):
        LargePublish(broken).parsed()


def test_fields_lie_where_protobuf_put_them() -> None:
    message = common_pb2.Record(key=b"key", value=bytes(300), timestamp_us=-1)
    data = message.SerializeToString()
    found = {field.number: data[field.start : field.end] for field in fields(data, 0, len(data))}
    assert found == {1: b"key", 2: bytes(300), 5: varint(-1)}


def test_a_field_behind_very_many_others_is_left_to_protobuf() -> None:
    data = (number_tag(15) + b"\1") * 1000 + nested(b"batch", 8)
    assert cut(data, 8) is None

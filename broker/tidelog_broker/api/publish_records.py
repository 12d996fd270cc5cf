"""Reads the records of a Publish request: the partition of each, and what is stored of it.

Pure functions of the request: of a large one they run in a thread (`limits.checks`). Protobuf keeps the
interpreter's lock while it parses, so a thread has it parse a slice at a time, and looks first whether a
record that is a large slice alone is made of few parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from tidelog.errors import InvalidRequest, InvalidTimestamp
from tidelog.large_field import fields
from tidelog.records.checksum import crc32c
from tidelog.records.limits import HEADERS_PER_RECORD_MAX
from tidelog_broker.core.metadata.image import StreamImage
from tidelog_broker.storage.guard.replay import MESSAGE_ID_HEADER
from tidelog_broker.writing.record_columns import MESSAGE_ID_BYTES_MAX, RecordColumns
from tidelog_proto import common_pb2, log_pb2

WORK_PER_BYTE = 32
"""A byte of single records costs as much as so many bytes of a batch, whose records are not read singly."""

WORK_PER_RECORD = 2048
"""So does a single record, however small."""

PUBLISH_RECORDS_MAX = 10_000
"""Records of one Publish."""

PARSED_HERE_BYTES_MAX = 64 << 10
"""A larger Publish is parsed in a thread."""

PARSED_BYTES_MAX = 256 << 10
"""Parsed at a time, about, which takes some milliseconds at worst."""

LARGE_RECORD_FIELDS_MAX = 8 * HEADERS_PER_RECORD_MAX
"""Of a record that is larger than that: more than one with as many headers as a record may have needs."""

OTHER_FIELDS_MAX = 64
"""Of a large Publish, beside its records."""

_RECORDS = log_pb2.PublishRequest.RECORDS_FIELD_NUMBER
_MESSAGES: Mapping[int, Any] = {
    log_pb2.PublishRecord.RECORD_FIELD_NUMBER: {common_pb2.Record.HEADERS_FIELD_NUMBER: {}}
}
"""Which fields of a PublishRecord are messages, and which of theirs."""

Shares = dict[int, tuple[list[int], RecordColumns]]
"""Partition → indexes of its records in the request, and these records."""


class PublishMessage(NamedTuple):
    """A PublishRequest, and how large it came."""

    request: log_pb2.PublishRequest
    bytes: int


class LargePublish(NamedTuple):
    """A PublishRequest that a thread has to parse."""

    data: bytes

    def parsed(self) -> PublishMessage:
        """Raises `InvalidRequest`."""
        request = log_pb2.PublishRequest()
        try:
            for piece in _slices(self.data):
                request.MergeFromString(piece)
        except (DecodeError, ValueError):
            raise InvalidRequest(
                f"the {len(self.data)} bytes of the request are not a valid PublishRequest"
            ) from None
        return PublishMessage(request, len(self.data))


def parse_publish(data: bytes) -> PublishMessage | LargePublish:
    """Raises protobuf's DecodeError."""
    if len(data) > PARSED_HERE_BYTES_MAX:
        return LargePublish(data)
    return PublishMessage(log_pb2.PublishRequest.FromString(data), len(data))


def _slices(data: bytes) -> Iterator[bytes]:
    """The message in pieces of whole fields. Raises `InvalidRequest`, or ValueError if it is none."""
    records = others = begin = 0
    for field in fields(data, 0, len(data)):
        if field.number == _RECORDS:
            records += 1
        else:
            others += 1
        if records > PUBLISH_RECORDS_MAX:
            raise InvalidRequest(f"a Publish has more than {PUBLISH_RECORDS_MAX} records; split it")
        if others > OTHER_FIELDS_MAX:
            raise InvalidRequest("a large Publish has too many fields beside its records")
        if field.end - field.start > PARSED_BYTES_MAX:
            _check_few_fields(data, field.start, field.end)
        if field.end - begin > PARSED_BYTES_MAX:
            yield data[begin : field.end]
            begin = field.end
    yield data[begin:]


def _check_few_fields(data: bytes, start: int, end: int) -> None:
    count, messages = 0, [(start, end, _MESSAGES)]
    while messages:
        start, end, inner = messages.pop()
        for field in fields(data, start, end):
            count += 1
            if count > LARGE_RECORD_FIELDS_MAX:
                raise InvalidRequest(
                    f"a record of more than {PARSED_BYTES_MAX} bytes has more than "
                    f"{LARGE_RECORD_FIELDS_MAX} fields"
                )
            if field.number in inner:
                messages.append((field.start, field.end, inner[field.number]))


def shares_of(
    request: log_pb2.PublishRequest, stream: StreamImage, sticky: int, now_us: int, wall_us: int
) -> Shares:
    """The records of each partition; those without a key are for partition `sticky`.

    `now_us` is the time of those that have none. What clients say is compared with `wall_us`, this broker's
    own clock: the cluster's may hold `now_us` back (R18). Raises `InvalidTimestamp` and `InvalidRequest`.
    """
    latest_us = wall_us + stream.config.timestamp_ahead_ms_max * 1000
    dedupe = stream.config.dedupe_window_ms > 0
    found: Shares = {}
    for number, indexes in _partitioned(request, len(stream.partitions), sticky).items():
        records = RecordColumns()
        for index in indexes:
            _add(records, request.records[index], now_us, latest_us, dedupe)
        found[number] = indexes, records
    return found


def _partitioned(request: log_pb2.PublishRequest, count: int, sticky: int) -> dict[int, list[int]]:
    """Partition → indexes of its records. key → CRC-32C(key) mod n; without a key one for the request."""
    if request.HasField("partition"):
        return {request.partition: list(range(len(request.records)))}
    found: dict[int, list[int]] = {}
    for index, entry in enumerate(request.records):
        record = entry.record
        number = crc32c(record.key) % count if record.HasField("key") else sticky
        found.setdefault(number, []).append(index)
    return found


def _add(
    records: RecordColumns, entry: log_pb2.PublishRecord, now_us: int, latest_us: int, dedupe: bool
) -> None:
    """Appends a plain record; its message id stands among its headers, where NATS clients put it."""
    record = entry.record
    timestamp = record.timestamp_us if record.HasField("timestamp_us") else now_us
    if timestamp > latest_us:
        raise InvalidTimestamp(
            f"a record's timestamp is {(timestamp - now_us) / 1e6:.3f} s ahead of the broker's clock "
            f"(timestamp_ahead_ms_max)"
        )
    if len(record.headers) > HEADERS_PER_RECORD_MAX:
        raise InvalidRequest(
            f"a record has {len(record.headers)} headers; give at most {HEADERS_PER_RECORD_MAX}"
        )
    headers = [(h.name, h.value if h.HasField("value") else None) for h in record.headers]
    message_id = entry.message_id if entry.HasField("message_id") else None
    in_headers = next(
        (value for name, value in headers if name == MESSAGE_ID_HEADER and value is not None), None
    )
    if message_id is not None and len(message_id.encode()) > MESSAGE_ID_BYTES_MAX:
        raise InvalidRequest(f"a message_id has more than {MESSAGE_ID_BYTES_MAX} bytes; give a shorter one")
    if message_id is not None and in_headers is not None:
        raise InvalidRequest(
            f"a record has both a message_id and a header {MESSAGE_ID_HEADER}; give only one"
        )
    if message_id is not None:
        headers.append((MESSAGE_ID_HEADER, message_id.encode()))
    elif in_headers is not None and len(in_headers) <= MESSAGE_ID_BYTES_MAX:
        message_id = in_headers.decode("utf-8", "surrogateescape")
    records.add(
        record.value if record.HasField("value") else None,
        timestamp,
        key=record.key if record.HasField("key") else None,
        headers=headers,
        subject=record.subject if record.HasField("subject") else None,
        message_id=message_id if dedupe else None,
    )

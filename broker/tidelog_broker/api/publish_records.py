"""The records of a Publish request: which partition each belongs to, and what is stored of it.

Pure functions of the request: of a large one they run in a thread (`runtime.checks`).
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.errors import InvalidRequest, InvalidTimestamp
from tidelog.records.checksum import crc32c
from tidelog.records.limits import HEADERS_PER_RECORD_MAX
from tidelog_broker.core.metadata.image import StreamImage
from tidelog_broker.runtime.singles import MESSAGE_ID_BYTES_MAX, Singles
from tidelog_broker.storage.reading import MESSAGE_ID_HEADER
from tidelog_proto import log_pb2

WORK_PER_BYTE = 32
"""A byte of single records costs as much as so many of a batch, whose records nobody looks at one by one."""

Shares = dict[int, tuple[list[int], Singles]]
"""Partition → indexes of its records in the request, and these records."""


class PublishMessage(NamedTuple):
    """A PublishRequest, and how large it came."""

    request: log_pb2.PublishRequest
    bytes: int


def parse_publish(data: bytes) -> PublishMessage:
    """Raises protobuf's DecodeError."""
    return PublishMessage(log_pb2.PublishRequest.FromString(data), len(data))


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
        records = Singles()
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


def _add(records: Singles, entry: log_pb2.PublishRecord, now_us: int, latest_us: int, dedupe: bool) -> None:
    """Appends a plain record; its message id stands among its headers, where NATS clients put it."""
    record = entry.record
    timestamp = record.timestamp_us if record.HasField("timestamp_us") else now_us
    if timestamp > latest_us:
        raise InvalidTimestamp(
            f"a record's timestamp is {(timestamp - now_us) / 1e6:.3f} s ahead of the broker's clock "
            f"(timestamp_ahead_ms_max)"
        )
    if len(record.headers) > HEADERS_PER_RECORD_MAX:
        raise InvalidRequest(f"a record has {len(record.headers)} headers, {HEADERS_PER_RECORD_MAX} at most")
    headers = [(h.name, h.value if h.HasField("value") else None) for h in record.headers]
    message_id = entry.message_id if entry.HasField("message_id") else None
    in_headers = next(
        (value for name, value in headers if name == MESSAGE_ID_HEADER and value is not None), None
    )
    if message_id is not None and len(message_id.encode()) > MESSAGE_ID_BYTES_MAX:
        raise InvalidRequest(f"a message_id has more than {MESSAGE_ID_BYTES_MAX} bytes")
    if message_id is not None and in_headers is not None:
        raise InvalidRequest(f"a record has a message_id and a header {MESSAGE_ID_HEADER}; give one of them")
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

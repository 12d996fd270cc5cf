"""Batches to append, and what a log is to hold afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidelog.records import NO_PRODUCER_ID, BatchHeader, Columns, encode_batch, schema_of
from tidelog.records.layout import HAS_MESSAGE_IDS
from tidelog_broker.storage.guard.replay import MESSAGE_ID_HEADER
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.write_batch import AppendItem

STREAM_ID = bytes.fromhex("0f8fad5bd9cb469fa16570867728950e")
T0 = 1_767_225_600_000_000
"""2026-01-01, µs."""


def item(
    values: Sequence[bytes],
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = 0,
    sequence: int = 0,
    ids: Sequence[str | None] = (),
    timestamps: Sequence[int] | None = None,
    expected_offset: int | None = None,
) -> AppendItem:
    """A batch as a client sends it; `ids` are message ids, one for each record or none."""
    times = list(timestamps) if timestamps is not None else [T0] * len(values)
    columns: dict[str, list[object]] = {"value": list(values), "timestamp": list(times)}
    present = Columns.NONE
    if ids:
        present = Columns.HEADERS
        columns["headers"] = [
            [] if name is None else [{"key": MESSAGE_ID_HEADER, "value": name.encode()}] for name in ids
        ]
    schema = schema_of(present)
    data = encode_batch(
        pa.record_batch([pa.array(columns[n], schema.field(n).type) for n in schema.names], schema=schema),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        flags=HAS_MESSAGE_IDS if ids else 0,
    )
    named = tuple((number, name) for number, name in enumerate(ids) if name is not None)
    return AppendItem(data, BatchHeader.unpack(data), expected_offset, named)


def records(count: int, size: int = 20, first: int = 0) -> list[bytes]:
    """Values that differ."""
    return [(b"%d." % (first + number)).ljust(size, b"x") for number in range(count)]


def read_all(log: PartitionLog, start: int | None = None, bytes_max: int = 1 << 20) -> bytes:
    """The bytes of all batches from one offset on, read from the files with each place hint used."""
    offset, place, parts = log.start_offset if start is None else start, None, []
    while (chunk := log.reader.read(offset, bytes_max, log.end_offset, place)) is not None:
        assert chunk.next_offset > offset
        parts += [bytes(part) for part in chunk.parts]
        offset, place = chunk.next_offset, chunk.place
    assert offset == log.end_offset
    return b"".join(parts)


def headers_of(data: bytes) -> list[BatchHeader]:
    found, at = [], 0
    while at < len(data):
        found.append(BatchHeader.unpack(data, at))
        at += found[-1].length
    return found

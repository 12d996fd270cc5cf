"""Record batches as plain messages, one per record, for clients without Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidelog.records import BatchHeader, decode_batch, split_batches
from tidelog_proto import log_pb2

PLAIN_ROWS = 1024
"""Records turned into messages at a time."""


def plain_records(
    data: bytes, begin: int, end: int | None, bytes_max: int
) -> Iterator[list[log_pb2.FetchedRecord]]:
    """The records of whole batches from offset `begin` up to `end`, as messages.

    In lists of about `bytes_max` bytes, at least one record each: a few kilobytes on disk
    may hold many megabytes of records.
    """
    found: list[log_pb2.FetchedRecord] = []
    size = 0
    for header, batch in split_batches(data):
        columns = decode_batch(batch, header)
        deltas = columns.column("offset_delta").to_pylist() if header.compacted else range(columns.num_rows)
        columns = columns.set_column(
            columns.schema.get_field_index("timestamp"),
            "timestamp",
            columns.column("timestamp").cast("int64"),
        )
        for start in range(0, columns.num_rows, PLAIN_ROWS):
            rows = columns.slice(start, PLAIN_ROWS).to_pylist()
            for delta, row in zip(deltas[start : start + PLAIN_ROWS], rows, strict=True):
                offset = header.base_offset + delta
                if offset < begin or (end is not None and offset >= end):
                    continue
                record = _plain_record(header, offset, row)
                found.append(record)
                size += record.ByteSize()
                if size >= bytes_max:
                    yield found
                    found, size = [], 0
    if found:
        yield found


def _plain_record(header: BatchHeader, offset: int, row: Mapping[str, Any]) -> log_pb2.FetchedRecord:
    record = log_pb2.FetchedRecord(
        offset=offset, leader_epoch=header.leader_epoch, append_time_us=header.append_time_us
    )
    message = record.record
    message.timestamp_us = row["timestamp"]
    if row.get("key") is not None:
        message.key = row["key"]
    if row["value"] is not None:
        message.value = row["value"]
    if row.get("subject") is not None:
        message.subject = row["subject"]
    for entry in row.get("headers") or ():
        message.headers.add(name=entry["key"], value=entry["value"])
    return record

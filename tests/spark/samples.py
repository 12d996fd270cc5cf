"""Records to put into streams and to find again in Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tidelog import blocking

BEGIN = datetime(2026, 3, 1, 22, 30, tzinfo=UTC)


def send(
    log: blocking.Client, stream: str, count: int, *, partition: int = 0, batch_records: int = 500
) -> None:
    """`count` records `value-<n>` to one partition, in batches."""
    with log.producer(stream) as producer:
        for first in range(0, count, batch_records):
            numbers = range(first, min(first + batch_records, count))
            values = pa.array([f"value-{number}".encode() for number in numbers], pa.binary())
            producer.send_batch(pa.record_batch({"value": values}), partition=partition)


def odd_records() -> list[dict[str, Any]]:
    """Everything that a record can have or lack."""
    return [
        {"value": b"plain"},
        {"value": None, "key": b"tombstone"},
        {"value": b"", "key": b"", "subject": "orders.eu.1"},
        {"value": b"\x00\xff", "headers": [("trace", b"\x01"), ("trace", None), ("empty", b"")]},
        {"value": b"x" * 100_000, "key": b"big", "subject": "größe.ü", "headers": [("one", b"1")]},
    ]


def timed(count: int, *, minutes_apart: int) -> pa.RecordBatch:
    """Records with timestamps of their own."""
    times = [BEGIN + timedelta(minutes=minutes_apart * number) for number in range(count)]
    return pa.record_batch(
        {
            "value": pa.array([str(number).encode() for number in range(count)], pa.binary()),
            "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


def offsets(rows: DataFrame, stream: str, partition: int = 0) -> list[int]:
    """The offsets found of one partition, sorted."""
    found = rows.where((rows.stream == stream) & (rows.partition == partition)).select("offset").collect()
    return sorted(row.offset for row in found)

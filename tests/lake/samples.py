"""Batches of records, some of them bad, and the tasks that stage them as Spark would."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from tidelog_spark.lake.batches import Order, stage
from tidelog_spark.lake.folders import Partitioning, Time
from tidelog_spark.payload import BAD_RECORD

QUERY = "0123456789abcdef"
BY = Partitioning(Time.HOUR, ("region",))
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("region", pa.string()),
        pa.field(BAD_RECORD, pa.struct({"value": pa.binary(), "reason": pa.string()})),
    ]
)
BATCH_ROWS = 12
BAD_EVERY = 4


def rows_of(batch: int) -> pa.RecordBatch:
    """Rows of two hours and two regions; each fourth record is bad."""
    begin = datetime(2026, 3, 1, 22, 30, tzinfo=UTC)
    numbers = range(batch * BATCH_ROWS, (batch + 1) * BATCH_ROWS)
    return pa.RecordBatch.from_pylist(
        [
            {
                "offset": number,
                "timestamp": begin + timedelta(minutes=5 * (number % BATCH_ROWS)),
                "region": ("a/b=c", None)[number % 3 // 2],
                BAD_RECORD: {"value": b"{", "reason": "no object"} if number % BAD_EVERY == 0 else None,
            }
            for number in numbers
        ],
        schema=SCHEMA,
    )


def runner(batch: int) -> Callable[[Order], Iterable[Mapping[str, Any]]]:
    """Two tasks, as Spark would run them."""

    def run(order: Order) -> Iterable[Mapping[str, Any]]:
        rows = rows_of(batch)
        for piece in (rows.slice(0, 5), rows.slice(5)):
            for described in stage([piece], order):
                yield from described.to_pylist()

    return run


def expected(batches: int, *, bad: bool) -> list[int]:
    return [number for number in range(batches * BATCH_ROWS) if (number % BAD_EVERY == 0) is bad]

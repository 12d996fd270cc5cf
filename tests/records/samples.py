"""Small batches to test with: every set of columns, some nulls, some repeats."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidelog.records import Columns, Compression, encode_batch, schema_of

COLUMN_SETS = [Columns(bits << 2) for bits in range(8)]
COMPRESSIONS = list(Compression)
STREAM_ID = bytes.fromhex("0f8fad5bd9cb469fa16570867728950e")
T0 = 1_767_225_600_000_000
"""2026-01-01, µs."""

RECORDS: list[dict[str, Any]] = [
    {
        "key": b"k1",
        "value": b"first",
        "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        "subject": "tide.north",
        "timestamp": T0,
    },
    {"key": None, "value": None, "headers": [], "subject": None, "timestamp": T0 - 5},
    {
        "key": b"",
        "value": b"\x00\xff" * 9,
        "headers": [{"key": "ü", "value": b""}],
        "subject": "größe",
        "timestamp": T0 + 7,
    },
]


def columns_from(records: list[dict[str, Any]], present: Columns) -> pa.RecordBatch:
    schema = schema_of(present)
    return pa.record_batch(
        [pa.array([record[name] for record in records], schema.field(name).type) for name in schema.names],
        schema=schema,
    )


def only(records: list[dict[str, Any]], present: Columns) -> list[dict[str, Any]]:
    """The records without the columns that are not `present`."""
    names = schema_of(present).names
    return [{name: record[name] for name in names} for record in records]


def sample_batch(
    present: Columns = Columns.NONE,
    compression: Compression = Compression.NONE,
    records: list[dict[str, Any]] = RECORDS,
    **fields: Any,
) -> bytes:
    return encode_batch(columns_from(records, present), compression=compression, **fields)

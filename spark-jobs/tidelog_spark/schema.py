"""The columns of the rows in Spark, and their Arrow types.

They are those of the Kafka connector (key, value, partition, offset, timestamp, headers), with `stream`
instead of its topic, and additionally subject and leader epoch. A schema of the user
(`spark.read.schema(...)`) may leave columns out or change their order; columns that are left out are not
sent to the JVM. With the option `columns` brokers do not send them either (`pruning`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.errors import InvalidRequest
from tidelog_spark.payload import BAD_RECORD, Payload

_HEADER = StructType([StructField("key", StringType(), nullable=False), StructField("value", BinaryType())])

_HEADERS: Final = StructField("headers", ArrayType(_HEADER, containsNull=False), nullable=False)

_COLUMNS: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("stream", StringType(), nullable=False),
    StructField("partition", IntegerType(), nullable=False),
    StructField("offset", LongType(), nullable=False),
    StructField("timestamp", TimestampType(), nullable=False),
    StructField("subject", StringType()),
    # Epochs are unsigned 32-bit integers, too large for an int.
    StructField("leader_epoch", LongType(), nullable=False),
)

_BAD_RECORD: Final = StructField(
    BAD_RECORD, StructType([StructField("value", BinaryType()), StructField("reason", StringType())])
)


def row_schema(*, headers: bool, columns: Sequence[str] = (), payload: Payload | None = None) -> StructType:
    """The columns of a read without a schema of the user; with `columns` these, in this order."""
    known = _known(payload)
    if columns:
        return StructType([known[name] for name in columns])
    return StructType([field for name, field in known.items() if headers or name != _HEADERS.name])


def check_schema(wanted: StructType, columns: Sequence[str] = (), payload: Payload | None = None) -> None:
    """Raises `InvalidRequest` unless every column of `wanted` exists and has its type.

    `columns`: the value of the option with this name; empty: not given. A schema must have the column for
    bad records if the options ask for it: without it nothing would tell a bad record from a tombstone.
    """
    known = _known(payload)
    if not wanted.fields:
        raise InvalidRequest(f"the schema has no columns; give at least one of {', '.join(known)}")
    for field in wanted.fields:
        ours = known.get(field.name)
        if ours is None:
            raise InvalidRequest(f"a record has no column {field.name!r}; it has {', '.join(known)}")
        if columns and field.name not in columns:
            raise InvalidRequest(
                f"the schema has the column {field.name}, which the option columns leaves out "
                f"({', '.join(columns)}); add it there, or remove it from the schema"
            )
        if not _same_type(field.dataType, ours.dataType):
            have, want = ours.dataType.simpleString(), field.dataType.simpleString()
            raise InvalidRequest(f"the column {field.name} is {have}, not {want}; cast it after reading")
    if BAD_RECORD in known and BAD_RECORD not in wanted.names:
        raise InvalidRequest(
            f"badRecords is 'column', but the schema has no column {BAD_RECORD}; add {BAD_RECORD} "
            f"{_BAD_RECORD.dataType.simpleString()}, or set badRecords to 'fail' or 'drop'"
        )


def _known(payload: Payload | None) -> dict[str, StructField]:
    """Every column that rows may have, in their order."""
    known = {field.name: field for field in _COLUMNS}
    if payload is not None:
        known["value"] = StructField("value", payload.schema)
        if payload.has_column:
            known[BAD_RECORD] = _BAD_RECORD
    return known | {_HEADERS.name: _HEADERS}


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that batches must have exactly, including nullability, for Spark to accept them."""
    return to_arrow_schema(schema, timezone="UTC")


def _same_type(one: DataType, other: DataType) -> bool:
    # Without nullability: a DDL string cannot express it, and a nullable column takes every value.
    return one.simpleString() == other.simpleString()

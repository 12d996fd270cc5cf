"""The columns of the rows in Spark, and their Arrow types.

They are those of the Kafka connector (key, value, partition, offset, timestamp, headers), with `stream`
instead of its topic, and additionally subject and leader epoch. A schema of the user
(`spark.read.schema(...)`) may leave columns out or change their order. Columns that are left out are not
sent to the JVM; PySpark offers a Python data source no other way to prune columns.
"""

from __future__ import annotations

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
from tidelog_spark.payload import BAD_RECORD, BadRecords, Payload

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


def row_schema(*, headers: bool, payload: Payload | None = None) -> StructType:
    """The columns of a read without a schema of the user."""
    columns = list(_columns(payload).values())
    return StructType([*columns, _HEADERS] if headers else columns)


def check_schema(wanted: StructType, payload: Payload | None = None) -> None:
    """Raises `InvalidRequest` unless every column of `wanted` exists and has its type."""
    known = {**_columns(payload), _HEADERS.name: _HEADERS}
    if not wanted.fields:
        raise InvalidRequest(f"the schema has no columns; give at least one of {', '.join(known)}")
    for field in wanted.fields:
        ours = known.get(field.name)
        if ours is None:
            raise InvalidRequest(f"a record has no column {field.name!r}; it has {', '.join(known)}")
        if not _same_type(field.dataType, ours.dataType):
            have, want = ours.dataType.simpleString(), field.dataType.simpleString()
            raise InvalidRequest(f"the column {field.name} is {have}, not {want}; cast it after reading")


def _columns(payload: Payload | None) -> dict[str, StructField]:
    known = {field.name: field for field in _COLUMNS}
    if payload is not None:
        known["value"] = StructField("value", payload.schema)
        if payload.bad_records is BadRecords.COLUMN:
            known[BAD_RECORD] = _BAD_RECORD
    return known


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that batches must have exactly, including nullability, for Spark to accept them."""
    return to_arrow_schema(schema, timezone="UTC")


def _same_type(one: DataType, other: DataType) -> bool:
    # Without nullability: a DDL string cannot express it, and a nullable column takes every value.
    return one.simpleString() == other.simpleString()

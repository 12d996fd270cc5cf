"""The rows that Spark sees, and the Arrow type of each column.

Like the Kafka connector's (key, value, partition, offset, timestamp, headers) with
`stream` for its topic, and what a Tidelog record has beyond: subject and leader epoch. A
schema given by the user (`spark.read.schema(...)`) may leave columns out or order them
otherwise; columns left out are not sent to the JVM, which is the only way to prune that
PySpark offers a Python data source.
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
    # Brokers count epochs in 32 bits without a sign, one more than an int has.
    StructField("leader_epoch", LongType(), nullable=False),
)


def row_schema(*, headers: bool) -> StructType:
    """The columns of a read whose schema the user did not give."""
    return StructType([*_COLUMNS, _HEADERS] if headers else list(_COLUMNS))


def check_schema(wanted: StructType) -> None:
    """Raises `InvalidRequest` unless every column of `wanted` is one of ours, with its type."""
    known = {field.name: field for field in (*_COLUMNS, _HEADERS)}
    if not wanted.fields:
        raise InvalidRequest(f"the schema has no columns; a record has {', '.join(known)}")
    for field in wanted.fields:
        ours = known.get(field.name)
        if ours is None:
            raise InvalidRequest(f"a record has no column {field.name!r}; it has {', '.join(known)}")
        if not _same_type(field.dataType, ours.dataType):
            have, want = ours.dataType.simpleString(), field.dataType.simpleString()
            raise InvalidRequest(f"the column {field.name} is {have}, not {want}; cast it after reading")


def arrow_schema(schema: StructType) -> pa.Schema:
    """What batches must look like to be taken for `schema`: exactly, nullability and all."""
    return to_arrow_schema(schema, timezone="UTC")


def _same_type(one: DataType, other: DataType) -> bool:
    # Without nullability: a DDL string cannot say it, and everything fits in a nullable column.
    return one.simpleString() == other.simpleString()

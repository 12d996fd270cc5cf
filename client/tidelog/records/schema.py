"""Which columns a batch holds: a bit each, one Arrow schema for each combination.

The order is fixed: key, value, headers, subject, timestamp, offset_delta. Value and
timestamp are always there; columns whose bit is off are left out.
"""

from __future__ import annotations

import struct
from enum import IntFlag
from functools import cache, lru_cache

import pyarrow as pa
import pyarrow.compute as pc


class Columns(IntFlag):
    """The optional columns, at their places in the header's attributes."""

    NONE = 0
    KEY = 1 << 2
    HEADERS = 1 << 3
    SUBJECT = 1 << 4


ALL_COLUMNS = Columns.KEY | Columns.HEADERS | Columns.SUBJECT

TIMESTAMP = pa.timestamp("us", tz="UTC")

HEADER_STRUCT = pa.struct([pa.field("key", pa.utf8(), nullable=False), pa.field("value", pa.binary())])

HEADERS = pa.list_(pa.field("item", HEADER_STRUCT, nullable=False))

_KEY = pa.field("key", pa.binary())
_VALUE = pa.field("value", pa.binary())
_HEADERS = pa.field("headers", HEADERS, nullable=False)
_SUBJECT = pa.field("subject", pa.utf8())
_TIMESTAMP = pa.field("timestamp", TIMESTAMP, nullable=False)
_OFFSET_DELTA = pa.field("offset_delta", pa.uint32(), nullable=False)


_FIELDS = {field.name: field for field in (_KEY, _VALUE, _HEADERS, _SUBJECT, _TIMESTAMP)}

COLUMNS_ORDER = tuple(_FIELDS)
"""The columns that a client can give, in their order."""


def field_of(name: str) -> pa.Field:
    """The Arrow field of one of `COLUMNS_ORDER`."""
    return _FIELDS[name]


@cache
def schema_of(columns: Columns, *, compacted: bool = False) -> pa.Schema:
    """The Arrow schema of a batch body with these columns."""
    fields = []
    if columns & Columns.KEY:
        fields.append(_KEY)
    fields.append(_VALUE)
    if columns & Columns.HEADERS:
        fields.append(_HEADERS)
    if columns & Columns.SUBJECT:
        fields.append(_SUBJECT)
    fields.append(_TIMESTAMP)
    if compacted:
        fields.append(_OFFSET_DELTA)
    return pa.schema(fields)


def columns_of(schema: pa.Schema) -> Columns:
    """The column bits that a schema stands for."""
    return _columns_of_names(tuple(schema.names))


@lru_cache(maxsize=256)
def _columns_of_names(names: tuple[str, ...]) -> Columns:
    columns = Columns.NONE
    for bit, name in ((Columns.KEY, "key"), (Columns.HEADERS, "headers"), (Columns.SUBJECT, "subject")):
        if name in names:
            columns |= bit
    return columns


_SCHEMAS = tuple(
    schema_of(Columns(bits << 2 & ALL_COLUMNS), compacted=bool(bits & 0b1000)) for bits in range(16)
)


def schema_of_attributes(attributes: int) -> pa.Schema:
    """The Arrow schema of a batch with these header attributes (bits 2–5 decide)."""
    return _SCHEMAS[attributes >> 2 & 0b1111]


_SPAN_BY_HAND_MAX = 48
"""Up to here a few Python objects cost less than a call of Arrow's `min_max`. Records."""

_min_max = pc.get_function("min_max")


def timestamp_span_us(timestamps: pa.Array) -> tuple[int, int]:
    """The smallest and largest of some timestamps: at least one, none of them null."""
    count = len(timestamps)
    if count <= _SPAN_BY_HAND_MAX:
        values = struct.unpack_from(f"<{count}q", timestamps.buffers()[1], timestamps.offset * 8)
        return min(values), max(values)
    span = _min_max.call([timestamps])
    return span["min"].value, span["max"].value

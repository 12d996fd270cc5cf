"""Decodes Avro values: each value is one datum of the writer's schema, without a header.

`avro_schema` says how a datum becomes a row.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa

from tidelog_spark.payload.avro_schema import AvroSchema, parse_avro
from tidelog_spark.payload.decoded import BadValue, Decoded, from_records, joined, reason
from tidelog_spark.payload.json_records import width
from tidelog_spark.payload.limits import CELL_BYTES, DECODED_BYTES_MAX, slices


@dataclass(frozen=True, slots=True)
class AvroDecoder:
    """Decodes data of the Avro schema in `text` to the fields of `type`."""

    type: pa.StructType
    text: str
    """The JSON of the schema. Each worker parses it once: closures cannot be pickled."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        schema = parse_avro(self.text)
        return joined([self._slice(piece, schema) for piece in slices(values)], self.type)

    def _slice(self, values: pa.BinaryArray, schema: AvroSchema) -> Decoded:
        records: list[Any] = []
        reasons: list[str | None] = []
        for value in values.to_pylist():
            record = why = None
            try:
                record = None if value is None else _read(value, schema, self.type)
            except BadValue as error:
                why = reason(error)
            records.append(record)
            reasons.append(why)
        try:
            return from_records(records, reasons, self.type)
        except (pa.ArrowException, ValueError, OverflowError, TypeError):
            return self._alone(records, reasons)

    def _alone(self, records: list[Any], reasons: list[str | None]) -> Decoded:
        """The rows, if Arrow refuses some record: a number may be too large for its column."""
        for place, record in enumerate(records):
            try:
                pa.array([record], self.type)
            except (pa.ArrowException, ValueError, OverflowError, TypeError) as error:
                records[place], reasons[place] = None, reason(error)
        return from_records(records, reasons, self.type)


def _read(value: bytes, schema: AvroSchema, kind: pa.StructType) -> Any:
    """One record for an Arrow array of `kind`; raises `BadValue`."""
    source = io.BytesIO(value)
    try:
        record = fastavro.schemaless_reader(source, schema.plain, None)
    except EOFError:
        raise BadValue(f"the value of {len(value)} bytes ends before the Avro datum does") from None
    except (LookupError, ValueError, OverflowError) as error:
        raise BadValue(f"the value is not Avro of this schema: {reason(error)}") from None
    if rest := len(value) - source.tell():
        raise BadValue(f"the value has {rest} bytes after the Avro datum")
    if schema.convert is not None:
        record = schema.convert(record)
    # A datum takes at least a byte for each cell, but a null record takes one byte for all its cells.
    if len(value) * width(kind) * CELL_BYTES > DECODED_BYTES_MAX and (
        _cells(record, kind) * CELL_BYTES > DECODED_BYTES_MAX
    ):
        raise BadValue(f"the value would become more than {DECODED_BYTES_MAX} bytes")
    return record


def _cells(value: Any, kind: pa.DataType) -> int:
    """The cells that a value takes in the columns; a null takes those of all the fields of its type."""
    if pa.types.is_struct(kind):
        return 1 + sum(_cells(None if value is None else value[f.name], f.type) for f in kind)
    if value is None or not (pa.types.is_map(kind) or pa.types.is_list(kind)):
        return 1
    inner = kind.item_type if pa.types.is_map(kind) else kind.value_type
    items = [item for _, item in value] if pa.types.is_map(kind) else value
    # The nulls are counted at once: a hostile value has many, and each would be a walk over the type.
    nulls = sum(item is None for item in items)
    found = 1 + len(items) + sum(_cells(item, inner) for item in items if item is not None)
    return found + (nulls * _cells(None, inner) if nulls else 0)

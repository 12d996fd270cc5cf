"""Decodes JSON values with Arrow, many at once; what Arrow refuses, `json_records` decides.

All values become one text of lines for Arrow's JSON reader. No row can move to another value: each value
in that text begins with `{` and ends with `}`. If a value left an object or list open, the `{` of the next
value would be an error there; a raw line feed ends an open string with an error. So each value makes at
least one row, and if there are as many rows as values, each makes exactly one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from tidelog_spark.payload.decoded import BadValue, Decoded, from_records, joined
from tidelog_spark.payload.json_records import UNITS, read_record
from tidelog_spark.payload.limits import DEPTH_MAX, slices

CHUNK_ROWS: Final = 128
"""If Arrow refuses a slice, it tries pieces of so many values; refused pieces are read value by value."""

_DATE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"

_ODD: Final = (b"\0", b"NaN", b"Inf")
"""Arrow reads these in another way than `json_records`."""


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """Decodes JSON objects to the fields of `type`."""

    type: pa.StructType
    unit: str = "s"
    """Of timestamps that are numbers, as in `json_records.UNITS`."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        return joined([self._slice(piece) for piece in slices(values)], self.type)

    def _slice(self, values: pa.BinaryArray) -> Decoded:
        whole = self._quick(values)
        if whole is not None:
            return whole
        parts = []
        for first in range(0, len(values), CHUNK_ROWS):
            chunk = values.slice(first, CHUNK_ROWS)
            parts.append(self._quick(chunk) or self._slow(chunk))
        return joined(parts, self.type)

    def _slow(self, values: pa.BinaryArray) -> Decoded:
        records: list[dict[str, Any] | None] = []
        reasons: list[str | None] = []
        for value in values.to_pylist():
            record = why = None
            try:
                record = None if value is None else read_record(value, self.type, self.unit)
            except BadValue as error:
                why = str(error)
            records.append(record)
            reasons.append(why)
        return from_records(records, reasons, self.type)

    def _quick(self, values: pa.BinaryArray) -> Decoded | None:
        """The rows, if Arrow reads all values as `json_records` would; None: it may not."""
        text = _lines(values)
        if text is None:
            return None
        for numbers in (False, True):
            wire = _wire(self.type, numbers)
            if wire is None:
                return None
            try:
                table = _parsed(text, wire)
                if table.num_rows != len(values):
                    return None
                columns = _column(table.to_struct_array().combine_chunks(), self.type, UNITS[self.unit])
                # Arrow reads 100000 as decimal(7,2), which it does not fit; only a full check finds this.
                columns.validate(full=True)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                continue
            return Decoded(columns, pa.nulls(len(values), pa.string()))
        return None


def _lines(values: pa.BinaryArray) -> bytes | None:
    """One value a line; None if some value is not an object at first sight, or may break a limit."""
    if not len(values) or values.null_count:
        return None
    try:
        pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        return None
    lines = pc.binary_join_element_wise(values, b"\n", b"")
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1]
    octets = np.frombuffer(data, np.uint8)
    lengths = np.diff(ends)
    if lengths.min() < 3 or (octets[ends[:-1]] != ord("{")).any() or (octets[ends[1:] - 2] != ord("}")).any():
        return None
    if lengths.max() > DEPTH_MAX:
        brackets = pc.add(pc.count_substring(values, "{"), pc.count_substring(values, "["))
        if pc.max(brackets).as_py() > DEPTH_MAX:
            return None
    text = octets[ends[0] : ends[-1]].tobytes()
    return None if any(odd in text for odd in _ODD) else text


def _parsed(text: bytes, wire: pa.StructType) -> pa.Table:
    return pa.json.read_json(
        pa.py_buffer(text),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pa.json.ParseOptions(
            explicit_schema=pa.schema(list(wire)), unexpected_field_behavior="ignore"
        ),
    )


def _wire(kind: pa.DataType, numbers: bool) -> pa.DataType | None:
    """The type with which Arrow must read JSON for `kind`; None: Arrow cannot.

    With `numbers`, timestamps are numbers, otherwise text.
    """
    if pa.types.is_struct(kind):
        fields = [(field.name, _wire(field.type, numbers)) for field in kind]
        return None if any(found is None for _, found in fields) else pa.struct(fields)
    if pa.types.is_map(kind) or pa.types.is_binary(kind):
        return None
    if pa.types.is_list(kind):
        inner = _wire(kind.value_type, numbers)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_date(kind):
        return pa.string()
    return pa.int64() if numbers and pa.types.is_timestamp(kind) else kind


def _column(array: pa.Array, kind: pa.DataType, unit_us: int) -> pa.Array:
    """The array that Arrow read, as `kind`; raises `ArrowInvalid` if a value does not fit."""
    if array.type.equals(kind):
        return array
    missing = pc.is_null(array) if array.null_count else None
    if pa.types.is_struct(kind):
        fields = [_column(array.field(n), kind.field(n).type, unit_us) for n in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=missing)
    if pa.types.is_list(kind):
        values = _column(array.values, kind.value_type, unit_us)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=missing)
    if pa.types.is_timestamp(kind) and pa.types.is_integer(array.type):
        return pc.multiply_checked(array, unit_us).cast(kind)
    if pa.types.is_date(kind) and pc.any(pc.invert(pc.match_substring_regex(array, _DATE))).as_py():
        raise pa.ArrowInvalid("a date has another form")
    return array.cast(kind)

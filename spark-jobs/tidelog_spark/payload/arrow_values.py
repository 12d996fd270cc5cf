"""Decodes Arrow values: each value is one IPC stream with one row.

`arrow_scan` bounds a stream before Arrow reads it. Rows with the same schema, byte for byte, are converted
together by `arrow_columns`; if that fails, halves of them are, until each bad row stands alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from typing import Final, NamedTuple

import pyarrow as pa

from tidelog_spark.payload.arrow_columns import ARROW_ERRORS, check_names, converted
from tidelog_spark.payload.arrow_scan import scan, schema_cost, too_large
from tidelog_spark.payload.decoded import BadValue, Decoded, joined, reason
from tidelog_spark.payload.json_records import width
from tidelog_spark.payload.limits import CELL_BYTES, DECODED_BYTES_MAX, slices

SCHEMAS_MAX: Final = 16
"""Values of so many schemas may take turns before a schema is read again."""


@dataclass(frozen=True, slots=True)
class ArrowDecoder:
    """Decodes Arrow IPC streams of one row to the fields of `type`."""

    type: pa.StructType

    def decode(self, values: pa.BinaryArray) -> Decoded:
        parts, rows, held = [], _Rows(self.type), 0
        cells = width(self.type) * CELL_BYTES
        wanted = lru_cache(maxsize=SCHEMAS_MAX)(partial(_wanted, names={field.name for field in self.type}))
        for piece in slices(values):
            for value in piece.to_pylist():
                row, why = None, None
                try:
                    if value is not None:
                        schema, more = scan(value)
                        more += cells + wanted(schema).cost
                        if more > DECODED_BYTES_MAX:
                            raise too_large()
                        held += more
                        if held > DECODED_BYTES_MAX:
                            parts.append(rows.decoded())
                            rows, held = _Rows(self.type), more
                        row = schema, _read(value, wanted(schema).options)
                except BadValue as error:
                    why = reason(error)
                rows.add(row, why)
        parts.append(rows.decoded())
        return joined(parts, self.type)


@dataclass(slots=True)
class _Rows:
    """Rows that are converted together. Row n belongs to value n."""

    type: pa.StructType
    reasons: list[str | None] = field(default_factory=list)
    groups: dict[bytes, list[tuple[int, pa.StructArray]]] = field(default_factory=dict)
    """By schema: the rows with their numbers."""

    def add(self, row: tuple[bytes, pa.StructArray] | None, why: str | None) -> None:
        if row is not None:
            schema, array = row
            self.groups.setdefault(schema, []).append((len(self.reasons), array))
        self.reasons.append(why)

    def decoded(self) -> Decoded:
        arrays: list[pa.StructArray] = []
        places: list[int | None] = [None] * len(self.reasons)
        count = 0
        for group in self.groups.values():
            for numbers, array in self._converted(group):
                arrays.append(array)
                for number in numbers:
                    places[number] = count
                    count += 1
        reasons = pa.array(self.reasons, pa.string())
        if not arrays:
            return Decoded(pa.nulls(len(places), self.type), reasons)
        # A place that is null makes a row that is null.
        return Decoded(pa.concat_arrays(arrays).take(pa.array(places, pa.int64())), reasons)

    def _converted(
        self, group: list[tuple[int, pa.StructArray]]
    ) -> Iterator[tuple[list[int], pa.StructArray]]:
        numbers = [number for number, _ in group]
        try:
            yield numbers, converted(_together([array for _, array in group]), self.type)
        except BadValue as error:
            if len(group) == 1:
                self.reasons[numbers[0]] = reason(error)
                return
            middle = len(group) // 2
            yield from self._converted(group[:middle])
            yield from self._converted(group[middle:])


def _together(arrays: list[pa.StructArray]) -> pa.StructArray:
    try:
        return pa.concat_arrays(arrays)
    except ARROW_ERRORS as error:
        # Dictionaries of several values may be too large together for their indices.
        raise BadValue(reason(error)) from None


class _Wanted(NamedTuple):
    """The columns that are wanted of a schema."""

    cost: int
    """Of the schema itself, which each row keeps. Bytes."""
    options: pa.ipc.IpcReadOptions | None
    """How Arrow reads the columns; None: the schema has none of them."""


def _wanted(schema: bytes, names: set[str]) -> _Wanted:
    """How the columns `names` of a schema are read; raises `BadValue` if they cannot be."""
    cost = schema_cost(schema)
    try:
        found = pa.ipc.read_schema(pa.py_buffer(schema)).names
    except ARROW_ERRORS as error:
        raise BadValue(f"the Arrow schema cannot be read: {reason(error)}") from None
    check_names(found, "value")
    fields = [number for number, name in enumerate(found) if name in names]
    # Arrow reads all columns if none is named.
    options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=fields) if fields else None
    return _Wanted(cost, options)


@cache
def _nothing() -> pa.StructArray:
    """One row without fields. Made on demand: an array from Python values imports pandas, which is slow."""
    return pa.array([{}], pa.struct([]))


def _read(value: bytes, options: pa.ipc.IpcReadOptions | None) -> pa.StructArray:
    """The row of a stream that `scan` has checked; raises `BadValue` if Arrow refuses it."""
    if options is None:
        return _nothing()
    try:
        with pa.ipc.open_stream(pa.py_buffer(value), options=options) as reader:
            (row,) = (batch for batch in reader if batch.num_rows)
            row.validate(full=True)
            return row.to_struct_array()
    except ARROW_ERRORS as error:
        raise BadValue(f"the value is not an Arrow IPC stream: {reason(error)}") from None

"""The columns of a table, and those of a dead letter, from the rows of the source. Pure.

Where the source decodes values, the column `value` is a struct. In a table its fields are columns of their
own, and the columns of the record follow. Where the source tells bad records apart, their bytes and the
reason are in the column `BAD_RECORD`. A dead letter is the record as it was, with the reason.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tidelog.errors import InvalidRequest
from tidelog_spark.payload import BAD_RECORD

VALUE: Final = "value"
REASON: Final = "reason"
"""The column of a dead letter that says why its value cannot be decoded."""

RECORD_PREFIX: Final = "record_"
"""What a column of the record gets before its name where a field of the value has the same name."""


def name_in_table(column: str, schema: pa.Schema) -> str:
    """The name that a column of the source's rows has in the table."""
    fields = {field.name.casefold() for field in _fields(schema)}
    return f"{RECORD_PREFIX}{column}" if column.casefold() in fields else column


def table_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the fields of the value as columns; the same rows if the value is not decoded.

    The fields of a tombstone are null. Raises `InvalidRequest` if two columns would have the same name.
    """
    fields = _fields(rows.schema)
    if not fields:
        return rows
    others = [field for field in rows.schema if field.name != VALUE]
    schema = pa.schema(
        [
            *(field.with_nullable(True) for field in fields),
            *(field.with_name(name_in_table(field.name, rows.schema)) for field in others),
        ]
    )
    _check_names(schema)
    columns = [*rows.column(VALUE).flatten(), *(rows.column(field.name) for field in others)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def dead_letters(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Bad records as they were, with the reason. `rows` has no good records."""
    value, reason = rows.column(BAD_RECORD).flatten()
    columns = {
        **{name: rows.column(name) for name in rows.schema.names if name != BAD_RECORD},
        VALUE: value,
        REASON: reason,
    }
    fields = [
        pa.field(name, column.type) if name in (VALUE, REASON) else rows.schema.field(name)
        for name, column in columns.items()
    ]
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(fields))


def table_schema(schema: pa.Schema) -> pa.Schema:
    """Of `table_rows`; raises what it raises."""
    return table_rows(_no_rows(schema)).schema


def dead_letter_schema(schema: pa.Schema) -> pa.Schema:
    """Of `dead_letters`."""
    return dead_letters(_no_rows(schema)).schema


def _fields(schema: pa.Schema) -> list[pa.Field]:
    """Of the value; none if it is not decoded."""
    if VALUE not in schema.names or not pa.types.is_struct(schema.field(VALUE).type):
        return []
    return list(schema.field(VALUE).type)


def _check_names(schema: pa.Schema) -> None:
    names = [name.casefold() for name in schema.names]
    for name in schema.names:
        if names.count(name.casefold()) > 1:
            raise InvalidRequest(
                f"the table would have two columns {name!r}, one of the value and one of the record; leave "
                f"one of them out, with value.schema or with the option columns"
            )


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)

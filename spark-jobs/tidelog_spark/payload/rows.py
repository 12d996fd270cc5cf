"""Replaces the values of a batch of rows by their payload, and does with bad records what was asked."""

from __future__ import annotations

import logging
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import TidelogError
from tidelog_spark.payload.options import BadRecords, Payload

BAD_RECORD: Final = "_bad_record"
"""The column for bad records: their value and the reason; null for good records."""

log = logging.getLogger(__name__)


class BadRecord(TidelogError):
    """A value cannot be decoded, and bad records must fail. A retry does not mend it."""

    code: ClassVar[str] = "BAD_RECORD"


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The columns that must be read, values still bytes, for rows of `schema` after `with_payload`.

    The offset comes last if `schema` lacks it, because an error names it.
    """
    fields = [field for field in schema if field.name not in ("value", BAD_RECORD)]
    fields.append(pa.field("value", pa.binary()))
    if "offset" not in schema.names:
        fields.append(pa.field("offset", pa.int64(), nullable=False))
    return pa.schema(fields)


def with_payload(
    stored: pa.RecordBatch, schema: pa.Schema, payload: Payload, partition: str
) -> pa.RecordBatch:
    """Rows of `schema` from rows of `stored_schema`; `partition` names their origin in errors.

    Raises `BadRecord` for the first bad record if bad records must fail.
    """
    values = stored.column("value")
    decoded = payload.decoder.decode(values)
    bad = pc.is_valid(decoded.reasons)
    columns = {
        **{name: stored.column(name) for name in stored.schema.names},
        "value": decoded.columns,
    }
    if decoded.reasons.null_count < len(decoded.reasons):
        _tell(stored, decoded.reasons, payload.bad_records, partition)
    if BAD_RECORD in schema.names:
        kind = schema.field(BAD_RECORD).type
        parts = [values, decoded.reasons]
        columns[BAD_RECORD] = pa.StructArray.from_arrays(parts, fields=list(kind), mask=pc.invert(bad))
    rows = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
    return rows.filter(pc.invert(bad)) if payload.bad_records is BadRecords.DROP else rows


def _tell(stored: pa.RecordBatch, reasons: pa.StringArray, mode: BadRecords, partition: str) -> None:
    first = pc.index(pc.is_valid(reasons), True).as_py()
    offset, why = stored.column("offset")[first].as_py(), reasons[first].as_py()
    if mode is BadRecords.FAIL:
        raise BadRecord(
            f"the record {partition} at offset {offset} cannot be decoded: {why}; correct valueSchema, or "
            "set badRecords to 'column' to keep bad records in the column _bad_record, or to 'drop'"
        )
    if mode is BadRecords.DROP:
        count = len(reasons) - reasons.null_count
        log.warning(
            "%d bad records of %s dropped, first at offset %d: %s",
            count,
            partition,
            offset,
            why,
        )

"""The columns of a table and of dead letters."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidelog.errors import InvalidRequest
from tidelog_spark.lake.columns import dead_letters, name_in_table, table_rows
from tidelog_spark.payload import BAD_RECORD

ORDER = pa.struct({"id": pa.int64(), "Offset": pa.string()})
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", ORDER),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field(BAD_RECORD, pa.struct({"value": pa.binary(), "reason": pa.string()})),
    ]
)
GOOD = {"key": b"a", "value": {"id": 1, "Offset": "x"}, "offset": 7, BAD_RECORD: None}
TOMBSTONE = {"key": b"b", "value": None, "offset": 8, BAD_RECORD: None}
BAD = {"key": b"c", "value": None, "offset": 9, BAD_RECORD: {"value": b"{", "reason": "not JSON"}}


def test_a_table_has_the_fields_of_the_value_and_then_the_columns_of_the_record() -> None:
    rows = table_rows(pa.RecordBatch.from_pylist([GOOD, TOMBSTONE], schema=SCHEMA))
    assert rows.to_pylist() == [
        {"id": 1, "Offset": "x", "key": b"a", "record_offset": 7, BAD_RECORD: None},
        {"id": None, "Offset": None, "key": b"b", "record_offset": 8, BAD_RECORD: None},
    ]
    assert name_in_table("offset", SCHEMA) == "record_offset"
    assert name_in_table("key", SCHEMA) == "key"
    assert not rows.schema.field("record_offset").nullable


def test_a_value_that_is_not_decoded_stays_a_column() -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b"x"], "offset": [1]})
    assert table_rows(rows) == rows


def test_two_columns_of_one_name_are_refused() -> None:
    value = pa.struct({"offset": pa.int64(), "record_offset": pa.int64()})
    rows = pa.RecordBatch.from_pylist([], schema=pa.schema({"value": value, "offset": pa.int64()}))
    with pytest.raises(InvalidRequest, match="two columns 'record_offset'"):
        table_rows(rows)


def test_a_dead_letter_is_the_record_as_it_was_with_the_reason() -> None:
    rows = dead_letters(pa.RecordBatch.from_pylist([BAD], schema=SCHEMA))
    assert rows.to_pylist() == [{"key": b"c", "value": b"{", "offset": 9, "reason": "not JSON"}]
    assert rows.schema.field("value").type == pa.binary()

"""Avro values become columns, and bad ones do not harm the others. No Spark session here."""

from __future__ import annotations

import io
import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import InvalidRequest
from tidelog_spark.option_values import Given
from tidelog_spark.payload import NAMES, Payload, decoded, parse_payload
from tidelog_spark.payload.decoded import Decoded


def _record(*types: Any) -> str:
    fields = [{"name": f"f{n}", "type": kind} for n, kind in enumerate(types)]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def _payload(text: str) -> Payload:
    given = {"valueFormat": "avro", "valueSchema": text}
    found = parse_payload(Given(given, NAMES, lambda name: None))
    assert found is not None
    return pickle.loads(pickle.dumps(found))  # type: ignore[no-any-return]


def _decode(text: str, *values: bytes | None) -> Decoded:
    found = _payload(text).decoder.decode(pa.array(values, pa.binary()))
    found.columns.validate(full=True)
    assert len(found.columns) == len(found.reasons) == len(values)
    return found


def _encode(text: str, **fields: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(text)), fields)
    return out.getvalue()


_POINT = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}
_POINTS = [None, {"x": 1}]
_AT = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
_MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}


@pytest.mark.parametrize(
    ("kind", "given", "wanted", "spark"),
    [
        ("long", 7, 7, "bigint"),
        (["null", "string"], None, None, "string"),
        (["string", "null"], "a", "a", "string"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B", "string"),
        ({"type": "array", "items": ["null", _POINT]}, _POINTS, _POINTS, "array<struct<x:int>>"),
        ({"type": "map", "values": "int"}, {"a": 1}, [("a", 1)], "map<string,int>"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", b"ab", "binary"),
        (_MONEY, Decimal("-" + "9" * 36 + ".25"), Decimal("-" + "9" * 36 + ".25"), "decimal(38,2)"),
        ({"type": "int", "logicalType": "date"}, date(2026, 1, 2), date(2026, 1, 2), "date"),
        ({"type": "long", "logicalType": "timestamp-millis"}, _AT, _AT, "timestamp"),
        ({"type": "long", "logicalType": "timestamp-micros"}, _AT, _AT, "timestamp"),
        ({"type": "string", "logicalType": "uuid"}, "a" * 36, "a" * 36, "string"),
    ],
)  # fmt: skip
def test_each_type_becomes_that_of_spark(kind: Any, given: Any, wanted: Any, spark: str) -> None:
    text = _record(kind)
    plain = {**kind, "logicalType": "x"} if spark == "string" and isinstance(kind, dict) else kind
    found = _decode(text, _encode(_record(plain), f0=given))
    assert found.columns.to_pylist() == [{"f0": wanted}]
    assert _payload(text).schema.simpleString() == f"struct<f0:{spark}>"


_SCHEMA = _record("int", ["null", {"type": "array", "items": "string"}], {"type": "map", "values": _MONEY})
_GOOD = _encode(_SCHEMA, f0=1, f1=["a", "b"], f2={"k": Decimal("1.25")})
_VALUES = st.one_of(
    st.none(), st.just(_GOOD), st.binary(max_size=20), st.just(_GOOD + b"\0"), st.just(_GOOD[:-1])
)


@settings(max_examples=100, deadline=None)
@given(st.lists(_VALUES, max_size=20))
def test_a_row_does_not_depend_on_its_neighbours(values: list[bytes | None]) -> None:
    together = _decode(_SCHEMA, *values)
    alone = [_decode(_SCHEMA, value) for value in values]
    assert together.columns.to_pylist() == [found.columns.to_pylist()[0] for found in alone]
    assert together.reasons.to_pylist() == [found.reasons.to_pylist()[0] for found in alone]


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("int", b"", "ends before"),
        ("int", b"\x02\x02", "1 bytes after"),
        ("int", b"\xff\xff\xff\xff\xff\x01", ""),
        ("string", b"\x02\xff", "not Avro of this schema"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", "ends before"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", "ends before"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", "symbol -1 of an enum"),
        (["null", "int"], b"\x08", "branch 4 of a union with 2"),
        (["null", "int"], b"\x01\x02", "branch -1 of a union with 2"),
        ("long", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x03", "number at byte 0 has more than 64 bits"),
        ("long", b"\x80" * 10 + b"\x00", "more than 64 bits"),
        ("boolean", b"\x02", "a boolean must be 0 or 1"),
        ("bytes", b"\x01", "have the length -1"),
        ({"type": "map", "values": "int"}, b"\x02\x01", "have the length -1"),
        ({"type": "array", "items": "int"}, b"\x01\x04\x02\x00", "ends at byte 3, but its size says 4"),
        ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\x01\x00\x00", "ends before"),
        ({**_MONEY, "precision": 2}, b"\x02\x64", "more than 2 digits"),
        (_MILLIS, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", ""),
    ],
)  # fmt: skip
def test_a_bad_value_harms_no_other(kind: Any, value: bytes, why: str) -> None:
    found = _decode(_record(kind), None, value)
    assert found.columns.null_count == 2
    assert found.reasons[0].as_py() is None
    assert why in found.reasons[1].as_py()


def test_a_small_value_of_many_null_records_is_bad() -> None:
    wide = {"type": "record", "name": "W", "fields": [{"name": f"c{n}", "type": "int"} for n in range(1500)]}
    text = _record({"type": "array", "items": ["null", wide]})
    found = _decode(text, _encode(text, f0=[None] * 20_000), _encode(text, f0=[None]))
    assert "would become more than" in found.reasons[0].as_py()
    assert found.columns[1].as_py() == {"f0": [None]}


def test_a_value_of_many_small_objects_is_bad_before_they_are_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = _record({"type": "array", "items": _POINT})
    value = _long(1 << 22) + b"\0" * (1 << 22) + b"\0"
    monkeypatch.setattr(fastavro, "schemaless_reader", lambda *_: pytest.fail("it was read"))
    assert "would become more than" in _decode(text, value).reasons[0].as_py()


def test_values_that_fill_the_bound_are_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded, "DECODED_BYTES_MAX", 1000)
    values = [b"\x02", b"\xff\xff\xff\xff\xff\x01", None, *[b"\x04"] * 20]
    found = _decode(_record("int"), *values)
    assert found.columns.to_pylist() == [{"f0": 1}, None, None, *[{"f0": 2}] * 20]


def _long(number: int) -> bytes:
    return _encode(_record("long"), f0=number)


_FIELDS = st.sampled_from(["int", "string", "boolean", "bytes", "double"])
_KINDS = st.recursive(
    _FIELDS,
    lambda inner: st.one_of(
        inner.map(lambda kind: ["null", kind] if isinstance(kind, (str, dict)) else kind),
        inner.map(lambda kind: {"type": "array", "items": kind}),
        inner.map(lambda kind: {"type": "map", "values": kind}),
    ),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None)
@given(_KINDS, st.data())
def test_the_walk_accepts_what_fastavro_reads_and_writes_back_alike(kind: Any, data: st.DataObject) -> None:
    """The dumb twin writes what it read: the same bytes show that the value was strict Avro."""
    text = _record(kind)
    parsed = fastavro.parse_schema(json.loads(text))
    good = data.draw(st.binary(max_size=12).map(lambda tail: tail.replace(b"\xff", b"\x02") + b"\0" * 3))
    reason = _decode(text, good).reasons[0].as_py()
    source = io.BytesIO(good)
    try:
        again = _encode(text, **fastavro.schemaless_reader(source, parsed, None))  # type: ignore[arg-type]
    except Exception:
        # fastavro raises many kinds of errors. The walk is stricter, so it refuses the value as well.
        assert reason is not None
        return
    if again == good:
        assert reason is None
    elif source.tell() < len(good):
        assert reason is not None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("id bigint", "valueSchema is not an Avro schema"),
        ('"int"', "the outermost type must be a record"),
        (_record(["int", "string"]), "value.f0 is a union of 2 Avro types"),
        (_record("null"), "the Avro type 'null', which cannot be a column"),
        (_record(["null", "R"]), "contains the Avro record R in itself"),
        (_record({"type": "record", "name": "N", "fields": []}), "record without fields"),
        (_record({"type": "fixed", "name": "F", "size": 0}), "fixed of 0 bytes"),
        (_record({**_MONEY, "precision": 39}), "precision"),
    ],
)
def test_a_schema_that_cannot_be_columns_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as failure:
        _payload(text)
    assert sentence in str(failure.value)

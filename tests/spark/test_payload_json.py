"""JSON values become columns: never in another row, and bad ones do not harm the others. No Spark here."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from tidelog.errors import InvalidRequest
from tidelog_spark.option_values import Given
from tidelog_spark.payload import (
    BAD_RECORD,
    NAMES,
    BadRecord,
    Payload,
    parse_payload,
    stored_schema,
    with_payload,
)
from tidelog_spark.payload.decoded import Decoded
from tidelog_spark.payload.json_values import JsonDecoder
from tidelog_spark.payload.limits import DEPTH_MAX
from tidelog_spark.payload.types import arrow_type, parse_schema
from tidelog_spark.schema import check_schema, row_schema


def _decoder(schema: str, unit: str = "s") -> JsonDecoder:
    return JsonDecoder(arrow_type(parse_schema(schema)), unit)


def _decode(schema: str, *values: bytes | None, unit: str = "s") -> Decoded:
    found = _decoder(schema, unit).decode(pa.array(values, pa.binary()))
    found.columns.validate(full=True)
    assert len(found.columns) == len(found.reasons) == len(values)
    return found


_HOSTILE = st.sampled_from(
    [
        b'{"n":1}{"n":2}',
        b'{"n":1}\n{"n":2}',
        b'{"n":1},{"n":2}',
        b"7",
        b"[]",
        b'[{"n":1}]',
        b"",
        b" \n",
        b"{",
        b"}",
        b'{"n":',
        b'{"s":"',
        b'{"s":"a\nb"}',
        b'{"l":[',
        b'{"x":[{"n":1}',
        b'{"n":1}]}',
        b'{"n":1}}',
        b"{}",
        b'{"n":1}\0',
        b'{"n":1}\0}',
        b'{"s":"\xff"}',
        b'{"s":"\\ud800"}',
        b'{"n":\n1\n}',
        b'{"n":NaN}',
        b'{"x":Inf}',
        b'{"n":1,"n":2}',
        b'{"n":1e3}',
        b'{"x":1e400}',
        b'\xef\xbb\xbf{"n":1}',
        b'{"n":"1"}',
        b'{"s":1}',
        b"null",
        b'{"s":{"a":[1.50,null]}}',
        b'{"n":99999999999999999999}',
        b' {"n":5} ',
        b'{"n":1}//',
        b'{"l":[1,"a"]}',
    ]
)
_GOOD = st.fixed_dictionaries(
    {},
    optional={
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | st.text(max_size=5),
        "l": st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3),
        "extra": st.recursive(st.none() | st.booleans() | st.text(max_size=3), st.lists, max_leaves=4),
    },
).flatmap(lambda found: st.sampled_from([json.dumps(found).encode(), json.dumps(found, indent=1).encode()]))


def _twin(value: bytes | None) -> Any:
    """What `n bigint, s string, l array<bigint>` must be: None is null, "bad" a bad record."""
    if value is None:
        return None
    try:
        found = json.loads(value.decode(), parse_constant=lambda name: name)
        assert type(found) is dict
        n, s, items = found.get("n"), found.get("s"), found.get("l")
        for number in [n, *([] if items is None else items)]:
            assert number is None or (type(number) is int and -(2**63) <= number < 2**63)
        assert items is None or type(items) is list
        if s is not None and type(s) is not str:
            s = value[value.index(b":") + 1 : -1].decode()
        (s or "").encode()
    except (ValueError, AssertionError, TypeError):
        return "bad"
    return {"n": n, "s": s, "l": items}


@settings(max_examples=300, deadline=None)
@given(st.lists(st.none() | _GOOD | _HOSTILE, max_size=6), st.integers(0, 300))
def test_each_value_has_its_own_row_whatever_stands_beside_it(values: list[bytes | None], more: int) -> None:
    several = values + [b'{"n":%d}' % number for number in range(more)] + values
    found = _decode("n bigint, s string, l array<bigint>", *several)
    rows = zip(found.columns.to_pylist(), found.reasons.to_pylist(), strict=True)
    assert ["bad" if why else row for row, why in rows] == [_twin(value) for value in several]


_TYPED = (
    "b boolean, i int, f float, d double, m decimal(7,2), day date, t timestamp, x struct<l:array<smallint>>"
)
_SCALAR_TEXTS = st.sampled_from(
    [
        "1",
        "-0",
        "1.5",
        "1e2",
        "1E-3",
        "0.005",
        "1.255",
        "-2.345",
        "99999.99",
        "99999.995",
        "100000",
        "true",
        "null",
        '"1"',
        '"1.10"',
        '".5"',
        '"1."',
        '"+1"',
        '"1_0"',
        '" 1"',
        '"1e2"',
        '""',
        '"NaN"',
        "3.4028236e38",
        "16777217",
        "1e39",
        "2147483648",
        '"2026-01-02"',
        '"2026-02-30"',
        '"2026-1-2"',
        '"2026-01-02T03:04:05Z"',
        '"2026-01-02 03:04:05+02:00"',
        '"2026-01-02T03:04"',
        '"2026-01-02T03:04:05.1234567Z"',
        "1767323045",
        "9223372036854775807",
        '{"l":[1,32768]}',
        '{"l":[1,null]}',
        '{"l":null}',
        "{}",
        "[]",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["b", "i", "f", "d", "m", "day", "t", "x"]), _SCALAR_TEXTS)
def test_arrow_and_the_rules_for_one_value_agree(name: str, text: str) -> None:
    decoder = _decoder(_TYPED)
    value = f'{{"{name}":{text}}}'.encode()
    alone = decoder.decode(pa.array([value], pa.binary()))
    beside = decoder.decode(pa.array([value, b"no object"], pa.binary()))
    # As text: NaN does not equal NaN.
    assert str(alone.columns.to_pylist()) == str(beside.columns.to_pylist()[:1])
    assert alone.reasons.to_pylist() == beside.reasons.to_pylist()[:1]


def test_values_have_the_types_of_the_schema() -> None:
    value = (
        b'{"b":true,"i":-5,"f":0.5,"d":1e3,"m":1.255,"day":"2026-01-02",'
        b'"t":"2026-01-02T03:04:05+01:00","x":{"l":[7]}}'
    )
    (row,) = _decode(_TYPED, value).columns.to_pylist()
    assert row == {
        "b": True, "i": -5, "f": 0.5, "d": 1000.0, "m": Decimal("1.26"), "day": date(2026, 1, 2),
        "t": datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC), "x": {"l": [7]},
    }  # fmt: skip


def test_maps_binary_and_timestamps_as_numbers_are_read() -> None:
    found = _decode(
        "m map<string,int>, b binary, t timestamp", b'{"m":{"a":1},"b":"AP8=","t":1500}', unit="ms"
    )
    when = datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert found.columns.to_pylist() == [{"m": [("a", 1)], "b": b"\x00\xff", "t": when}]


def test_a_value_that_is_too_deep_is_bad_also_in_a_field_that_is_not_read() -> None:
    deep = [b'{"x":' + b"[" * levels + b"]" * levels + b"}" for levels in (DEPTH_MAX - 1, DEPTH_MAX, 200_000)]
    assert _decode("n int", *deep).reasons.to_pylist() == [
        None,
        *[f"the value is deeper than {DEPTH_MAX} levels"] * 2,
    ]


def test_a_value_that_would_become_too_large_is_bad() -> None:
    wide = "l array<struct<" + ",".join(f"c{number}:string" for number in range(1000)) + ">>"
    found = _decode(wide, b'{"l":[' + b"{}," * 20_000 + b"{}]}", b'{"l":[{}]}')
    assert [reason and "could become more than" in reason for reason in found.reasons.to_pylist()] == [
        True,
        None,
    ]


def _payload(**options: str) -> Payload | None:
    return parse_payload(Given(options, NAMES, lambda name: None))


def _rows(mode: str, *values: bytes | None) -> list[dict[str, Any]]:
    payload = _payload(valueFormat="json", valueSchema="n int", badRecords=mode)
    assert payload is not None
    fields = [("value", arrow_type(payload.schema)), ("partition", pa.int32())]
    if mode == "column":
        fields.append((BAD_RECORD, pa.struct([("value", pa.binary()), ("reason", pa.string())])))
    schema = pa.schema(fields)
    stored = stored_schema(schema)
    assert stored.names == ["partition", "value", "offset"]
    columns = [[3] * len(values), values, range(7, 7 + len(values))]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, stored, strict=True)], schema=stored
    )
    found: list[dict[str, Any]] = with_payload(batch, schema, payload, "orders/3").to_pylist()
    return found


def test_bad_records_stand_in_a_column_are_dropped_or_end_the_query() -> None:
    values = [b'{"n":1}', None, b"7", b'{"n":2}']
    assert _rows("column", *values) == [
        {"value": {"n": 1}, "partition": 3, BAD_RECORD: None},
        {"value": None, "partition": 3, BAD_RECORD: None},
        {
            "value": None,
            "partition": 3,
            BAD_RECORD: {"value": b"7", "reason": "the value is 7; it must be a JSON object"},
        },
        {"value": {"n": 2}, "partition": 3, BAD_RECORD: None},
    ]
    assert [row["value"] for row in _rows("drop", *values)] == [{"n": 1}, None, {"n": 2}]
    with pytest.raises(BadRecord, match="orders/3 at offset 9 cannot be decoded: the value is 7"):
        _rows("fail", *values)


def test_rows_have_typed_values_and_the_columns_that_options_name() -> None:
    payload = _payload(valueFormat="json", valueSchema="n int", badRecords="column")
    typed = row_schema(headers=True, payload=payload)
    assert typed.names[-2:] == [BAD_RECORD, "headers"]
    assert typed["value"].dataType.simpleString() == "struct<n:int>"
    columns = ("offset", BAD_RECORD, "value")
    chosen = row_schema(headers=False, columns=columns, payload=payload)
    assert chosen.names == list(columns)
    check_schema(chosen, columns, payload)
    without = StructType([chosen["offset"], chosen["value"]])
    with pytest.raises(
        InvalidRequest, match="has no column _bad_record; add _bad_record struct<value:binary"
    ):
        check_schema(without, columns, payload)
    with pytest.raises(InvalidRequest, match="the column value is binary, not struct<n:int>"):
        check_schema(without)
    for mode in ("fail", "drop"):
        same = _payload(valueFormat="json", valueSchema="n int", badRecords=mode)
        check_schema(StructType([chosen["offset"]]), payload=same)
        with pytest.raises(InvalidRequest, match="a record has no column '_bad_record'"):
            check_schema(chosen, payload=same)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"valueFormat": "xml"},
            "valueFormat is 'xml'; it must be 'raw' or 'json' or 'avro' or 'protobuf' or 'arrow'",
        ),
        ({"valueFormat": "json"}, "valueSchema is missing"),
        ({"badRecords": "drop"}, "badRecords has an effect only with valueFormat=json"),
        (
            {"valueSchema": "n int", "badRecords": "skip"},
            "badRecords is 'skip'; it must be 'fail' or 'column' or 'drop'",
        ),
        ({"valueSchema": "n int", "timestampUnit": "h"}, "timestampUnit is 'h'"),
        ({"valueSchema": ""}, "read at its end"),
        ({"valueSchema": "n int, n int"}, "has the field 'n' twice"),
        ({"valueSchema": "n integr"}, "near 'integr'"),
        ({"valueSchema": "n map<int,int>"}, "keys of a map must be string"),
        ({"valueSchema": "{"}, "not the JSON of a Spark schema"),
        ({"valueSchema": "a " + "array<" * 200 + "int" + ">" * 200}, "deeper than"),
    ],
)
def test_a_wrong_option_is_refused_with_a_sentence(options: dict[str, str], sentence: str) -> None:
    given = {"valueFormat": "json", **options} if "valueSchema" in options else options
    with pytest.raises(InvalidRequest) as failure:
        _payload(**given)
    assert sentence in str(failure.value)

"""Arrow values become columns, and bad ones do not harm the others. No Spark session here."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import InvalidRequest
from tidelog.records.message import Table
from tidelog_spark.option_values import Given
from tidelog_spark.payload import NAMES, arrow_columns, arrow_values, parse_payload
from tidelog_spark.payload.decoded import Decoded

END = b"\xff\xff\xff\xff\0\0\0\0"


def _decode(schema: str, *values: bytes | None) -> Decoded:
    options = {"valueFormat": "arrow", "valueSchema": schema}
    payload = parse_payload(Given(options, NAMES, lambda name: None))
    assert payload is not None
    found = pickle.loads(pickle.dumps(payload)).decoder.decode(pa.array(values, pa.binary()))
    found.columns.validate(full=True)
    assert len(found.columns) == len(found.reasons) == len(values)
    return found  # type: ignore[no-any-return]


def _stream(*batches: pa.RecordBatch, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    written = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, batches[0].schema, options=written) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _row(**columns: Any) -> bytes:
    """One row; a column is an array of one cell, or its Python value."""
    return _stream(pa.record_batch({name: _cell(cell) for name, cell in columns.items()}))


def _cell(cell: Any) -> pa.Array:
    return cell if isinstance(cell, pa.Array) else pa.array([cell])


_AT = datetime(2026, 1, 2, 3, 4, 5, 600, UTC)
_KEYS = pa.map_(pa.string(), pa.int8())
_WORDS = pa.dictionary(pa.int8(), pa.string())


@pytest.mark.parametrize(
    ("cell", "kind", "wanted"),
    [
        (pa.array([True]), "boolean", True),
        (pa.array([7], pa.uint64()), "tinyint", 7),
        (pa.array([7.0]), "bigint", 7),
        (pa.array([1.5], pa.float32()), "double", 1.5),
        (pa.array([0.1]), "float", pytest.approx(0.1)),
        (pa.array([Decimal("1.50")]), "decimal(9,1)", Decimal("1.5")),
        (pa.array([Decimal("7.00")]), "int", 7),
        (pa.array([7], pa.int16()), "decimal(9,2)", Decimal("7.00")),
        (pa.array(["ä"], pa.large_string()), "string", "ä"),
        (pa.array(["a text that is too long for its view"], pa.string_view()), "string",
         "a text that is too long for its view"),
        (pa.array([b"ab"], pa.binary(2)), "binary", b"ab"),
        (pa.array([b"ab"], pa.binary_view()), "string", "ab"),
        (pa.array(["ab"]), "binary", b"ab"),
        (pa.array(["x"], _WORDS), "string", "x"),
        (pa.array([7]).dictionary_encode(), "int", 7),
        (pa.array([["x", None, "x"]], pa.list_(_WORDS)), "array<string>", ["x", None, "x"]),
        (pa.array([date(2026, 1, 2)], pa.date64()), "date", date(2026, 1, 2)),
        (pa.array([_AT]), "timestamp", _AT),
        (pa.array([1500], pa.timestamp("ms")), "timestamp", datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        (pa.array([_AT], pa.timestamp("ns", "Europe/Berlin")), "timestamp", _AT),
        (pa.array([_AT]), "timestamp_ntz", _AT.replace(tzinfo=None)),
        (pa.nulls(1), "array<struct<a:int>>", None),
        (pa.array([[1, None]], pa.large_list(pa.int64())), "array<int>", [1, None]),
        (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), "array<int>", [1, 2]),
        (pa.array([[None]], pa.list_(pa.null())), "array<int>", [None]),
        (pa.array([[("a", 1), ("b", None)]], _KEYS), "map<string,int>", [("a", 1), ("b", None)]),
        (pa.array([[[("a", 1)], None]], pa.list_(_KEYS)), "array<map<string,int>>", [[("a", 1)], None]),
        (pa.array([{"b": 1, "a": 2}]), "struct<a:int,c:int>", {"a": 2, "c": None}),
        (pa.array([b"0" * 16], pa.uuid()), "binary", b"0" * 16),
    ],
)  # fmt: skip
def test_each_type_becomes_that_of_the_schema(cell: pa.Array, kind: str, wanted: Any) -> None:
    found = _decode(f"f {kind}", _row(f=cell))
    assert (found.columns.to_pylist(), found.reasons.to_pylist()) == ([{"f": wanted}], [None])


def test_each_value_keeps_the_words_of_its_own_dictionary() -> None:
    """Together they have more words than the indices of a dictionary can tell apart."""
    words = [f"word {number}" for number in range(300)]
    kind = pa.list_(_WORDS)
    values = [_row(w=pa.array([word], _WORDS), l=pa.array([[word, "x"]], kind)) for word in words]
    found = _decode("w string, l array<string>", *values)
    assert found.columns.to_pylist() == [{"w": word, "l": [word, "x"]} for word in words]


def test_rows_that_are_large_together_are_converted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [_row(n=number, s="x" * 1000) for number in range(40)]
    monkeypatch.setattr(arrow_values, "DECODED_BYTES_MAX", 10_000)
    monkeypatch.setattr(arrow_columns, "DECODED_BYTES_MAX", 3_000)
    found = _decode("n int, s string", *values, b"", _row(n=1, s="x" * 9000))
    assert found.columns.to_pylist()[:40] == [{"n": number, "s": "x" * 1000} for number in range(40)]
    assert [why is None for why in found.reasons.to_pylist()] == [True] * 40 + [False] * 2


def test_columns_are_matched_by_name() -> None:
    found = _decode("b int, a int, missing int", _row(a=1, extra="x", b=2), _row(x=1), _row(B=1))
    nothing = {"b": None, "a": None, "missing": None}
    assert found.columns.to_pylist() == [{"b": 2, "a": 1, "missing": None}, nothing, nothing]


def test_what_lies_under_a_null_does_not_matter() -> None:
    hidden = pa.array([2**40])
    rows = pa.StructArray.from_arrays([hidden], ["a"], mask=pa.array([True]))
    items = pa.ListArray.from_arrays([0, 1], hidden, mask=pa.array([True]))
    found = _decode("r struct<a:int>, l array<int>", _row(r=rows, l=items))
    assert found.columns.to_pylist() == [{"r": None, "l": None}]


_GOOD = _row(n=5)
_BATCH = pa.record_batch({"n": [5]})
_TWICE = pa.record_batch([pa.array([1]), pa.array([2])], ["n", "n"])
_TREE = pa.union([pa.field("a", pa.int8())], "dense")


def _deep(levels: int) -> pa.Array:
    kind = pa.int64()
    for _ in range(levels):
        kind = pa.struct([("n", kind)])
    return pa.nulls(1, kind)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "the value is empty"),
        (END, "the value is empty"),
        (b"oops", "not an Arrow IPC stream"),
        (b"oops, too", "no message begins at byte 0"),
        (b'{"n": 5, "text": "a longer text of JSON"}', "no message begins at byte 0"),
        (_GOOD[8:], "no message begins at byte 0"),
        (_GOOD[:-16], "is not that of a message"),
        (_GOOD[:30], "is too long or not aligned"),
        (_GOOD + b"\0", "has 1 bytes after the end of the stream"),
        (_GOOD + _GOOD, "bytes after the end of the stream"),
        (_GOOD[:-8] + _GOOD, "not in its place"),
        (_stream(_BATCH.slice(0, 0)), "the value has 0 rows; it must have exactly one"),
        (_stream(_BATCH, _BATCH), "the value has 2 rows"),
        (_stream(pa.record_batch({"n": [1, 2, 3]})), "the value has 3 rows"),
        (_stream(_BATCH, *[_BATCH.slice(0, 0)] * 4096), "more than 4096 Arrow messages"),
        (_stream(_TWICE), "value has the field 'n' twice"),
        (_row(n=2**31), "value.n cannot become int32: Integer value 2147483648 not in range"),
        (_row(n=1.5), "value.n cannot become int32: Float value 1.5"),
        (_row(n="5"), "value.n cannot become int32: it is string"),
        (_row(n=True), "value.n cannot become int32: it is bool"),
        (_row(n=[5]), "value.n cannot become int32: it is list<item: int64>"),
        (_row(n=pa.array([[5]], pa.list_view(pa.int8()))), "value.n cannot become int32: it is "),
        (_row(n=pa.array([_AT])), "value.n cannot become int32: it is "),
        (_stream(pa.record_batch([pa.nulls(1, _TREE)], ["n"])), "value.n cannot become int32: it is "),
        (_row(n=pa.RunEndEncodedArray.from_arrays([1], [5])), "value.n cannot become int32: it is "),
        (_row(n=_deep(58)), "value.n cannot become int32: it is "),
        (_row(n=_deep(60)), "deeper than 60 levels"),
        (_row(**{f"c{number}": 1 for number in range(2001)}), "more than 2000 fields"),
        (_stream(_BATCH.replace_schema_metadata({b"k": b"x" * (1 << 20)})), "is too long"),
    ],
)  # fmt: skip
def test_a_bad_value_harms_no_other(value: bytes, why: str) -> None:
    before = pa.total_allocated_bytes()
    found = _decode("n int", None, _GOOD, value, _GOOD)
    assert [reason is None for reason in found.reasons.to_pylist()] == [True, True, False, True]
    assert why in found.reasons[2].as_py()
    assert found.columns.to_pylist() == [None, {"n": 5}, None, {"n": 5}]
    del found
    assert pa.total_allocated_bytes() <= before


@pytest.mark.parametrize(
    ("cell", "kind", "why"),
    [
        (pa.array([{"a": 2**40}]), "struct<a:int>", "value.f.a cannot become int32"),
        (pa.StructArray.from_arrays([pa.array([1])] * 2, ["a", "a"]), "struct<a:int>", "value.f has the"),
        (pa.array([[("a", 1), ("a", 2)]], _KEYS), "map<string,int>", "value.f has a key twice"),
        (pa.array([[(1, 1)]], pa.map_(pa.int8(), pa.int8())), "map<string,int>", "value.f key cannot become"),
        (pa.array([b"\xff"]), "string", "Invalid UTF8"),
        (pa.array([Decimal("1.23")]), "decimal(9,1)", "value.f cannot become decimal128(9, 1)"),
        (pa.array([7]), "decimal(9,2)", "Precision is not great enough"),
        (pa.array([2**53 + 1]), "double", "value.f cannot become double"),
        (pa.array([Decimal(100)], pa.decimal128(5, -2)), "bigint", "value.f cannot become int64: it is "),
        (pa.array([1], pa.timestamp("ns")), "timestamp", "would lose data"),
        (pa.array([1]), "timestamp", "value.f cannot become timestamp[us, tz=UTC]: it is int64"),
    ],
)  # fmt: skip
def test_a_cell_that_does_not_fit_makes_its_value_bad(cell: pa.Array, kind: str, why: str) -> None:
    (reason,) = _decode(f"f {kind}", _row(f=cell)).reasons.to_pylist()
    assert why in reason


def test_the_mark_of_the_end_may_be_missing_and_empty_batches_may_stand() -> None:
    empty = _BATCH.slice(0, 0)
    values = [_GOOD[:-8], _stream(empty, _BATCH, empty), _stream(_BATCH, compression="zstd")]
    assert _decode("n int", *values).columns.to_pylist() == [{"n": 5}] * 3


def test_a_compressed_buffer_may_not_claim_too_much() -> None:
    batch = pa.record_batch({"s": ["x" * 1000]})
    value = _stream(batch, compression="lz4")
    claim = (1000).to_bytes(8, "little") + b"\x04\x22\x4d\x18"
    assert value.count(claim) == 1
    forged = value.replace(claim, (1 << 40).to_bytes(8, "little") + claim[8:])
    before = pa.default_memory_pool().max_memory()
    found = _decode("s string", value, forged)
    assert found.reasons.to_pylist() == [None, "the value would become more than 268435456 bytes"]
    assert pa.default_memory_pool().max_memory() - before < 1 << 20


def test_buffers_count_together_and_those_of_columns_not_asked_for_too() -> None:
    value = _stream(
        pa.record_batch({f"c{number}": [b"\0" * (48 << 20)] for number in range(6)}), compression="zstd"
    )
    assert len(value) < 100_000
    found = _decode("c0 binary", value, _row(c0=b"x"))
    assert found.reasons.to_pylist() == ["the value would become more than 268435456 bytes", None]


def _nulls(count: int) -> pa.Array:
    return pa.ListArray.from_arrays([0, count], pa.nulls(count))


def _views(count: int, text: bytes) -> pa.Array:
    """Many views of one text."""
    view = len(text).to_bytes(4, "little") + text[:4] + bytes(8)
    return pa.Array.from_buffers(
        pa.string_view(), count, [None, pa.py_buffer(view * count), pa.py_buffer(text)]
    )


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        (_nulls(2**31 - 1), "array<int>"),
        (_nulls(20_000), f"array<struct<{','.join(f'c{number}:int' for number in range(1000))}>>"),
        (pa.FixedSizeListArray.from_arrays(pa.nulls(2**31 - 1), 2**31 - 1), "array<int>"),
        (pa.ListArray.from_arrays([0, 30_000], pa.DictionaryArray.from_arrays(
            pa.array([0] * 30_000, pa.int8()), ["x" * 10_000])), "array<string>"),
        (pa.ListArray.from_arrays([0, 30_000], _views(30_000, b"x" * 10_000)), "array<string>"),
    ],
)  # fmt: skip
def test_a_few_bytes_that_mean_many_are_bad_before_they_are_written(cell: pa.Array, kind: str) -> None:
    value = _row(f=cell)
    assert len(value) < 1 << 19
    before = pa.default_memory_pool().max_memory()
    found = _decode(f"f {kind}", value, _row(g=1))
    assert found.reasons.to_pylist() == ["the value would become more than 268435456 bytes", None]
    assert pa.default_memory_pool().max_memory() - before < 16 << 20


_ROWS = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**31), 2**31 - 1),
        "s": st.none() | st.text(max_size=5),
        "l": st.none() | st.lists(st.none() | st.sampled_from(["a", "b", ""]), max_size=3),
        "r": st.none() | st.fixed_dictionaries({"a": st.none() | st.integers(-9, 9)}),
        "m": st.none() | st.dictionaries(st.text(max_size=2), st.integers(-9, 9), max_size=3),
    }
)
_WRITERS: list[dict[str, pa.DataType]] = [
    {"n": pa.int64(), "s": pa.string(), "l": pa.list_(pa.string()), "r": pa.struct([("a", pa.int32())]),
     "m": pa.map_(pa.string(), pa.int16())},
    {"m": pa.map_(pa.large_string(), pa.int64()), "l": pa.list_(_WORDS), "x": pa.int8(),
     "r": pa.struct([("z", pa.string()), ("a", pa.int8())]), "n": pa.int32()},
    {"s": _WORDS, "l": pa.large_list(pa.string_view()), "n": pa.float64()},
]  # fmt: skip
_WANTED = "n int, s string, l array<string>, r struct<a:int>, m map<string,int>"


def _written(row: dict[str, Any], kinds: dict[str, pa.DataType], compression: str | None) -> bytes:
    cells = [pa.array([row.get(name)], kind) for name, kind in kinds.items()]
    return _stream(pa.record_batch(cells, list(kinds)), compression=compression)


def _read_back(row: dict[str, Any], kinds: dict[str, pa.DataType]) -> dict[str, Any]:
    found = {name: row[name] if name in kinds else None for name in row}
    return {**found, "m": None if found["m"] is None else list(found["m"].items())}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.none()
        | st.binary(max_size=12)
        | st.tuples(_ROWS, st.sampled_from(_WRITERS), st.sampled_from([None, "zstd", "lz4"])),
        max_size=10,
    )
)
def test_each_value_is_the_row_that_was_written(values: list[Any]) -> None:
    written = [_written(*value) if isinstance(value, tuple) else value for value in values]
    found = _decode(_WANTED, *written)
    rows = zip(values, found.columns.to_pylist(), found.reasons.to_pylist(), strict=True)
    for value, row, why in rows:
        if isinstance(value, tuple):
            assert (row, why) == (_read_back(*value[:2]), None)
        else:
            assert row is None
            assert (why is None) == (value is None)


_SOUND = [
    _written({"n": 7, "s": "text", "l": ["a", "b"], "r": {"a": 3}, "m": {"k": 5}}, kinds, compression)
    for kinds in _WRITERS
    for compression in (None, "zstd")
]
_OCTETS = st.binary(min_size=1, max_size=8) | st.sampled_from([b"\xff" * 4, bytes(8)])
_DAMAGE = st.tuples(st.integers(0, 2**16), _OCTETS)


def _damaged(value: bytes, damage: list[tuple[int, bytes]]) -> bytes:
    for place, octets in damage:
        at = place % len(value)
        value = value[:at] + octets + value[at + len(octets) :]
    return value


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.builds(_damaged, st.sampled_from(_SOUND), st.lists(_DAMAGE, max_size=2)), min_size=1, max_size=8
    )
)
def test_a_value_has_the_same_row_alone_and_beside_damaged_ones(values: list[bytes]) -> None:
    """The dumb twin: each value is decoded alone."""
    together = _decode(_WANTED, *values)
    for number, value in enumerate(values):
        alone = _decode(_WANTED, value)
        assert alone.columns[0] == together.columns[number]
        assert alone.reasons[0] == together.reasons[number]
        assert alone.columns[0].is_valid != alone.reasons[0].is_valid


def _next(metadata: bytearray, place: int) -> int:
    return place + int.from_bytes(metadata[place : place + 4], "little")


def test_parts_of_a_schema_count_as_often_as_they_are_used() -> None:
    """Each level has two fields. Both point to the same next level: 2^40 fields in a few kilobytes."""
    kind: pa.DataType = pa.int8()
    for _ in range(40):
        kind = pa.struct([("a", kind), ("b", pa.int8())])
    prefix, metadata = b"\xff" * 4, bytearray(pa.schema([("f", kind)]).serialize().to_pybytes()[8:])
    schema = Table(bytes(metadata), _next(metadata, 0), fields_max=5).table(2, fields_max=4)
    assert schema is not None
    fields = schema.target(1)
    shared = 0
    while fields is not None and metadata[fields]:
        first = _next(metadata, fields + 4)
        if metadata[fields] == 2:
            metadata[fields + 8 : fields + 12] = (first - fields - 8).to_bytes(4, "little")
            shared += 1
        fields = Table(bytes(metadata), first, fields_max=7).target(5)
    assert shared == 40
    batch = _row(f=1)[len(pa.schema([("f", pa.int64())]).serialize()) :]
    value = prefix + len(metadata).to_bytes(4, "little") + bytes(metadata) + batch
    assert len(value) < 20_000
    found = _decode("f int", value, _row(f=1))
    assert found.reasons.to_pylist() == ["the Arrow schema has more than 2000 fields", None]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({}, "valueFormat is 'arrow', but valueSchema is missing; give the fields, for example 'id bigint"),
        ({"valueSchema": "id integr"}, "valueSchema cannot be read near 'integr'"),
        ({"valueSchema": "id int", "timestampUnit": "ms"}, "timestampUnit has an effect only with"),
        ({"valueSchema": "id int", "valueMessage": "R"}, "valueMessage has an effect only with"),
    ],
)
def test_a_wrong_option_is_refused_with_a_sentence(wrong: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidRequest) as failure:
        parse_payload(Given({"valueFormat": "arrow", **wrong}, NAMES, lambda name: None))
    assert sentence in str(failure.value)

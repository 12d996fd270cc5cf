"""Columns to batch and back: every set of columns, every compression, both ways (F1, F5)."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from records import twin
from records.samples import (
    COLUMN_SETS,
    COMPRESSIONS,
    RECORDS,
    T0,
    columns_from,
    only,
    sample_batch,
)
from records.strategies import column_sets, compressions, records, u32
from tidelog.errors import BatchTooLarge, CorruptBatch, InvalidRequest
from tidelog.records import (
    BatchHeader,
    BatchLimits,
    Columns,
    Compression,
    decode_batch,
    encode_batch,
    schema_of,
    to_columns,
    validate_batch,
)
from tidelog.records.layout import COMPACTED
from tidelog.records.limits import BATCH_BYTES_HARD_MAX

LIMITS = BatchLimits()


@given(records, column_sets, compressions)
def test_an_encoded_batch_is_valid_and_decodes_to_the_same_records_as_for_the_twin(
    wanted: list[dict[str, Any]], present: Columns, compression: Compression
) -> None:
    batch = encode_batch(columns_from(wanted, present), compression=compression)

    header = validate_batch(batch, LIMITS, now_us=0)
    decoded = decode_batch(batch)

    assert header == BatchHeader.unpack(batch)
    assert decoded.schema == schema_of(present)
    assert twin.records_of(decoded) == only(wanted, present)
    assert twin.read_records(batch) == only(wanted, present)


@given(
    records,
    column_sets,
    compressions,
    st.integers(0, (1 << 64) - 2),
    u32,
    st.integers(0, (1 << 16) - 1),
)
def test_an_encoded_header_says_what_the_batch_holds(
    wanted: list[dict[str, Any]],
    present: Columns,
    compression: Compression,
    producer_id: int,
    base_sequence: int,
    producer_epoch: int,
) -> None:
    batch = encode_batch(
        columns_from(wanted, present),
        compression=compression,
        producer_id=producer_id,
        base_sequence=base_sequence,
        producer_epoch=producer_epoch,
    )

    times = [record["timestamp"] for record in wanted]
    assert twin.read_header(batch) == {
        "magic": b"TLB1",
        "length": len(batch),
        "base_offset": 0,
        "append_time_us": 0,
        "leader_epoch": 0,
        "header_crc": 0,
        "body_crc": twin.body_crc(batch),
        "attributes": int(compression) + int(present),
        "schema_version": 1,
        "record_count": len(wanted),
        "last_offset_delta": len(wanted) - 1,
        "producer_id": producer_id,
        "base_sequence": base_sequence,
        "producer_epoch": producer_epoch,
        "reserved": 0,
        "timestamp_min_us": min(times),
        "timestamp_max_us": max(times),
    }


@given(records, column_sets, compressions, st.data())
def test_a_slice_of_columns_encodes_as_those_records_alone(
    wanted: list[dict[str, Any]], present: Columns, compression: Compression, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(wanted) - 1))
    end = data.draw(st.integers(start + 1, len(wanted)))

    batch = encode_batch(columns_from(wanted, present)[start:end], compression=compression)

    validate_batch(batch, LIMITS, now_us=0)
    assert twin.read_records(batch) == only(wanted[start:end], present)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("present", COLUMN_SETS)
def test_decoded_columns_encode_to_the_bytes_they_came_from(
    present: Columns, compression: Compression
) -> None:
    batch = sample_batch(present, compression)

    assert encode_batch(decode_batch(batch), compression=compression) == batch


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_batch_that_is_larger_than_what_is_copied_to_open_it_decodes_the_same(
    compression: Compression,
) -> None:
    wanted = [
        {"value": (n * 2654435761 % (1 << 64)).to_bytes(8, "little") * 40, "timestamp": n}
        for n in range(3000)
    ]

    batch = encode_batch(columns_from(wanted, Columns.NONE), compression=compression)

    assert twin.records_of(decode_batch(batch)) == wanted
    validate_batch(batch, LIMITS, now_us=0)


def test_an_uncompressed_batch_is_decoded_without_a_copy() -> None:
    batch = pa.py_buffer(sample_batch())

    values = decode_batch(batch).column("value").buffers()[2]

    assert batch.address <= values.address < batch.address + batch.size


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_compacted_batch_decodes_with_its_offset_deltas(compression: Compression) -> None:
    schema = schema_of(Columns.KEY, compacted=True)
    wanted: list[dict[str, Any]] = [
        {"key": b"a", "value": b"1", "timestamp": T0, "offset_delta": 2},
        {"key": b"b", "value": None, "timestamp": T0, "offset_delta": 9},
    ]
    columns = pa.record_batch(
        [pa.array([one[name] for one in wanted], schema.field(name).type) for name in schema.names],
        schema=schema,
    )

    batch = encode_batch(columns, compression=compression, flags=COMPACTED)

    assert twin.records_of(decode_batch(batch)) == twin.read_records(batch) == wanted


def test_metadata_on_the_callers_schema_leaves_no_trace_in_the_batch() -> None:
    columns = columns_from(RECORDS, Columns.KEY)
    marked = columns.replace_schema_metadata({"pandas": "x" * 500})
    for compression in COMPRESSIONS:
        assert encode_batch(marked, compression=compression) == encode_batch(columns, compression=compression)


def test_a_batch_of_no_records_is_not_encoded() -> None:
    with pytest.raises(InvalidRequest, match="must have at least one"):
        encode_batch(columns_from([], Columns.NONE))


def test_a_batch_over_the_hard_bound_is_not_encoded() -> None:
    record = RECORDS[0] | {"value": bytes(BATCH_BYTES_HARD_MAX)}

    with pytest.raises(BatchTooLarge, match=str(BATCH_BYTES_HARD_MAX)):
        encode_batch(columns_from([record], Columns.NONE))


@pytest.mark.parametrize("size", [0, 1, 79, 80, 84])
def test_too_few_bytes_for_a_batch_are_a_typed_error_of_the_decoder(size: int) -> None:
    for compression in COMPRESSIONS:
        with pytest.raises(CorruptBatch):
            decode_batch(sample_batch(compression=compression)[:size])


def test_an_end_of_stream_marker_in_place_of_the_body_is_a_typed_error() -> None:
    for compression in COMPRESSIONS:
        header = sample_batch(compression=compression)[:80]
        with pytest.raises(CorruptBatch):
            decode_batch(header + b"\xff\xff\xff\xff\0\0\0\0")


# --- to_columns


def one(**columns: Any) -> list[dict[str, Any]]:
    return twin.records_of(to_columns(pa.record_batch(columns), now_us=T0))


@pytest.mark.parametrize(
    "type_", [pa.binary(), pa.large_binary(), pa.utf8(), pa.large_utf8(), pa.binary_view(), pa.string_view()]
)
def test_text_and_the_other_binary_types_become_binary(type_: pa.DataType) -> None:
    found = one(key=pa.array(["a", None], type_), value=pa.array(["x", None], type_))

    assert found == [
        {"key": b"a", "value": b"x", "timestamp": T0},
        {"key": None, "value": None, "timestamp": T0},
    ]


def test_dictionary_encoded_text_becomes_plain() -> None:
    found = one(value=pa.array(["a", "b", "a"]).dictionary_encode())

    assert [record["value"] for record in found] == [b"a", b"b", b"a"]


def test_a_missing_timestamp_is_now_and_a_missing_value_a_tombstone() -> None:
    assert one(key=pa.array([b"k"])) == [{"key": b"k", "value": None, "timestamp": T0}]


@pytest.mark.parametrize(
    "times",
    [
        pa.array([T0 + 1], pa.int64()),
        pa.array([T0 + 1], pa.timestamp("us")),
        pa.array([T0 + 1], pa.timestamp("us", tz="Europe/Berlin")),
        pa.array([(T0 + 1) * 1000], pa.timestamp("ns")),
    ],
)
def test_timestamps_of_other_kinds_become_utc_microseconds(times: pa.Array) -> None:
    assert one(value=pa.array([b""]), timestamp=times)[0]["timestamp"] == T0 + 1


def test_nanoseconds_that_would_be_lost_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="would lose data"):
        one(value=pa.array([b""]), timestamp=pa.array([T0 * 1000 + 1], pa.timestamp("ns")))


def test_columns_come_out_in_our_order_whatever_theirs() -> None:
    names = ["timestamp", "subject", "headers", "value", "key"]
    columns = columns_from(RECORDS, Columns.KEY | Columns.HEADERS | Columns.SUBJECT).select(names)

    assert to_columns(columns, now_us=0).schema.names == names[::-1]


def test_columns_of_the_right_schema_pass_as_they_are() -> None:
    columns = columns_from(RECORDS, Columns.KEY)

    assert to_columns(columns, now_us=0) is columns


def test_a_table_of_several_chunks_becomes_one_batch() -> None:
    columns = columns_from(RECORDS, Columns.KEY | Columns.HEADERS | Columns.SUBJECT)
    table = pa.Table.from_batches([columns[:1], columns[1:], columns])

    found = to_columns(table, now_us=0)

    assert twin.records_of(found) == RECORDS + RECORDS
    validate_batch(encode_batch(found), LIMITS, now_us=0)


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="must have at least one"):
        to_columns(pa.table({"value": pa.array([], pa.binary())}), now_us=0)


def test_headers_with_plain_field_types_convert() -> None:
    plain = pa.list_(pa.struct([("key", pa.utf8()), ("value", pa.binary())]))
    headers = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], []]

    found = one(value=pa.array([b"", b""]), headers=pa.array(headers, plain))

    assert [record["headers"] for record in found] == headers


PLAIN_HEADERS = pa.list_(pa.struct([("key", pa.utf8()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"colour": pa.array(["red"])}, "colour"),
        ({"Value": pa.array(["x"])}, "Value"),
        ({"offset_delta": pa.array([1], pa.uint32())}, "offset_delta"),
        ({"value": pa.array([1])}, "int64"),
        ({"value": pa.array([[b"x"]])}, "list"),
        ({"timestamp": pa.array(["yesterday"])}, "timestamp"),
        ({"timestamp": pa.array([1.5])}, "timestamp"),
        ({"timestamp": pa.array([None], pa.int64())}, "timestamp column has nulls"),
        ({"subject": pa.array([b"\xff"])}, "UTF8"),
        ({"headers": pa.array([1])}, "headers"),
        ({"headers": pa.array([None], PLAIN_HEADERS)}, "empty list"),
        ({"headers": pa.array([[None]], PLAIN_HEADERS)}, "key"),
        ({"headers": pa.array([[{"key": None}]], PLAIN_HEADERS)}, "key"),
        ({"headers": pa.array([[{"name": "a"}]])}, "headers"),
    ],
)
def test_columns_that_have_no_place_in_a_record_are_refused_by_name(
    columns: dict[str, pa.Array], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        one(**columns)


def test_nulls_hidden_behind_the_right_schema_are_refused() -> None:
    schema = schema_of(Columns.HEADERS)
    for headers in ([None], [[None]]):
        columns = pa.record_batch(
            [
                pa.array([b""]),
                pa.array(headers, schema.field("headers").type),
                pa.array([T0], schema.field("timestamp").type),
            ],
            schema=schema,
        )
        with pytest.raises(InvalidRequest, match="headers"):
            to_columns(columns, now_us=0)


def test_a_column_given_twice_is_refused() -> None:
    twice = pa.record_batch([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"])

    with pytest.raises(InvalidRequest, match="at most once"):
        to_columns(twice, now_us=0)


def test_a_time_of_day_in_utc_is_the_same_instant_in_the_batch() -> None:
    instant = dt.datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=dt.UTC)

    assert one(value=pa.array([b""]), timestamp=pa.array([instant]))[0]["timestamp"] == T0 + 5


@given(records, column_sets)
def test_columns_under_looser_types_convert_to_the_same_records(
    wanted: list[dict[str, Any]], present: Columns
) -> None:
    looser = {
        "key": pa.large_binary(),
        "value": pa.large_binary(),
        "headers": pa.large_list(pa.struct([("key", pa.large_utf8()), ("value", pa.large_binary())])),
        "subject": pa.large_utf8(),
        "timestamp": pa.int64(),
    }
    table = pa.table(
        {name: pa.array([r[name] for r in wanted], looser[name]) for name in schema_of(present).names}
    )

    assert twin.records_of(to_columns(table, now_us=0)) == only(wanted, present)

"""Projection of stored batches: the vectorised way beside an obviously right slow one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from records import twin
from records.samples import COMPRESSIONS, STREAM_ID, T0, columns_from
from records.strategies import column_sets, compressions
from tidelog.errors import CorruptBatch, DataCorrupt, InvalidRequest
from tidelog.model import Projection
from tidelog.records import HEADER_BYTES, BatchHeader, Columns, Compression, encode_batch, schema_of, stamp
from tidelog.records.layout import COMPACTED
from tidelog.records.projected import (
    PROJECTED_HEADER_BYTES,
    decode_projected,
    pack_projected,
    split_projected,
)
from tidelog.records.projecting import BytesNeeded, Projected, Projector
from tidelog.records.schema import COLUMNS_ORDER
from tidelog.records.subject_filter import SubjectFilter

ENOUGH = 1 << 40

tokens = st.sampled_from(["a", "b", "ab", "ü", "*x", "a+b", ""])
subjects = st.lists(tokens, min_size=1, max_size=4).map(".".join)
patterns = st.builds(
    lambda first, last: ".".join([*first, *last]),
    st.lists(st.sampled_from(["a", "b", "ab", "a+b", "ü", "*"]), min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
) | st.just(">")
keys = st.sampled_from([b"", b"k", b"l", b"\xff"])
record = st.fixed_dictionaries(
    {
        "key": st.none() | keys,
        "value": st.none() | st.binary(max_size=40),
        "headers": st.lists(
            st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)}),
            max_size=2,
        ),
        "subject": st.none() | subjects,
        "timestamp": st.integers(0, 9),
    }
)
batches = st.lists(record, min_size=1, max_size=12) | st.builds(
    lambda few, times: few * times, st.lists(record, min_size=1, max_size=4), st.integers(20, 60)
)


def matches(pattern: str, subject: str | None) -> bool:
    """The rule of NATS, token by token."""
    if subject is None:
        return False
    wanted, given_ = pattern.split("."), subject.split(".")
    if pattern == subject:
        return True
    if wanted[-1] == ">":
        rest = given_[len(wanted) - 1 :]
        if not rest or not all(rest):
            return False
        wanted, given_ = wanted[:-1], given_[: len(wanted) - 1]
    return len(wanted) == len(given_) and all(
        (one == "*" and other != "") or one == other for one, other in zip(wanted, given_, strict=True)
    )


def stored(
    records: list[dict[str, Any]],
    present: Columns,
    compression: Compression,
    base: int = 0,
    deltas: list[int] | None = None,
) -> tuple[BatchHeader, pa.Buffer]:
    """A batch as a broker stores it; `deltas`: it is compacted."""
    columns = columns_from(records, present)
    if deltas is not None:
        columns = pa.RecordBatch.from_arrays(
            [*columns.columns, pa.array(deltas, pa.uint32())], schema=schema_of(present, compacted=True)
        )
    data = encode_batch(columns, compression=compression, flags=0 if deltas is None else COMPACTED)
    head = stamp(data, stream_id=STREAM_ID, partition=0, base_offset=base, append_time_us=T0, leader_epoch=3)
    header = BatchHeader.unpack(head)
    if deltas is not None:
        header = header._replace(last_offset_delta=deltas[-1])
    return header, pa.py_buffer(data).slice(HEADER_BYTES)


def rows_of(found: Projected | BytesNeeded | None) -> list[dict[str, Any]]:
    """What a client makes of it, through the bytes on the wire."""
    if found is None:
        return []
    assert isinstance(found, Projected)
    head = pack_projected(
        STREAM_ID, 0, found.parts, start_offset=0, next_offset=1 << 40, leader_epoch=3,
        attributes=found.attributes, record_count=found.record_count,
    )  # fmt: skip
    ((header, body),) = split_projected(b"".join((head, *found.parts)), STREAM_ID, 0)
    columns = decode_projected(header, body)
    columns.validate(full=True)
    if "timestamp" in columns.schema.names:
        return twin.records_of(columns)
    rows: list[dict[str, Any]] = columns.to_pylist()
    return rows


@given(
    batches,
    column_sets,
    compressions,
    st.lists(st.sampled_from((*COLUMNS_ORDER, "offset")), unique=True),
    st.lists(patterns, max_size=3),
    st.lists(keys, max_size=2),
    st.data(),
)
def test_a_batch_is_projected_as_its_records_one_by_one_are(
    records: list[dict[str, Any]],
    present: Columns,
    compression: Compression,
    columns: list[str],
    wanted_subjects: list[str],
    wanted_keys: list[bytes],
    data: st.DataObject,
) -> None:
    count, base, deltas = len(records), data.draw(st.integers(0, 1 << 40)), None
    if data.draw(st.booleans()):
        steps = data.draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
        deltas = [sum(steps[: row + 1]) for row in range(count)]
    header, body = stored(records, present, compression, base, deltas)
    begin = data.draw(st.integers(base - 2, base + 3 * count))
    end = data.draw(st.integers(base - 2, base + 3 * count + 2))

    found = Projector(columns, wanted_subjects, wanted_keys).project(header, body, begin, end, ENOUGH)

    there = schema_of(present).names
    names = [name for name in COLUMNS_ORDER if name in there and (not columns or name in columns)]
    expected = []
    for row, one in enumerate(records):
        offset = base + (row if deltas is None else deltas[row])
        subject = one["subject"] if "subject" in there else None
        key = one["key"] if "key" in there else None
        if (
            begin <= offset < end
            and (not wanted_subjects or any(matches(pattern, subject) for pattern in wanted_subjects))
            and (not wanted_keys or key in wanted_keys)
        ):
            expected.append({**{name: one[name] for name in names}, "offset": offset})
    assert rows_of(found) == expected
    assert found is None or expected


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders", False),
        ("orders.*", "orders.eu.1", False),
        ("orders.*", "orders.", False),
        ("orders.>", "orders", False),
        ("orders.>", "orders.eu", True),
        ("orders.>", "orders.eu.1", True),
        ("orders.>", "orders..1", False),
        ("orders.>", "ordersxeu", False),
        ("*.eu", "orders.eu", True),
        ("*", "orders", True),
        ("*", "", False),
        (">", "$SYS.x", True),
        ("a+b.*", "a+b.c", True),
        ("a+b.*", "aab.c", False),
        ("größe.*", "größe.ä", True),
        ("*.b", "a\nx.b", True),
        ("a", "a\n", False),
        ("a.*", "a.b\n", True),
    ],
)
def test_a_wildcard_stands_for_whole_tokens(pattern: str, subject: str, expected: bool) -> None:
    found = SubjectFilter([pattern]).matches(pa.array([subject, None]))

    assert [bool(one) for one in found.to_pylist()] == [expected, False]
    assert matches(pattern, subject) is expected


@pytest.mark.parametrize("different", [1, 64, 65, 500])
def test_few_and_many_different_subjects_are_matched_alike(different: int) -> None:
    found = SubjectFilter(["s.*.7", "s.exact"])
    for base in range(0, 5000, different):
        names = [f"s.{n}.{n % 10}" + "x" * (n % 50) for n in range(base, base + different)]

        matched = found.matches(pa.array([*names, None, "s.exact", *names]))

        expected = [matches("s.*.7", name) for name in names]
        assert [bool(one) for one in matched.to_pylist()] == [*expected, False, True, *expected]


def large(compression: Compression) -> tuple[BatchHeader, pa.Buffer]:
    """A batch with columns that are told apart by their bytes."""
    records = [
        {"key": b"KEY%d" % n, "value": b"VALUE" * 50, "headers": [], "subject": "SUBJECT", "timestamp": n}
        for n in range(100)
    ]
    return stored(records, Columns.KEY | Columns.SUBJECT, compression)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_columns_that_are_not_wanted_are_not_sent(compression: Compression) -> None:
    header, body = large(compression)
    whole = Projector(["timestamp"], [], []).project(header, body, 0, 100, ENOUGH)
    filtered = Projector(["timestamp"], ["SUBJECT"], [b"KEY1", b"KEY2"]).project(header, body, 0, 100, ENOUGH)

    for found in (whole, filtered):
        assert isinstance(found, Projected)
        data = b"".join(found.parts)
        assert not any(text in data for text in (b"KEY", b"VALUE", b"SUBJECT"))
    assert [row["timestamp"] for row in rows_of(whole)] == [T0 - T0 + n for n in range(100)]
    assert [row["offset"] for row in rows_of(filtered)] == [1, 2]


def test_values_of_records_that_do_not_match_are_not_sent() -> None:
    records: list[dict[str, Any]] = [
        {
            "key": b"%d" % n,
            "value": b"SECRET" if n else b"told",
            "headers": [],
            "subject": None,
            "timestamp": n,
        }
        for n in range(9)
    ]
    header, body = stored(records, Columns.KEY, Compression.NONE)

    found = Projector([], [], [b"0"]).project(header, body, 0, 9, ENOUGH)
    assert isinstance(found, Projected)
    assert b"SECRET" not in b"".join(found.parts)
    for begin, end in ((0, 1), (-5, 1)):
        for keys_ in ([], [b"0"]):
            part = Projector([], [], keys_).project(header, body, begin, end, ENOUGH)
            assert isinstance(part, Projected)
            assert b"SECRET" not in b"".join(part.parts)


def test_a_batch_without_the_column_of_a_filter_is_not_opened() -> None:
    header, _ = stored([{"key": None, "value": b"x", "headers": [], "subject": None, "timestamp": 0}],
                       Columns.NONE, Compression.ZSTD)  # fmt: skip
    garbage = pa.py_buffer(b"\xff" * 80)

    assert Projector([], [">"], []).project(header, garbage, 0, 1, ENOUGH) is None
    assert Projector([], [], [b"k"]).project(header, garbage, 0, 1, ENOUGH) is None


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_what_a_batch_decodes_to_is_known_before_it_is_decoded(compression: Compression) -> None:
    records: list[dict[str, Any]] = [
        {"key": b"%d" % n, "value": bytes(20_000), "headers": [], "subject": None, "timestamp": n}
        for n in range(100)
    ]
    header, body = stored(records, Columns.KEY, compression)
    before = pa.total_allocated_bytes()

    found = Projector([], [], [b"1"]).project(header, body, 0, 100, 1 << 20)
    columns_alone = Projector(["key"], [], [b"1"]).project(header, body, 0, 100, 1 << 20)
    moved = Projector(["value"], [], []).project(header, body, 0, 100, 0)

    assert isinstance(found, BytesNeeded)
    assert found.bytes >= 2_000_000
    assert pa.total_allocated_bytes() - before < 100_000
    assert len(rows_of(columns_alone)) == 1
    assert isinstance(moved, Projected)
    assert sum(map(len, moved.parts)) < len(body) + 100 * 8 + 1000


# --- the frame


def framed() -> bytes:
    header, body = large(Compression.NONE)
    found = Projector(["key"], [], []).project(header, body, 0, 100, ENOUGH)
    assert isinstance(found, Projected)
    head = pack_projected(
        STREAM_ID, 5, found.parts, start_offset=7, next_offset=107, leader_epoch=3, append_time_us=T0,
        attributes=found.attributes, record_count=found.record_count,
    )  # fmt: skip
    nothing = pack_projected(STREAM_ID, 5, (), start_offset=107, next_offset=200, leader_epoch=4)
    return b"".join((head, *found.parts, nothing))


def test_projected_batches_follow_one_another_and_say_their_offsets() -> None:
    (first, body), (second, nothing) = split_projected(framed(), STREAM_ID, 5)

    assert (first.start_offset, first.next_offset, first.record_count) == (7, 107, 100)
    assert (first.leader_epoch, first.append_time_us) == (3, T0)
    assert decode_projected(first, body).num_rows == 100
    assert (second.start_offset, second.next_offset, second.record_count) == (107, 200, 0)
    assert (second.length, nothing.size) == (PROJECTED_HEADER_BYTES, 0)


@given(st.data())
def test_a_flipped_bit_anywhere_is_found(data: st.DataObject) -> None:
    whole = bytearray(framed())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises((CorruptBatch, DataCorrupt)):
        list(split_projected(bytes(whole), STREAM_ID, 5))


@pytest.mark.parametrize(("stream_id", "partition"), [(bytes(16), 5), (STREAM_ID, 4)])
def test_a_projected_batch_of_another_partition_is_refused(stream_id: bytes, partition: int) -> None:
    with pytest.raises(DataCorrupt, match="CRC"):
        list(split_projected(framed(), stream_id, partition))


def test_bytes_that_are_cut_short_are_refused() -> None:
    whole = framed()
    for length in (1, 47, 60, len(whole) - 1, len(whole) - 48 - 8):
        with pytest.raises(CorruptBatch):
            list(split_projected(whole[:length], STREAM_ID, 5))


def test_a_frame_whose_arrow_message_lies_about_its_rows_is_refused() -> None:
    header, body = large(Compression.NONE)
    found = Projector(["key"], [], []).project(header, body, 0, 100, ENOUGH)
    assert isinstance(found, Projected)
    for count, attributes in ((99, found.attributes), (100, found.attributes | 1 << 6)):
        head = pack_projected(
            STREAM_ID, 5, found.parts, start_offset=7, next_offset=107, leader_epoch=3,
            attributes=attributes, record_count=count,
        )  # fmt: skip
        ((claimed, message),) = split_projected(b"".join((head, *found.parts)), STREAM_ID, 5)
        with pytest.raises(CorruptBatch):
            decode_projected(claimed, message)


# --- what may be asked


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({}, "empty"),
        (
            {"columns": ("key", "colour")},
            "'colour'; a record has key, value, headers, subject, timestamp, offset",
        ),
        ({"columns": ("key", "key")}, "once"),
        ({"subject_filter": ("a.>.b",)}, "last token"),
        ({"subject_filter": ("a*",)}, "whole tokens"),
        ({"subject_filter": ("",)}, "is empty"),
        ({"subject_filter": ("a..b",)}, "a token is empty"),
        ({"subject_filter": ("a",) * 65}, "at most 64"),
        ({"subject_filter": ("a" * 1000,) * 5}, "at most 4096"),
        ({"subject_filter": ("\ud800",)}, "Unicode"),
        ({"keys": (b"k",) * 1001}, "at most 1000"),
        ({"keys": (b"k" * 1000,) * 66}, "at most 65536"),
    ],
)
def test_a_wrong_projection_is_refused_with_a_sentence(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        Projection(**wrong)


def test_a_filter_may_have_wildcards_over_reserved_subjects() -> None:
    assert Projection(subject_filter=("$SYS.>", "_INBOX.*")).subject_filter

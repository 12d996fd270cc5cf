"""Plain records written by hand, against protobuf's own writing of the same records; and their sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.records import Columns, Compression, encode_batch, schema_of, stamp
from tidelog_broker.api.plain_records import LargeRecord, PlainChunk
from tidelog_broker.api.protobuf_writing import varint
from tidelog_proto import common_pb2, log_pb2

HUGE = 1 << 40
Row = dict[str, Any]
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=300)), max_size=4)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | st.binary(max_size=20),
            "value": st.none() | st.binary(max_size=400),
            "headers": HEADERS,
            "subject": st.none() | st.text(max_size=20),
            "timestamp": st.integers(-(2**62), 2**62),
        }
    ),
    min_size=1,
    max_size=40,
)
COLUMNS = st.integers(0, 7).map(lambda bits: Columns(bits << 2))


def stored(
    rows: list[Row],
    columns: Columns = Columns.NONE,
    compression: Compression = Compression.NONE,
    offset: int = 0,
    epoch: int = 3,
) -> bytes:
    """A batch as it lies in a log."""
    schema = schema_of(columns)
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    data = encode_batch(pa.record_batch(arrays, schema=schema), compression=compression)
    head = stamp(
        data, stream_id=b"s" * 16, partition=0, base_offset=offset, append_time_us=77, leader_epoch=epoch
    )
    return head + data[80:]


def message_of(row: Row, columns: Columns, offset: int, epoch: int = 3) -> log_pb2.FetchedRecord:
    """What protobuf makes of it: the obviously right way."""
    record = common_pb2.Record(value=row["value"], timestamp_us=row["timestamp"])
    if columns & Columns.KEY and row["key"] is not None:
        record.key = row["key"]
    if columns & Columns.SUBJECT and row["subject"] is not None:
        record.subject = row["subject"]
    if columns & Columns.HEADERS:
        record.headers.extend(common_pb2.Header(name=name, value=value) for name, value in row["headers"])
    return log_pb2.FetchedRecord(offset=offset, leader_epoch=epoch, append_time_us=77, record=record)


def answers(chunk: PlainChunk, bytes_max: int = 1 << 20) -> Iterator[log_pb2.FetchResponse]:
    facts = log_pb2.FetchResponse(index=5, high_watermark=99).SerializeToString()
    while (piece := chunk.piece(facts, bytes_max)) is not None:
        if isinstance(piece, LargeRecord):
            assert piece.bytes > bytes_max
            piece = chunk.piece(facts, piece.bytes)
            assert piece is not None
            assert not isinstance(piece, LargeRecord)
        found = log_pb2.FetchResponse.FromString(piece.answer.SerializeToString())
        assert (found.index, found.high_watermark) == (5, 99)
        assert (found.next.offset, found.next.leader_epoch) == (piece.next_offset, piece.leader_epoch)
        assert found.records.records[-1].offset == piece.next_offset - 1
        yield found


def records(chunk: PlainChunk, bytes_max: int = 1 << 20) -> list[log_pb2.FetchedRecord]:
    return [one for answer in answers(chunk, bytes_max) for one in answer.records.records]


@given(st.integers(0, 2**64 - 1))
def test_numbers_are_written_as_protobuf_writes_them(number: int) -> None:
    assert b"\x08" + varint(number) == (log_pb2.Position(offset=number).SerializeToString() or b"\x08\x00")


@given(ROWS, COLUMNS, st.sampled_from(Compression), st.integers(0, 2**40), st.integers(1, 2000))
def test_records_read_as_protobuf_would_have_written_them(
    rows: list[Row], columns: Columns, compression: Compression, offset: int, bytes_max: int
) -> None:
    chunk = PlainChunk([stored(rows, columns, compression, offset)], 0, None, bytes_max=HUGE)
    expected = [message_of(row, columns, offset + number) for number, row in enumerate(rows)]
    assert records(chunk, bytes_max) == expected


@pytest.mark.parametrize("in_memory", [False, True])
def test_of_several_batches_the_wanted_range_comes(in_memory: bool) -> None:
    rows = [{"value": b"%d" % number, "timestamp": number} for number in range(30)]
    batches = [stored(rows[at : at + 10], offset=at, epoch=1 + at // 10) for at in (0, 10, 20)]
    parts: list[bytes | memoryview] = [b"".join(batches)]
    if in_memory:
        parts = [part for one in batches for part in (one[:80], one[80:])]
    found = records(PlainChunk(parts, 7, 23, bytes_max=HUGE))
    assert [one.offset for one in found] == list(range(7, 23))
    assert [one.record.value for one in found] == [b"%d" % number for number in range(7, 23)]
    assert {(one.offset // 10 + 1, one.leader_epoch) for one in found} == {(1, 1), (2, 2), (3, 3)}


def test_a_piece_keeps_to_its_size_and_a_larger_record_is_told_of_first() -> None:
    rows = [{"value": bytes(size), "timestamp": 1} for size in (100, 5000, 100_000, 100, 30_000, 30_000)]
    chunk = PlainChunk([stored(rows)], 0, None, bytes_max=HUGE)
    sizes = [[len(one.record.value) for one in answer.records.records] for answer in answers(chunk, 50_000)]
    assert sizes == [[100, 5000], [100_000], [100, 30_000], [30_000]]


def test_very_many_records_come_in_pieces_of_about_the_asked_size() -> None:
    chunk = PlainChunk([stored([{"value": b"", "timestamp": 1}] * 100_000)], 0, None, bytes_max=HUGE)
    sizes = [len(answer.SerializeToString()) for answer in answers(chunk, 64 << 10)]
    assert sum(sizes) > 1 << 20
    assert max(sizes) < 80 << 10


def test_a_record_with_very_many_headers_is_one_answer() -> None:
    headers = [("h", b"%d" % number) for number in range(50_000)]
    data = stored([{"value": None, "headers": headers, "timestamp": 1}], Columns.HEADERS)
    [found] = records(PlainChunk([data], 0, None, bytes_max=HUGE))
    assert [(one.name, one.value) for one in found.record.headers] == headers


def test_what_decoding_takes_is_known_before_anything_is_decoded() -> None:
    rows = [{"value": bytes(10_000_000), "timestamp": 1}]
    plain, packed = stored(rows), stored(rows, compression=Compression.ZSTD)
    assert len(packed) < 10_000
    assert PlainChunk([plain], 0, None, bytes_max=HUGE).bytes == len(plain)
    assert 10_000_000 < PlainChunk([packed], 0, None, bytes_max=HUGE).bytes - len(packed) < 10_001_000
    # Of two batches one is decoded at a time.
    second = stored(rows, compression=Compression.ZSTD, offset=1)
    assert PlainChunk([packed + second], 0, None, bytes_max=HUGE).bytes < 10_100_000


def test_a_chunk_ends_before_a_batch_that_needs_too_much_unless_it_is_the_first() -> None:
    small = stored([{"value": b"before", "timestamp": 1}])
    large = stored([{"value": bytes(1_000_000), "timestamp": 1}], compression=Compression.ZSTD, offset=1)
    chunk = PlainChunk([small + large], 0, None, bytes_max=100_000)
    assert chunk.stopped_at == 1
    assert chunk.bytes < 100_000
    assert [one.record.value for one in records(chunk)] == [b"before"]
    alone = PlainChunk([large], 0, None, bytes_max=100_000)
    assert (alone.stopped_at, alone.bytes > 1_000_000) == (None, True)


def test_what_was_dropped_gives_no_more_records() -> None:
    chunk = PlainChunk([stored([{"value": b"x" * 100, "timestamp": 1}] * 100)], 0, None, bytes_max=HUGE)
    assert chunk.piece(b"", 1000) is not None
    chunk.drop()
    assert chunk.piece(b"", 1000) is None

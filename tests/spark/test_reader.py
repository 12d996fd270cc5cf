"""What a task does with fetched batches, without Spark and without a broker."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Self, cast
from uuid import UUID

import pyarrow as pa
import pytest

from tidelog import FetchedBatch
from tidelog.errors import LogTruncated, OffsetOutOfRange, StreamNotFound, TidelogError
from tidelog.model import Position
from tidelog.records import BatchHeader, decode_batch, encode_batch, to_columns
from tidelog_spark.cluster import Cluster
from tidelog_spark.offsets import PartitionKey, Range
from tidelog_spark.options import Chosen, Options, Retries, parse
from tidelog_spark.payload import BadRecord
from tidelog_spark.pruning import Pruning
from tidelog_spark.reader import ROWS_WANTED, assemble, read_range, read_rows
from tidelog_spark.schema import arrow_schema, row_schema
from tidelog_spark.servers import SERVERS, Servers

ORDERS = UUID(int=1).bytes
SCHEMA = arrow_schema(row_schema(headers=True))


def _batch(
    base: int, columns: dict[str, Any], *, epoch: int = 1, deltas: Sequence[int] | None = None
) -> FetchedBatch:
    data = to_columns(pa.record_batch(columns), now_us=7)
    encoded = encode_batch(data)
    header = BatchHeader.unpack(encoded)._replace(base_offset=base, leader_epoch=epoch)
    gaps = None if deltas is None else pa.array(deltas, pa.uint32())
    after = base + (data.num_rows if deltas is None else deltas[-1] + 1)
    return FetchedBatch("orders", 2, header, decode_batch(encoded, header), base, after, gaps)


def _values(*values: bytes | None) -> dict[str, Any]:
    return {"value": pa.array(values, pa.binary())}


def test_batches_with_different_columns_join_into_one_of_exactly_the_schema() -> None:
    headers = [[{"key": "a", "value": b"1"}], []]
    found = assemble(
        [
            _batch(10, _values(b"a", None)),
            _batch(12, {**_values(b"c"), "key": pa.array([b"k"], pa.binary()), "subject": ["s"]}, epoch=3),
            _batch(13, {**_values(b"d", b"e"), "headers": headers}, epoch=3),
        ],
        SCHEMA,
    )
    found.validate(full=True)
    assert found.schema.equals(SCHEMA)
    assert found.column("offset").to_pylist() == [10, 11, 12, 13, 14]
    assert found.column("leader_epoch").to_pylist() == [1, 1, 3, 3, 3]
    assert found.column("key").to_pylist() == [None, None, b"k", None, None]
    assert found.column("value").to_pylist() == [b"a", None, b"c", b"d", b"e"]
    assert found.column("subject").to_pylist() == [None, None, "s", None, None]
    assert found.column("headers").to_pylist() == [[], [], [], *headers]
    assert found.column("stream").to_pylist() == ["orders"] * 5
    assert found.column("partition").to_pylist() == [2] * 5


def test_a_compacted_batch_keeps_its_gaps() -> None:
    found = assemble([_batch(10, _values(b"a", b"b"), deltas=[0, 4]), _batch(15, _values(b"c"))], SCHEMA)
    assert found.column("offset").to_pylist() == [10, 14, 15]


class _FakeReader:
    """Gives batches, or raises an error; its position is behind the last batch, or the given one."""

    def __init__(
        self, call: list[FetchedBatch] | TidelogError, start: Position, end: Position | None
    ) -> None:
        self._call = call
        self.positions = {2: end or start}
        self._fixed = end is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def fetched_batches(self) -> Iterator[FetchedBatch]:
        if isinstance(self._call, TidelogError):
            raise self._call
        for batch in self._call:
            if not self._fixed:
                self.positions = {2: batch.position}
            yield batch


class _FakeCluster:
    """Answers reads with the given batches or errors; one entry a read."""

    def __init__(self, *calls: list[FetchedBatch] | TidelogError, end: Position | None = None) -> None:
        self._calls = list(calls)
        self._end = end
        self.starts: list[Position] = []
        self.pruning: list[dict[str, Any]] = []

    def reader(self, piece: Range, start: Position, retries: Retries, **pruning: Any) -> _FakeReader:
        self.starts.append(start)
        self.pruning.append(pruning)
        return _FakeReader(self._calls.pop(0), start, self._end)


def _read(fake: _FakeCluster, piece: Range, *, fail: bool = True) -> list[pa.RecordBatch]:
    options = Options(Servers(("a:1",)), Chosen(("orders",)), fail_on_data_loss=fail)
    return list(read_range(cast(Cluster, fake), piece, SCHEMA, options))


def _piece(start: int, end: int, *, start_epoch: int | None = 1, end_epoch: int | None = 1) -> Range:
    return Range(PartitionKey("orders", 2), ORDERS, Position(start, start_epoch), Position(end, end_epoch))


def test_small_batches_are_joined_and_large_ones_passed_on() -> None:
    small = [_batch(number, _values(b"x")) for number in range(100)]
    large = _batch(100, _values(*[b"y"] * ROWS_WANTED))
    end = 100 + ROWS_WANTED
    found = _read(_FakeCluster([*small, large]), _piece(0, end))
    assert [batch.num_rows for batch in found] == [end]
    found = _read(_FakeCluster([large]), _piece(100, end))
    assert [batch.num_rows for batch in found] == [ROWS_WANTED]


@pytest.mark.parametrize(
    ("fake", "piece", "error", "sentence"),
    [
        (
            _FakeCluster(StreamNotFound("stream orders was deleted")),
            _piece(0, 2),
            StreamNotFound,
            "was deleted",
        ),
        (
            _FakeCluster(OffsetOutOfRange("gone")),
            _piece(0, 2),
            OffsetOutOfRange,
            "offsets 0–1 cannot be read",
        ),
        (_FakeCluster([_batch(0, _values(b"a"))]), _piece(0, 2), LogTruncated, "the log ends at offset 1"),
        (
            _FakeCluster([_batch(0, _values(b"a", b"b"), epoch=4)]),
            _piece(0, 2),
            LogTruncated,
            "has leader epoch 4; it had 1 when the range was planned",
        ),
    ],
)
def test_a_range_that_is_not_there_as_planned_fails(
    fake: _FakeCluster, piece: Range, error: type[TidelogError], sentence: str
) -> None:
    with pytest.raises(error, match=sentence) as failure:
        _read(fake, piece)
    assert "failOnDataLoss" in str(failure.value)


def test_without_failing_a_read_goes_on_behind_what_is_gone_and_warns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = _FakeCluster(OffsetOutOfRange("gone", log_start_offset=5), [_batch(5, _values(b"a", b"b"))])
    with caplog.at_level(logging.WARNING, "tidelog_spark"):
        (found,) = _read(fake, _piece(0, 7), fail=False)
    assert found.column("offset").to_pylist() == [5, 6]
    assert fake.starts == [Position(0, 1), Position(5)]
    assert "offsets 0–6 cannot be read in full" in caplog.text


def test_without_failing_another_history_is_read_by_offset() -> None:
    fake = _FakeCluster(LogTruncated("diverged", divergence_offset=3), [_batch(5, _values(b"a"), epoch=2)])
    (found,) = _read(fake, _piece(5, 6, end_epoch=None), fail=False)
    assert found.column("offset").to_pylist() == [5]
    assert fake.starts == [Position(5, 1), Position(5)]


def test_without_failing_what_is_gone_for_good_is_left_out() -> None:
    for fake in (
        _FakeCluster(StreamNotFound("stream orders was deleted")),
        _FakeCluster(OffsetOutOfRange("x", log_start_offset=9)),
    ):
        assert _read(fake, _piece(0, 7), fail=False) == []


def test_what_a_filter_leaves_out_at_the_end_of_a_range_is_not_lost() -> None:
    fake = _FakeCluster([_batch(3, _values(b"a"))], end=Position(900, 1))
    (found,) = _read(fake, _piece(0, 900))
    assert found.column("offset").to_pylist() == [3]
    assert _read(_FakeCluster([], end=Position(900, 1)), _piece(0, 900)) == []


@pytest.mark.parametrize(
    ("pruning", "names", "settings"),
    [
        (Pruning(), ("key", "value"), {}),
        (Pruning(columns=("timestamp", "offset", "key")), ("timestamp", "key"), ["key", "timestamp"]),
        (Pruning(columns=("partition",)), ("partition",), ["offset"]),
    ],
)
def test_brokers_are_asked_for_the_stored_columns_of_the_row(
    pruning: Pruning, names: tuple[str, ...], settings: Any
) -> None:
    assert pruning.reader_settings(names) == ({"columns": settings} if settings else {})


TYPED = {SERVERS: "a:1", "subscribe": "orders", "valueFormat": "json", "valueSchema": "n int"}
GOOD, BAD = b'{"n": 1}', b"oops"


def _rows(options: Options, *values: bytes | None, deltas: Sequence[int]) -> tuple[list[Any], dict[str, Any]]:
    """The rows of one batch from offset 12 that a broker filtered, and what it was asked for."""
    fake = _FakeCluster([_batch(12, _values(*values), deltas=deltas)], end=Position(900, 1))
    schema = row_schema(headers=False, columns=options.pruning.columns, payload=options.payload)
    batches = list(read_rows(cast(Cluster, fake), _piece(10, 900), arrow_schema(schema), options))
    assert all(batch.schema.equals(arrow_schema(schema)) for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()], fake.pruning[0]


@pytest.mark.parametrize(
    ("columns", "mode", "asked", "rows"),
    [
        (
            "offset,value",
            "drop",
            ["value"],
            [{"offset": 12, "value": {"n": 1}}, {"offset": 19, "value": None}],
        ),
        ("timestamp,partition", "drop", ["value", "timestamp"], None),
        (
            "_bad_record,offset",
            "column",
            ["value"],
            [
                {"_bad_record": None, "offset": 12},
                {
                    "_bad_record": {
                        "value": BAD,
                        "reason": "the value is not JSON: Expecting value: line 1 column 1 (char 0)",
                    },
                    "offset": 15,
                },
                {"_bad_record": None, "offset": 19},
            ],
        ),
    ],
)
def test_brokers_filter_and_send_values_that_tasks_decode(
    columns: str, mode: str, asked: list[str], rows: list[Any] | None
) -> None:
    options = parse({**TYPED, "columns": columns, "badRecords": mode, "subjectFilter": "orders.*.eu"})
    found, settings = _rows(options, GOOD, BAD, None, deltas=[0, 3, 7])
    assert settings == {"columns": asked, "subject_filter": ["orders.*.eu"]}
    assert len(found) == (2 if mode == "drop" else 3)
    assert rows is None or found == rows


def test_a_bad_record_fails_a_read_that_does_not_want_values() -> None:
    options = parse({**TYPED, "columns": "partition", "key": "k"})
    with pytest.raises(BadRecord, match="orders/2 at offset 15 cannot be decoded"):
        _rows(options, GOOD, BAD, deltas=[0, 3])
    found, settings = _rows(options, GOOD, GOOD, deltas=[0, 3])
    assert found == [{"partition": 2}] * 2
    assert settings == {"columns": ["value"], "keys": [b"k"]}

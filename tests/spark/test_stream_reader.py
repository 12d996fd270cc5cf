"""The streaming reader as PySpark calls it, against real brokers and without a query: what it plans."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from spark.samples import send, timed
from support.trio import Trio
from tidelog import blocking
from tidelog.errors import InvalidRequest, LogTruncated, OffsetOutOfRange, StreamNotFound, Unavailable
from tidelog_spark import cluster
from tidelog_spark.options import parse_batch, parse_stream
from tidelog_spark.reader import Split
from tidelog_spark.schema import row_schema
from tidelog_spark.servers import SERVERS
from tidelog_spark.source import TidelogReader
from tidelog_spark.stream import TidelogStreamReader

# The first test to ask for a session waits for its Java process as well.
pytestmark = pytest.mark.timeout(300)

Stream = Callable[..., str]
Planner = Callable[..., "_Planner"]
SCHEMA = row_schema(headers=False)


class _Planner:
    """A reader, and the position of its query; `clock` is what its clock shows."""

    def __init__(self, options: dict[str, str]) -> None:
        self.clock = 0.0
        self.reader = TidelogStreamReader(parse_stream(options), SCHEMA, clock=lambda: self.clock)
        self.at: dict[str, Any] = {}

    def start(self) -> _Planner:
        self.at = self.reader.initialOffset()
        return self

    def trigger(self) -> dict[str, int]:
        """Plans a micro-batch; the number of offsets in it by partition."""
        end = self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())
        pieces = [split.piece for split in self.reader.partitions(self.at, end) if isinstance(split, Split)]
        self.at = json.loads(json.dumps(end))
        return {str(key): sum(p.count for p in pieces if p.key == key) for key in {p.key for p in pieces}}


@pytest.fixture
def planner(brokers: Trio) -> Planner:
    """A planner at the start of its query."""

    def make(**options: str) -> _Planner:
        given = {SERVERS: brokers.address, "startingOffsets": "earliest", **options}
        return _Planner(given).start()

    return make


def _ranges(brokers: Trio, name: str, **options: str) -> dict[int, tuple[int, int]]:
    """The offsets that a batch read plans, by partition."""
    given = parse_batch({SERVERS: brokers.address, "subscribe": name, **options})
    pieces = [split.piece for split in TidelogReader(given, SCHEMA).partitions() if isinstance(split, Split)]
    return {piece.key.partition: (piece.start.offset, piece.end.offset) for piece in pieces}


# --- which streams


def test_a_pattern_chooses_whole_names_and_sees_streams_that_appear(
    log: blocking.Client, stream: Stream, planner: Planner
) -> None:
    one = stream()
    for name in (f"{one}-a", f"{one}-b", f"x-{one}-a"):
        log.create_stream(name, durability="page-cache")
        send(log, name, 3)
    query = planner(subscribePattern=f"{one}-[a-z]+")
    assert query.trigger() == {f"{one}-a/0": 3, f"{one}-b/0": 3}
    assert query.trigger() == {}
    log.create_stream(f"{one}-c", partitions=2, durability="page-cache")
    send(log, f"{one}-c", 4, partition=1)
    assert query.trigger() == {f"{one}-c/1": 4}


def test_a_pattern_never_chooses_internal_streams(planner: Planner) -> None:
    assert not any(name.startswith("__") for name in planner(subscribePattern=".*").at["streams"])


def test_a_pattern_without_a_stream_waits_for_one(
    log: blocking.Client, stream: Stream, planner: Planner
) -> None:
    name = f"{stream()}-later"
    query = planner(subscribePattern=name)
    assert query.trigger() == {}
    log.create_stream(name, durability="page-cache")
    send(log, name, 2)
    assert query.trigger() == {f"{name}/0": 2}


# --- start and end by time


def test_timestamps_bound_a_read_at_the_first_record_that_is_not_earlier(
    log: blocking.Client, stream: Stream, brokers: Trio
) -> None:
    name = stream()
    with log.producer(name) as producer:
        producer.send_batch(timed(10, minutes_apart=1))
    begin_ms = 1_772_404_200_000
    assert _ranges(brokers, name, startingTimestamp=str(begin_ms + 60_001)) == {0: (2, 10)}
    assert _ranges(brokers, name, endingTimestamp=str(begin_ms + 180_000)) == {0: (0, 3)}
    assert _ranges(brokers, name, endingTimestamp=str(begin_ms + 10**9)) == {0: (0, 10)}
    by_partition = {
        "startingOffsetsByTimestamp": json.dumps({name: {"0": begin_ms + 60_000}}),
        "endingOffsetsByTimestamp": json.dumps({name: {"0": begin_ms + 120_000}}),
    }
    assert _ranges(brokers, name, **by_partition, startingOffsets="earliest") == {0: (1, 2)}


def test_where_no_record_has_the_starting_time_the_strategy_decides(
    log: blocking.Client, stream: Stream, brokers: Trio, planner: Planner
) -> None:
    name = stream(2)
    with log.producer(name) as producer:
        producer.send_batch(timed(10, minutes_apart=1), partition=0)
    late = {"subscribe": name, "startingTimestamp": "1772404260000"}
    with pytest.raises(OffsetOutOfRange, match=f"for {name}/1, but no record there has this timestamp"):
        planner(**late)
    query = planner(**late, startingOffsetsByTimestampStrategy="latest")
    send(log, name, 5, partition=1)
    assert query.trigger() == {f"{name}/0": 9, f"{name}/1": 5}


def test_a_start_behind_the_end_is_a_sentence(log: blocking.Client, stream: Stream, brokers: Trio) -> None:
    name = stream()
    send(log, name, 100)
    start, end = (json.dumps({name: {"0": offset}}) for offset in (70, 30))
    with pytest.raises(InvalidRequest) as failure:
        _ranges(brokers, name, startingOffsets=start, endingOffsets=end)
    assert failure.value.message == (
        f"startingOffsets is 70 for {name}/0, which lies behind endingOffsets (30); the end must not lie "
        "before the start"
    )
    assert _ranges(brokers, name, startingOffsets=end, endingOffsets=start) == {0: (30, 70)}


# --- limits


def test_spark_learns_that_there_is_a_limit_and_once_ignores_it(
    log: blocking.Client, stream: Stream, planner: Planner
) -> None:
    name = stream()
    send(log, name, 100)
    for options, limit in (
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "9", "maxBytesPerTrigger": "8"}, ReadMaxRows(9)),
        ({"maxBytesPerTrigger": "8", "minOffsetsPerTrigger": "1"}, ReadMaxBytes(8)),
        ({"minOffsetsPerTrigger": "500"}, ReadMinRows(500)),
    ):
        query = planner(subscribe=name, **options)
        assert query.reader.getDefaultReadLimit() == limit
        end = query.reader.latestOffset(query.at, ReadAllAvailable())
        assert end["streams"][name]["partitions"]["0"]["offset"] == 100


def test_a_trigger_waits_for_enough_records_and_not_longer_than_its_delay(
    log: blocking.Client, stream: Stream, planner: Planner
) -> None:
    name = stream()
    send(log, name, 5)
    query = planner(
        subscribe=name, minOffsetsPerTrigger="20", maxOffsetsPerTrigger="25", maxTriggerDelay="10m"
    )
    assert query.trigger() == {f"{name}/0": 5}
    send(log, name, 19)
    assert query.trigger() == {}
    send(log, name, 11)
    assert query.trigger() == {f"{name}/0": 25}
    assert query.trigger() == {}
    query.clock = 600.0
    assert query.trigger() == {f"{name}/0": 5}


def test_available_now_reads_everything_whatever_the_smallest_number_is(
    log: blocking.Client, stream: Stream, planner: Planner
) -> None:
    name = stream()
    send(log, name, 45)
    query = planner(subscribe=name, minOffsetsPerTrigger="20", maxOffsetsPerTrigger="20")
    query.reader.prepareForTriggerAvailableNow()
    send(log, name, 100)
    assert [query.trigger() for _ in range(4)] == [{f"{name}/0": count} for count in (20, 20, 5)] + [{}]


def test_bytes_limit_a_trigger_and_a_task_to_whole_batches(
    log: blocking.Client, stream: Stream, planner: Planner
) -> None:
    name = stream()
    with log.producer(name) as producer:
        for _ in range(8):
            producer.send(b"v" * 100_000)
            producer.flush()
    query = planner(subscribe=name, maxBytesPerTrigger="350000", maxBytesPerPartition="150000")
    assert [query.trigger() for _ in range(4)] == [{f"{name}/0": count} for count in (3, 3, 2)] + [{}]
    whole = planner(subscribe=name, maxBytesPerPartition="250000")
    end = whole.reader.latestOffset(whole.at, ReadAllAvailable())
    pieces = [split.piece for split in whole.reader.partitions(whole.at, end) if isinstance(split, Split)]
    assert [piece.count for piece in pieces] == [2, 2, 2, 2]


def test_offsets_and_bytes_together_keep_to_both_limits(
    log: blocking.Client, stream: Stream, planner: Planner
) -> None:
    name = stream()
    with log.producer(name) as producer:
        for size in (100_000, 100_000, 100, 100, 100, 100):
            producer.send(b"v" * size)
            producer.flush()
    query = planner(subscribe=name, maxOffsetsPerTrigger="3", maxBytesPerTrigger="150000")
    assert [query.trigger() for _ in range(4)] == [{f"{name}/0": count} for count in (1, 3, 2)] + [{}]


# --- what is lost


@pytest.mark.parametrize("available_now", [False, True])
def test_a_deleted_stream_ends_the_query_only_if_loss_is_not_allowed(
    log: blocking.Client,
    stream: Stream,
    planner: Planner,
    caplog: pytest.LogCaptureFixture,
    available_now: bool,
) -> None:
    kept, deleted = stream(), stream()
    for name in (kept, deleted):
        send(log, name, 10)
    strict = planner(subscribe=f"{kept},{deleted}")
    lenient = planner(subscribe=f"{kept},{deleted}", failOnDataLoss="false")
    for query in (strict, lenient):
        assert query.trigger() == {f"{kept}/0": 10, f"{deleted}/0": 10}
    log.delete_stream(deleted)
    send(log, kept, 7)
    for query in (strict, lenient):
        if available_now:
            query.reader.prepareForTriggerAvailableNow()
    with pytest.raises(StreamNotFound, match=f"the partition {deleted}/0 .* no longer exists"):
        strict.trigger()
    with caplog.at_level(logging.WARNING, "tidelog_spark"):
        assert [lenient.trigger() for _ in range(2)] == [{f"{kept}/0": 7}, {}]
    assert caplog.text.count("records are lost") == 1
    log.create_stream(deleted, durability="page-cache")
    send(log, deleted, 4)
    if available_now:
        lenient.reader.prepareForTriggerAvailableNow()
    assert lenient.trigger() == {f"{deleted}/0": 4}


def test_a_stream_that_matched_the_pattern_and_is_gone_is_a_loss(
    log: blocking.Client, stream: Stream, planner: Planner
) -> None:
    prefix = stream()
    for name in (f"{prefix}-a", f"{prefix}-b"):
        log.create_stream(name, durability="page-cache")
        send(log, name, 2)
    strict = planner(subscribePattern=f"{prefix}-.*")
    lenient = planner(subscribePattern=f"{prefix}-.*", failOnDataLoss="false")
    log.delete_stream(f"{prefix}-a")
    with pytest.raises(StreamNotFound, match=f"{prefix}-a/0 .* no longer matches the pattern"):
        strict.trigger()
    assert lenient.trigger() == {f"{prefix}-b/0": 2}


def test_a_stream_deleted_while_available_now_reads_leaves_its_tasks_empty(
    log: blocking.Client, stream: Stream, planner: Planner
) -> None:
    kept, deleted = stream(), stream()
    for name in (kept, deleted):
        send(log, name, 10)
    query = planner(subscribe=f"{kept},{deleted}", failOnDataLoss="false", maxOffsetsPerTrigger="10")
    query.reader.prepareForTriggerAvailableNow()
    log.delete_stream(deleted)
    log.create_stream(deleted, durability="page-cache")
    send(log, deleted, 30)
    rows = []
    for _ in range(4):
        before = query.at
        query.trigger()
        for split in query.reader.partitions(before, query.at):
            rows += [row for batch in query.reader.read(split) for row in batch.to_pylist()]
    assert [(row["stream"], row["offset"]) for row in rows] == [(kept, offset) for offset in range(10)]
    assert query.trigger() == {}


def test_a_stream_that_a_restarted_query_names_for_the_first_time_must_exist(
    log: blocking.Client, stream: Stream, planner: Planner, brokers: Trio
) -> None:
    name = stream()
    send(log, name, 3)
    before = planner(subscribe=name)
    for fail in ("true", "false"):
        again = _Planner({SERVERS: brokers.address, "subscribe": f"{name},typo", "failOnDataLoss": fail})
        again.at = before.at
        if fail == "true":
            with pytest.raises(StreamNotFound, match="there is no stream typo"):
                again.trigger()
        else:
            assert again.trigger() == {f"{name}/0": 3}
    with pytest.raises(StreamNotFound, match="there is no stream typo"):
        planner(subscribe="typo", failOnDataLoss="false")


def test_a_log_that_ends_before_the_position_was_truncated(
    log: blocking.Client, stream: Stream, planner: Planner
) -> None:
    name = stream()
    send(log, name, 50)
    query = planner(subscribe=name)
    query.at["streams"][name]["partitions"]["0"] = {"epoch": 9, "first": 0, "offset": 90}
    with pytest.raises(LogTruncated, match="ends at offset 50, but the query has read up to 90"):
        query.trigger()
    lenient = planner(subscribe=name, failOnDataLoss="false")
    lenient.at = query.at
    assert lenient.trigger() == {}
    send(log, name, 6)
    assert lenient.trigger() == {f"{name}/0": 6}


# --- the report


def test_the_report_is_what_the_last_trigger_saw_and_asks_nobody(
    log: blocking.Client, stream: Stream, planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = stream()
    send(log, name, 50)
    query = planner(subscribe=name, maxOffsetsPerTrigger="20")
    assert query.reader.reportLatestOffset() is None
    query.trigger()
    monkeypatch.setattr(cluster, "of", lambda servers: pytest.fail("the report asks a broker"))
    report = query.reader.reportLatestOffset()
    assert report is not None
    partition = report["streams"][name]["partitions"]["0"]
    assert partition["offset"] - query.at["streams"][name]["partitions"]["0"]["offset"] == 30


# --- brokers that do not answer


def test_a_request_of_the_planner_is_repeated_as_often_as_the_options_say(
    log: blocking.Client,
    stream: Stream,
    planner: Planner,
    monkeypatch: pytest.MonkeyPatch,
    brokers: Trio,
) -> None:
    name = stream()
    failures = 0
    found = blocking.Client.find_positions

    def fail_twice(self: blocking.Client, starts: Any) -> Any:
        nonlocal failures
        if failures < 2:
            failures += 1
            raise Unavailable("no leader")
        return found(self, starts)

    monkeypatch.setattr(blocking.Client, "find_positions", fail_twice)
    with pytest.raises(Unavailable, match="no leader"):
        planner(subscribe=name, **{"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "0"})
    failures = 0
    planner(subscribe=name, **{"fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "0"})
    assert failures == 2

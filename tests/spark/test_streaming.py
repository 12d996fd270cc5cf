from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.samples import offsets, send
from support.trio import Trio
from tidelog import blocking
from tidelog_spark.failures import sentence_of
from tidelog_spark.servers import SERVERS

# The first test to ask for a session waits for its Java process as well.
pytestmark = pytest.mark.timeout(300)

DOCUMENT = Path(__file__).parents[2] / "docs/spark.md"

Stream = Callable[..., str]
Query = Callable[..., StreamingQuery]


@pytest.fixture
def query(spark: SparkSession, brokers: Trio, tmp_path: Path) -> Query:
    """A query from a stream to `tmp_path`/out with AvailableNow, begun and ended."""

    def run(name: str, **options: str) -> StreamingQuery:
        rows = spark.readStream.format("tidelog").option(SERVERS, brokers.address).option("subscribe", name)
        rows = rows.option("startingOffsets", "earliest").options(**options)
        writer = rows.load().writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        started = writer.trigger(availableNow=True).start()
        assert started.awaitTermination(120)
        return started

    return run


def _batches(started: StreamingQuery) -> list[int]:
    return [progress.numInputRows for progress in started.recentProgress if progress.numInputRows]


def _lags(started: StreamingQuery) -> list[int]:
    """Offsets that each batch left unread, by the function of docs/spark.md."""
    (code,) = re.findall(r"```python\n(import json\n.*?)```", DOCUMENT.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return [names["lag"](progress) for progress in started.recentProgress if progress.numInputRows]


def _written(spark: SparkSession, tmp_path: Path, name: str, partition: int = 0) -> list[int]:
    return offsets(spark.read.parquet(str(tmp_path / "out")), name, partition)


def test_available_now_reads_batches_of_the_limit_that_the_partitions_share(
    log: blocking.Client, stream: Stream, query: Query, spark: SparkSession, tmp_path: Path
) -> None:
    name = stream(2)
    send(log, name, 900, partition=0)
    send(log, name, 300, partition=1)
    started = query(name, maxOffsetsPerTrigger="400", minOffsetsPerTrigger="350")
    assert _batches(started) == [400, 400, 400]
    assert _lags(started) == [800, 400, 0]
    assert all(progress.processedRowsPerSecond > 0 for progress in started.recentProgress[:3])
    assert _written(spark, tmp_path, name, 0) == list(range(900))
    assert _written(spark, tmp_path, name, 1) == list(range(300))


@pytest.mark.long
def test_a_small_partition_is_read_beside_a_large_one_under_a_limit(
    log: blocking.Client, stream: Stream, query: Query, spark: SparkSession, tmp_path: Path
) -> None:
    name = stream(2)
    send(log, name, 5000, partition=0)
    send(log, name, 5, partition=1)
    assert _batches(query(name, maxOffsetsPerTrigger="2000")) == [2000, 2000, 1005]
    rows = spark.read.parquet(*(str(file) for file in (tmp_path / "out").glob("*.parquet")))
    first = json.loads((tmp_path / "checkpoint/offsets/0").read_text().splitlines()[-1])
    assert first["streams"][name]["partitions"]["1"]["offset"] == 5
    assert offsets(rows, name, 1) == list(range(5))


def test_a_second_run_reads_only_what_came_since_also_from_partitions_that_are_new(
    log: blocking.Client, stream: Stream, query: Query, spark: SparkSession, tmp_path: Path
) -> None:
    name = stream()
    send(log, name, 50)
    assert _batches(query(name)) == [50]
    assert _batches(query(name)) == []
    log.alter_stream(name, partitions=2)
    send(log, name, 7)
    send(log, name, 11, partition=1)
    assert _batches(query(name)) == [18]
    assert _written(spark, tmp_path, name, 0) == list(range(57))
    assert _written(spark, tmp_path, name, 1) == list(range(11))


def test_the_checkpoint_names_stream_id_offset_and_epoch(
    log: blocking.Client, stream: Stream, query: Query, tmp_path: Path
) -> None:
    name = stream()
    send(log, name, 50)
    query(name)
    document = json.loads((tmp_path / "checkpoint/offsets/0").read_text().splitlines()[-1])
    entry = document["streams"][name]
    assert entry["id"].replace("-", "") == log.describe_stream(name).stream_id.hex()
    epoch = log.describe_stream(name).partitions[0].leader_epoch
    assert entry["partitions"] == {"0": {"epoch": epoch, "first": 0, "offset": 50}}


@pytest.mark.long
def test_a_stream_created_anew_under_its_name_ends_the_query_unless_loss_is_allowed(
    log: blocking.Client, stream: Stream, query: Query, spark: SparkSession, tmp_path: Path
) -> None:
    name = stream()
    send(log, name, 30)
    query(name)
    log.delete_stream(name)
    log.create_stream(name, durability="page-cache")
    send(log, name, 40)
    with pytest.raises(StreamingQueryException) as failure:
        query(name)
    assert f"the stream {name} that this query read" in sentence_of(failure.value)
    assert "failOnDataLoss" in sentence_of(failure.value)
    assert _batches(query(name, failOnDataLoss="false")) == [40]
    assert _written(spark, tmp_path, name) == sorted([*range(30), *range(40)])


@pytest.mark.long
def test_available_now_ends_at_everything_though_it_is_less_than_the_smallest_batch(
    log: blocking.Client, stream: Stream, query: Query, spark: SparkSession, tmp_path: Path
) -> None:
    name = stream()
    send(log, name, 30)
    assert _batches(query(name, minOffsetsPerTrigger="1000", maxTriggerDelay="1h")) == [30]
    send(log, name, 5)
    assert _batches(query(name, minOffsetsPerTrigger="1000", maxTriggerDelay="1h")) == [5]
    assert _written(spark, tmp_path, name) == list(range(35))


@pytest.mark.long
def test_a_query_goes_on_without_a_deleted_stream_and_reads_a_new_one_from_its_start(
    log: blocking.Client, stream: Stream, query: Query, spark: SparkSession, tmp_path: Path
) -> None:
    kept, deleted = stream(), stream()
    for name in (kept, deleted):
        send(log, name, 20)
    both = f"{kept},{deleted}"
    assert sum(_batches(query(both))) == 40
    log.delete_stream(deleted)
    send(log, kept, 3)
    assert sum(_batches(query(both, failOnDataLoss="false"))) == 3
    log.create_stream(deleted, durability="page-cache")
    send(log, deleted, 8)
    assert sum(_batches(query(both, failOnDataLoss="false"))) == 8
    assert _written(spark, tmp_path, kept) == list(range(23))
    assert _written(spark, tmp_path, deleted) == sorted([*range(20), *range(8)])


@pytest.mark.long
def test_records_deleted_before_they_were_read_end_the_query_unless_loss_is_allowed(
    log: blocking.Client, stream: Stream, query: Query, spark: SparkSession, tmp_path: Path
) -> None:
    name = stream()
    send(log, name, 10)
    query(name)
    send(log, name, 90)
    log.delete_records(name, 0, 60)
    with pytest.raises(StreamingQueryException) as failure:
        query(name)
    assert f"{name}/0 begins at offset 60, but the query has read only up to 10" in sentence_of(failure.value)
    query(name, failOnDataLoss="false")
    assert _written(spark, tmp_path, name) == [*range(10), *range(60, 100)]


def test_a_query_that_goes_on_sees_new_records_and_stops(
    log: blocking.Client, stream: Stream, spark: SparkSession, brokers: Trio, tmp_path: Path
) -> None:
    name = stream()
    seen: list[Any] = []
    source = spark.readStream.format("tidelog").option(SERVERS, brokers.address).option("subscribe", name)
    rows = source.option("startingOffsets", "earliest").load()
    started = rows.writeStream.foreachBatch(lambda frame, number: seen.extend(frame.collect())).start()
    try:
        for round_number in range(2):
            send(log, name, 5)
            started.processAllAvailable()
            assert len(seen) == 5 * (round_number + 1)
    finally:
        started.stop()
    assert started.exception() is None


@pytest.mark.long
def test_a_running_query_follows_what_matches_its_pattern(
    log: blocking.Client, stream: Stream, spark: SparkSession, brokers: Trio
) -> None:
    """A partition, a stream, and a stream that is deleted and created again: each within the same run."""
    prefix = stream()
    one, two = f"{prefix}-one", f"{prefix}-two"
    log.create_stream(one, durability="page-cache")
    seen: list[tuple[str, int, int]] = []

    def take(frame: DataFrame, number: int) -> None:
        seen.extend((row.stream, row.partition, row.offset) for row in frame.collect())

    source = spark.readStream.format("tidelog").option(SERVERS, brokers.address)
    source = source.option("subscribePattern", f"{prefix}-.*").option("failOnDataLoss", "false")
    rows = source.option("startingOffsets", "earliest").option("columns", "stream,partition,offset").load()
    started = rows.writeStream.foreachBatch(take).start()
    expected: list[tuple[str, int, int]] = []

    def arrives(name: str, partition: int, count: int) -> None:
        send(log, name, count, partition=partition)
        expected.extend((name, partition, offset) for offset in range(count))
        started.processAllAvailable()
        assert sorted(seen) == sorted(expected)

    try:
        arrives(one, 0, 5)
        log.alter_stream(one, partitions=2)
        arrives(one, 1, 6)
        log.create_stream(two, durability="page-cache")
        arrives(two, 0, 7)
        log.delete_stream(two)
        started.processAllAvailable()
        log.create_stream(two, durability="page-cache")
        arrives(two, 0, 8)
    finally:
        started.stop()
    assert started.exception() is None

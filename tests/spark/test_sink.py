"""`df.write` and `df.writeStream` to real streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from support.trio import Trio
from tidelog import blocking
from tidelog_spark.failures import sentence_of
from tidelog_spark.servers import SERVERS

Write = Callable[..., None]


@pytest.fixture
def write(brokers: Trio) -> Write:
    def save(rows: DataFrame, stream: str, mode: str = "append", **options: str) -> None:
        writer = rows.write.format("tidelog").option(SERVERS, brokers.address).option("stream", stream)
        writer.options(**options).mode(mode).save()

    return save


def values(log: blocking.Client, stream: str) -> list[bytes | None]:
    return [record.value for record in log.reader(stream, follow=False)]


def numbers(log: blocking.Client, stream: str) -> list[int]:
    return sorted(int(value or b"") for value in values(log, stream))


def test_all_columns_arrive_as_they_were(
    spark: SparkSession, stream: Callable[..., str], log: blocking.Client, write: Write
) -> None:
    name = stream(3)
    rows = spark.range(4).selectExpr(
        "cast('k' as binary) as key",
        "if(id = 0, null, cast(id as string)) as value",
        "if(id = 1, null, array(named_struct('key', 'h', 'value', cast('v' as binary)))) as headers",
        "concat('orders.', id) as subject",
        "if(id = 2, null, timestamp_micros(id)) as timestamp",
        "if(id = 3, 1, 2) as partition",
    )

    write(rows.coalesce(1), name)

    found = {record.subject: record for record in log.reader(name, follow=False)}
    assert [found[f"orders.{number}"].value for number in range(4)] == [None, b"1", b"2", b"3"]
    assert [found[f"orders.{number}"].partition for number in range(4)] == [2, 2, 2, 1]
    assert found["orders.0"].headers == (("h", b"v"),)
    assert found["orders.1"].headers == ()
    assert found["orders.3"].timestamp_us == 3
    assert found["orders.2"].timestamp_us > 10**15
    assert {record.key for record in found.values()} == {b"k"}


def test_rows_go_to_the_partition_of_their_key_and_without_one_in_turn(
    spark: SparkSession, stream: Callable[..., str], log: blocking.Client, write: Write
) -> None:
    keyed, keyless, produced = stream(4), stream(4), stream(4)
    with log.producer(produced) as producer:
        for number in range(50):
            producer.send(b"x", key=b"%d" % number)

    write(spark.range(50).selectExpr("cast(id as string) as key", "'x' as value"), keyed)
    write(spark.range(40_000).selectExpr("cast(id as string) as value").coalesce(1), keyless)

    def places(name: str) -> dict[bytes | None, int]:
        return {record.key: record.partition for record in log.reader(name, follow=False)}

    assert places(keyed) == places(produced)
    sizes = sorted(end - start for start, end in log.offsets(keyless).values())
    assert sizes == [8192, 8192, 8192, 40_000 - 3 * 8192]
    assert numbers(log, keyless) == list(range(40_000))


def test_a_write_that_is_repeated_with_the_same_numbers_writes_nothing_twice(
    spark: SparkSession, stream: Callable[..., str], log: blocking.Client, write: Write
) -> None:
    name = stream(2)
    for batch_id in ("0", "0", "1", "1"):
        rows = spark.range(100).selectExpr(f"cast(id + {batch_id} * 100 as string) as value")
        write(rows, name, sinkId=f"sink-{name}", sinkBatchId=batch_id)

    assert numbers(log, name) == list(range(200))


@pytest.mark.long
def test_other_rows_under_the_same_numbers_end_the_write(
    spark: SparkSession, stream: Callable[..., str], log: blocking.Client, write: Write
) -> None:
    name = stream(1)
    given = {"sinkId": f"sink-{name}", "sinkBatchId": "0"}
    write(spark.range(100).selectExpr("cast(id as string) as value").coalesce(1), name, **given)

    with pytest.raises(PySparkException, match="writes batch 0 again with other rows"):
        write(spark.range(1, 101).selectExpr("cast(id as string) as value").coalesce(1), name, **given)
    with pytest.raises(PySparkException, match="again with other rows"):
        write(spark.range(100).selectExpr("cast(id as string) as value").where("id < 0"), name, **given)

    assert numbers(log, name) == list(range(100))


@pytest.mark.parametrize(
    ("rows", "options", "sentence"),
    [
        ("id", {}, "the rows have a column 'id'"),
        ("id as value", {}, "the column value is bigint; it must be binary or string"),
        ("'x' as key", {}, "the rows have no column 'value'"),
        # Spark repeats the task before it gives up.
        pytest.param(
            "'x' as value, 9 as partition",
            {},
            "a row has partition 9; the stream has partitions 0 to 0",
            marks=pytest.mark.long,
        ),
        ("'x' as value", {"mode": "overwrite"}, "a log cannot be overwritten"),
    ],
)
def test_rows_that_are_no_records_and_overwriting_get_a_sentence(
    spark: SparkSession,
    stream: Callable[..., str],
    write: Write,
    rows: str,
    options: dict[str, str],
    sentence: str,
) -> None:
    with pytest.raises(PySparkException) as failure:
        write(spark.range(3).selectExpr(*rows.split(", ")), stream(), **options)

    assert sentence in sentence_of(failure.value)


def copy(
    spark: SparkSession, brokers: Trio, source: str, target: str, checkpoint: Path, **options: str
) -> StreamingQuery:
    rows = (
        spark.readStream.format("tidelog")
        .option(SERVERS, brokers.address)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
    )
    writer = rows.select(F.col("value"), F.col("offset").cast("string").alias("key")).writeStream
    return (
        writer.format("tidelog")
        .option(SERVERS, brokers.address)
        .option("stream", target)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def test_a_streaming_query_copies_each_record_once_and_again_after_a_lost_commit(
    spark: SparkSession,
    brokers: Trio,
    stream: Callable[..., str],
    log: blocking.Client,
    tmp_path: Path,
) -> None:
    source, target = stream(2), stream(3)
    with log.producer(source) as producer:
        for number in range(300):
            producer.send_nowait(b"%d" % number, partition=number % 2)

    def run() -> None:
        copy(spark, brokers, source, target, tmp_path, maxOffsetsPerTrigger="150").awaitTermination()

    run()
    assert numbers(log, target) == list(range(300))
    _lose_the_last_commit(tmp_path)
    run()
    assert numbers(log, target) == list(range(300))


@pytest.mark.long
def test_an_old_sink_id_under_a_new_checkpoint_ends_the_query(
    spark: SparkSession,
    brokers: Trio,
    stream: Callable[..., str],
    log: blocking.Client,
    tmp_path: Path,
) -> None:
    source, target = stream(1), stream(1)
    with log.producer(source) as producer:
        for number in range(20):
            producer.send(b"%d" % number)

    def run(checkpoint: str) -> StreamingQuery:
        rows = (
            spark.readStream.format("tidelog")
            .option(SERVERS, brokers.address)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "10")
            .load()
            .select("value")
        )
        writer = rows.writeStream.format("tidelog").option(SERVERS, brokers.address).option("stream", target)
        writer = writer.option("sinkId", f"mine-{target}").option(
            "checkpointLocation", str(tmp_path / checkpoint)
        )
        return writer.trigger(availableNow=True).start()

    run("first").awaitTermination()
    with pytest.raises(PySparkException, match="give it a new sinkId"):
        run("second").awaitTermination()

    assert numbers(log, target) == list(range(20))


def _lose_the_last_commit(checkpoint: Path) -> None:
    """As if the driver had died behind the last row of the last batch."""
    numbers = [int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdigit()]
    for name in (f"{max(numbers)}", f".{max(numbers)}.crc"):
        (checkpoint / "commits" / name).unlink()


@pytest.mark.long
def test_other_tasks_in_a_batch_that_runs_again_end_the_query(
    spark: SparkSession,
    brokers: Trio,
    stream: Callable[..., str],
    log: blocking.Client,
    tmp_path: Path,
) -> None:
    source, target = stream(1), stream(2)
    with log.producer(source) as producer:
        for number in range(300):
            producer.send_nowait(b"%d" % number)
    copy(spark, brokers, source, target, tmp_path).awaitTermination()
    _lose_the_last_commit(tmp_path)

    with pytest.raises(PySparkException, match=r"again with other rows|does not stand in stream"):
        copy(spark, brokers, source, target, tmp_path, minPartitions="4").awaitTermination()


@pytest.mark.long
def test_a_sorted_shuffle_can_run_again_but_not_with_another_number_of_partitions(
    spark: SparkSession, stream: Callable[..., str], log: blocking.Client, write: Write
) -> None:
    name = stream(2)

    def run(partitions: int) -> None:
        before = spark.conf.get("spark.sql.shuffle.partitions")
        assert before is not None
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        # Otherwise Spark makes one task of few rows, whatever the number is.
        spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
        try:
            rows = spark.range(300).selectExpr("cast(id as string) as value")
            shuffled = rows.repartition("value").sortWithinPartitions("value")
            write(shuffled, name, sinkId=f"sink-{name}", sinkBatchId="0")
        finally:
            spark.conf.set("spark.sql.shuffle.partitions", before)
            spark.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")

    run(2)
    run(2)
    assert numbers(log, name) == list(range(300))
    with pytest.raises(PySparkException, match=r"again with other rows|does not stand in stream"):
        run(5)

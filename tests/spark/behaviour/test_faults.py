"""Brokers that are away, and a log that an unclean election has cut, under queries in Spark.

`test_failures` kills the leader and the Python process of a running task, `test_standalone` an executor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark.samples import offsets, send
from support.trio import Trio
from support.waiting import wait_until
from tidelog import blocking
from tidelog.errors import TidelogError
from tidelog_spark.failures import sentence_of
from tidelog_spark.servers import SERVERS

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

WAIT_SECONDS = 120.0
QUERY_SECONDS = 240


@contextmanager
def _cluster(folder: Path) -> Iterator[tuple[Trio, blocking.Client]]:
    """Three brokers that a test may kill."""
    trio = Trio(folder)
    try:
        trio.start()
        with blocking.connect(trio.addresses) as log:
            wait_until(lambda: len(log.describe_cluster().voters) == 3, "three voters", WAIT_SECONDS)
            yield trio, log
    finally:
        trio.stop()


@pytest.mark.parametrize("streaming", [False, True])
def test_brokers_that_are_not_there_are_named(spark: SparkSession, streaming: bool) -> None:
    reader = (spark.readStream if streaming else spark.read).format("tidelog")
    rows = reader.option(SERVERS, "127.0.0.1:1,127.0.0.1:2").option("subscribe", "orders").load()

    def read() -> None:
        if streaming:
            rows.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination(QUERY_SECONDS)
        else:
            rows.count()

    with pytest.raises(PySparkException) as failure:
        read()

    found = sentence_of(failure.value)
    assert "127.0.0.1:1" in found
    assert "127.0.0.1:2" in found
    assert "\n" not in found


def test_a_task_gives_up_when_no_broker_answers_for_its_time(
    spark: SparkSession, log: blocking.Client, tmp_path: Path
) -> None:
    """And the same frame reads on when the broker is back."""
    with _cluster(tmp_path) as (trio, client):
        client.create_stream("lonely", partitions=1, replicas=[[2]], replication_factor=1)
        send(client, "lonely", 5)
        reader = spark.read.format("tidelog").option(SERVERS, trio.address).option("subscribe", "lonely")
        rows = reader.option("fetchTimeoutMs", "1000").load()
        assert rows.count() == 5

        trio.brokers[2].kill()
        with pytest.raises(PySparkException) as failure:
            rows.count()
        assert "lonely/0" in sentence_of(failure.value)

        trio.brokers[2].start()
        patient = reader.option("fetchTimeoutMs", "60000").load()
        assert patient.count() == 5


def test_a_query_outlives_brokers_that_are_away_between_micro_batches(
    spark: SparkSession, log: blocking.Client, tmp_path: Path
) -> None:
    """All brokers are killed and come back: neither a report nor a plan ends the query."""
    with _cluster(tmp_path) as (trio, client):
        client.create_stream("orders", partitions=1)
        send(client, "orders", 5)
        seen: list[int] = []
        source = spark.readStream.format("tidelog").option(SERVERS, trio.address)
        rows = source.option("subscribe", "orders").option("startingOffsets", "earliest").load()
        query = rows.writeStream.foreachBatch(
            lambda frame, number: seen.extend(row.offset for row in frame.select("offset").collect())
        ).start()
        try:
            query.processAllAvailable()
            trio.kill()
            trio.start_again()
            send(client, "orders", 3)
            wait_until(
                lambda: len(seen) == 8, lambda: f"eight records: {seen}, {query.exception()}", WAIT_SECONDS
            )
            assert query.isActive
        finally:
            query.stop()
        assert query.exception() is None
        assert sorted(seen) == list(range(8))


class _Query:
    """A query with a checkpoint in a folder, which is run to the end of the stream."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self._spark, self._servers, self._folder = spark, servers, folder

    def run(self, **options: str) -> None:
        source = self._spark.readStream.format("tidelog").option(SERVERS, self._servers).options(**options)
        rows = source.option("subscribe", "orders").option("startingOffsets", "earliest").load()
        writer = rows.writeStream.format("parquet").option("path", str(self._folder / "out"))
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(QUERY_SECONDS)

    def forget_the_last_batch(self) -> None:
        """As if the driver had died behind its plan."""
        for pattern in ("checkpoint/commits/*0*", "out/_spark_metadata/*0*"):
            for file in self._folder.glob(pattern):
                file.unlink()

    def rows(self) -> DataFrame:
        return self._spark.read.parquet(str(self._folder / "out"))


@pytest.mark.parametrize("again", [False, True], ids=["behind-the-cut", "planned-before"])
def test_a_log_that_was_cut_ends_a_query_unless_loss_is_allowed(
    spark: SparkSession, log: blocking.Client, tmp_path: Path, again: bool
) -> None:
    """An unclean election: the new leader lacks the last records, and others take their offsets."""
    with _cluster(tmp_path) as (trio, client):
        client.create_stream(
            "orders", partitions=1, replicas=[[0, 2]], replication_factor=2, min_insync_replicas=1
        )
        send(client, "orders", 50)
        wait_until(lambda: _in_sync(client) == [0, 2], "two replicas in sync", WAIT_SECONDS)
        trio.brokers[2].kill()
        wait_until(lambda: _in_sync(client) == [0], "only broker 0 in sync", WAIT_SECONDS)
        send(client, "orders", 30)
        query = _Query(spark, trio.address, tmp_path)
        query.run()
        assert offsets(query.rows(), "orders") == list(range(80))
        if again:
            query.forget_the_last_batch()

        trio.brokers[0].kill()
        trio.brokers[2].start()
        wait_until(lambda: _elected(client, 2), "broker 2 leads", WAIT_SECONDS)
        send(client, "orders", 40)
        trio.brokers[0].start()
        wait_until(lambda: _in_sync(client) == [0, 2], "broker 0 follows", WAIT_SECONDS)

        with pytest.raises(PySparkException) as failure:
            query.run()
        found = sentence_of(failure.value)
        assert "orders/0" in found
        assert found.endswith("; set failOnDataLoss to false to continue without them")

        query.run(failOnDataLoss="false")
        assert offsets(query.rows(), "orders") == list(range(90))
        send(client, "orders", 5)
        query.run()
        assert offsets(query.rows(), "orders") == list(range(95))


def _in_sync(log: blocking.Client) -> list[int]:
    with suppress(TidelogError):
        return sorted(log.describe_stream("orders").partitions[0].isr)
    return []


def _elected(log: blocking.Client, broker: int) -> bool:
    """Asks for the election until the brokers know that no replica has everything."""
    with suppress(TidelogError):
        log.elect_unclean("orders", 0, broker)
    with suppress(TidelogError):
        return log.describe_stream("orders").partitions[0].leader == broker
    return False

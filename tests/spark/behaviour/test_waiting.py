"""`minOffsetsPerTrigger` and `maxTriggerDelay` in a running query: Trigger.AvailableNow ignores them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.samples import send
from support.trio import Trio
from support.waiting import wait_until
from tidelog import blocking
from tidelog_spark.servers import SERVERS

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


class _Running:
    """A query, and the number of rows of each micro-batch with rows."""

    def __init__(self, spark: SparkSession, servers: str, name: str, options: dict[str, str]) -> None:
        self.batches: list[int] = []
        source = spark.readStream.format("tidelog").option(SERVERS, servers).option("subscribe", name)
        rows = source.options(**options).option("startingOffsets", "earliest").load()
        self.query = rows.writeStream.foreachBatch(self._take).start()

    def _take(self, frame: DataFrame, number: int) -> None:
        if count := frame.count():
            self.batches.append(count)


@contextmanager
def _running(spark: SparkSession, servers: str, name: str, **options: str) -> Iterator[_Running]:
    running = _Running(spark, servers, name, options)
    try:
        yield running
    finally:
        running.query.stop()
    assert running.query.exception() is None


def test_a_micro_batch_waits_for_enough_offsets(
    spark: SparkSession, brokers: Trio, log: blocking.Client, stream: Callable[..., str]
) -> None:
    name = stream()
    send(log, name, 1)
    with _running(spark, brokers.address, name, minOffsetsPerTrigger="5") as running:
        running.query.processAllAvailable()
        assert running.batches == [1], "the first micro-batch does not wait"
        send(log, name, 4)
        running.query.processAllAvailable()
        assert running.batches == [1]
        send(log, name, 1)
        wait_until(lambda: running.batches == [1, 5], lambda: f"a micro-batch of five: {running.batches}")


def test_a_micro_batch_does_not_wait_longer_than_its_delay(
    spark: SparkSession, brokers: Trio, log: blocking.Client, stream: Callable[..., str]
) -> None:
    name = stream()
    send(log, name, 1)
    given = {"minOffsetsPerTrigger": "1000", "maxTriggerDelay": "100ms"}
    with _running(spark, brokers.address, name, **given) as running:
        running.query.processAllAvailable()
        send(log, name, 4)
        wait_until(lambda: running.batches == [1, 4], lambda: f"a micro-batch of four: {running.batches}")

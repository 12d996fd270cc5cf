"""Something dies while a task reads its range: the leader of the partition, or the Python process itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from spark.samples import offsets
from support.trio import Trio
from support.waiting import wait_until
from tidelog import blocking
from tidelog_spark.servers import SERVERS
from tidelog_spark.source import TidelogDataSource
from tidelog_spark.stream import TidelogStreamReader

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

RECORDS = 30_000
RECORD_BYTES = 1_000
"""The range of a task is then much longer than what a client fetches ahead."""


def _interrupted(name: str, hook: Callable[[], None]) -> type[DataSource]:
    """The format `name`: as `tidelog`, but each task calls `hook` behind its first batch."""

    class Reader(TidelogStreamReader):
        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            batches = super().read(partition)
            for number, batch in enumerate(batches):
                if number == 1:
                    hook()
                yield batch

    class Source(TidelogDataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def streamReader(self, schema: StructType) -> TidelogStreamReader:  # noqa: N802 - PySpark's name
            given = super().streamReader(schema)
            return Reader(given._options, schema)

    return Source


def _fill(log: blocking.Client, stream: str) -> None:
    with log.producer(stream) as producer:
        for first in range(0, RECORDS, 1000):
            values = [b"%0*d" % (RECORD_BYTES, number) for number in range(first, first + 1000)]
            producer.send_batch(pa.record_batch({"value": pa.array(values, pa.binary())}), partition=0)


def _run(spark: SparkSession, source: type[DataSource], servers: str, stream: str, folder: Path) -> None:
    spark.dataSource.register(source)
    rows = spark.readStream.format(source.name()).option(SERVERS, servers).option("subscribe", stream)
    rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(RECORDS // 2))
    writer = rows.load().writeStream.format("parquet").option("path", str(folder / "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(200)


def _check(spark: SparkSession, folder: Path, stream: str) -> None:
    rows = spark.read.parquet(str(folder / "out"))
    assert offsets(rows, stream) == list(range(RECORDS))
    assert rows.where("cast(value as string) != lpad(string(offset), 1000, '0')").count() == 0


def test_the_leader_dies_in_the_middle_of_a_task(
    spark: SparkSession, tmp_path: Path, brokers: Trio, log: blocking.Client
) -> None:
    reading, killed = str(tmp_path / "reading"), str(tmp_path / "killed")

    def wait_for_the_kill() -> None:
        if not os.path.exists(reading):
            Path(reading).touch()
            deadline = time.monotonic() + 60
            while not os.path.exists(killed) and time.monotonic() < deadline:
                time.sleep(0.01)

    trio = Trio(tmp_path)
    try:
        trio.start()
        with blocking.connect(trio.addresses) as client:
            described = client.create_stream("orders", partitions=1, replication_factor=3)
            _fill(client, "orders")
            leader = described.partitions[0].leader
            assert leader is not None

        def kill() -> None:
            wait_until(lambda: os.path.exists(reading), "a task reads", 120)
            trio.brokers[leader].kill()
            Path(killed).touch()

        killer = Thread(target=kill)
        killer.start()
        source = _interrupted("tidelog-held", wait_for_the_kill)
        _run(spark, source, ",".join(trio.addresses), "orders", tmp_path)
        killer.join()
        assert not trio.brokers[leader].running
    finally:
        trio.stop()
    _check(spark, tmp_path, "orders")


def test_the_python_process_of_a_task_is_killed_in_the_middle(
    spark: SparkSession,
    tmp_path: Path,
    brokers: Trio,
    log: blocking.Client,
    stream: Callable[..., str],
) -> None:
    name, dead = stream(), str(tmp_path / "dead")
    _fill(log, name)

    def die_once() -> None:
        if not os.path.exists(dead):
            Path(dead).write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)

    _run(spark, _interrupted("tidelog-killed", die_once), brokers.address, name, tmp_path)
    assert Path(dead).exists()
    _check(spark, tmp_path, name)

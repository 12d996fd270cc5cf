"""One attempt at a job: a streaming query whose micro-batches go to a target of `tidelog_spark.lake`.

The identity of the query is in its checkpoint. The target knows the same identity, so a batch that runs
again, in this process or in another, is found there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from tidelog.errors import InvalidRequest
from tidelog_spark.jobs.config import Job, PartitionBy
from tidelog_spark.jobs.dead_letters import DeadLetterStream
from tidelog_spark.jobs.reporting import Report, say
from tidelog_spark.jobs.stopping import Stop
from tidelog_spark.lake.batches import REPORT_DDL, Batches, Order, Target, stage
from tidelog_spark.lake.columns import name_in_table
from tidelog_spark.lake.folders import TIME_COLUMN, Partitioning, Time
from tidelog_spark.lake.parquet import DeadLetters, ParquetLake
from tidelog_spark.lake.stores import ObjectStore, folder_at
from tidelog_spark.session import local_session
from tidelog_spark.source import register

PROGRESS_SECONDS: Final = 1
"""How often the driver looks whether the query has ended or has finished a batch."""

CREDENTIALS_FILE: Final = "AWS_SHARED_CREDENTIALS_FILE"
"""Where the AWS libraries, in Python and in Java, look for a file with credentials."""


class Attempt:
    """A query from its start to its end."""

    def __init__(self, spark: SparkSession, job: Job, report: Report, stop: Stop) -> None:
        self._spark, self._job, self._report, self._stop = spark, job, report, stop
        self._batches: Batches | None = None
        self._dead_stream: DeadLetterStream | None = None
        self._last_progress = -1
        self.failure: Exception | None = None
        """What a batch raised; Spark's own error has only its text."""
        self.succeeded = 0
        """Batches that this attempt finished."""

    def run(self) -> None:
        """Returns when the query has ended by itself; raises what ended it, or `Stopped`."""
        query = self._start()
        try:
            while not query.awaitTermination(PROGRESS_SECONDS):
                self._stop.check()
                self._tell(query)
            self._tell(query)
        finally:
            query.stop()

    def _start(self) -> StreamingQuery:
        job = self._job
        rows = self._spark.readStream.format("tidelog").options(**job.source_options).load()
        writer = rows.writeStream.foreachBatch(self._write).queryName("tidelog-ingest")
        writer = writer.option("checkpointLocation", hadoop_url(job.checkpoint))
        if job.trigger is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(job.trigger.interval * 1000)} milliseconds").start()

    def _write(self, frame: DataFrame, batch: int) -> None:
        try:
            if self._batches is None:
                self._batches = self._open(frame)
            send_bad = None
            if self._dead_stream is not None:
                send_bad = partial(self._dead_stream.send, frame, batch)
            outcome = self._batches.write(batch, _runner(frame), send_bad)
        except Exception as error:
            self.failure = error
            raise
        self.succeeded += 1
        self._report.add(outcome.counts)
        self._report.save()
        say("batch", batch=batch, again=outcome.again, **outcome.counts)

    def _open(self, frame: DataFrame) -> Batches:
        context = self._spark.sparkContext
        query = context.getLocalProperty("sql.streaming.queryId")
        assert query is not None, "Spark sets it in the thread of the query"
        schema = to_arrow_schema(frame.schema, timezone="UTC")
        job = self._job
        dead = None
        letters = job.dead_letter
        if letters is not None and letters.path is not None:
            by_day = Partitioning(Time.DAY if TIME_COLUMN in schema.names else Time.NONE)
            dead = DeadLetters(folder_at(letters.path, store_of(job)), by_day, query)
        if letters is not None and letters.stream is not None:
            self._dead_stream = DeadLetterStream(job.servers, letters.stream, query, schema.names)
        target = target_of(job, query, name_in_table(TIME_COLUMN, schema))
        batches = Batches(target, dead, without_bad=letters is not None)
        batches.open(schema)
        say("opened", query=query, columns=schema.names)
        return batches

    def _tell(self, query: StreamingQuery) -> None:
        """Notes the offsets and the lag of the batches that have ended since the last call."""
        for progress in query.recentProgress:
            if progress.batchId <= self._last_progress or not progress.sources:
                continue
            self._last_progress = progress.batchId
            reached, lag = position(progress.sources[0].endOffset, progress.sources[0].latestOffset)
            self._report.offsets = reached
            self._report.lag = lag
            self._report.save()
            say("progress", batch=progress.batchId, lag=lag, rowsPerSecond=progress.processedRowsPerSecond)


def _runner(frame: DataFrame) -> Callable[[Order], Iterable[Mapping[str, Any]]]:
    def run(order: Order) -> Iterable[Mapping[str, Any]]:
        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return stage(batches, order)

        return [row.asDict() for row in frame.mapInArrow(task, REPORT_DDL).collect()]

    return run


def target_of(job: Job, query: str, time_column: str) -> Target:
    """The lake or the table of the job, where `time_column` has the time of the record."""
    store = store_of(job)
    if job.sink.parquet is not None:
        lake = job.sink.parquet
        by = partitioning(lake.partition_by, time_column)
        return ParquetLake(folder_at(lake.path, store), by, query, compact=lake.compact_small_files)
    assert job.sink.iceberg is not None, "the configuration was checked"
    # Only here, because PyIceberg takes a second to import, and a Parquet lake does not need it.
    from tidelog_spark.lake.iceberg import IcebergTable, TableName, catalog_properties

    table = job.sink.iceberg
    properties = catalog_properties(
        table.catalog.type, table.catalog.uri, table.catalog.warehouse, table.catalog.properties
    )
    by = partitioning(table.partition_by, time_column)
    return IcebergTable(TableName(table.table, properties), store, by, query)


def partitioning(section: PartitionBy, time_column: str) -> Partitioning:
    return Partitioning(section.time, tuple(section.columns), time_column)


def store_of(job: Job) -> ObjectStore:
    return ObjectStore(job.object_store.endpoint, job.object_store.region)


def position(end: str | None, latest: str | None) -> tuple[dict[str, dict[str, int]], int | None]:
    """The next offset of each partition, and how many offsets are behind them in the streams."""
    reached, ends = _offsets(end), _offsets(latest)
    if not ends:
        return reached, None
    lag = 0
    for stream, partitions in ends.items():
        for number, offset in partitions.items():
            lag += max(0, offset - reached.get(stream, {}).get(number, 0))
    return reached, lag


def _offsets(text: str | None) -> dict[str, dict[str, int]]:
    document = json.loads(text) if text else None
    if not isinstance(document, dict):
        return {}
    return {
        stream: {number: place["offset"] for number, place in entry["partitions"].items()}
        for stream, entry in document.get("streams", {}).items()
    }


def hadoop_url(path: str) -> str:
    """The path as Hadoop's file systems call it."""
    return "s3a://" + path.removeprefix("s3://") if path.startswith("s3://") else path


@contextmanager
def session(job: Job, master: str | None) -> Iterator[SparkSession]:
    """The session of spark-submit, or one on this machine, with the job's settings."""
    store = job.object_store
    settings = dict(job.spark_conf)
    if store.credentials_file is not None:
        if not os.access(store.credentials_file, os.R_OK):
            raise InvalidRequest(f"objectStore.credentialsFile {store.credentials_file} cannot be read")
        os.environ[CREDENTIALS_FILE] = store.credentials_file
        settings.setdefault(f"spark.executorEnv.{CREDENTIALS_FILE}", store.credentials_file)
    settings |= {name: value for name, value in s3a_settings(job).items() if name not in settings}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        chosen = master or settings.pop("spark.master", "local[*]")
        with local_session("tidelog-ingest", master=chosen, settings=settings, log_level="off") as spark:
            yield spark
        return
    builder = SparkSession.builder.appName("tidelog-ingest")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def s3a_settings(job: Job) -> dict[str, str]:
    """Hadoop's settings for a checkpoint in the store; empty without one."""
    if not job.checkpoint.startswith(("s3://", "s3a://")):
        return {}
    store = job.object_store
    found = {}
    if store.endpoint is not None:
        found["spark.hadoop.fs.s3a.endpoint"] = store.endpoint
        found["spark.hadoop.fs.s3a.path.style.access"] = "true"
        secure = str(store.endpoint.startswith("https://")).lower()
        found["spark.hadoop.fs.s3a.connection.ssl.enabled"] = secure
    if store.region is not None:
        found["spark.hadoop.fs.s3a.endpoint.region"] = store.region
    if store.credentials_file is not None:
        provider = "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
        found["spark.hadoop.fs.s3a.aws.credentials.provider"] = provider
    return found

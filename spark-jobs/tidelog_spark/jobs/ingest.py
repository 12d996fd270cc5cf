"""One attempt at a job: a streaming query whose micro-batches go to a target of `tidelog_spark.lake`.

The identity of the query is in its checkpoint. The target knows the same identity, so a batch that runs
again, in this process or in another, is found there.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tidelog_spark.jobs.config import Job, PartitionBy
from tidelog_spark.jobs.dead_letters import DeadLetterStream
from tidelog_spark.jobs.following import follow, query_id, read_stream, start
from tidelog_spark.jobs.reporting import Report, say
from tidelog_spark.jobs.sessions import store_of
from tidelog_spark.jobs.staging import runner
from tidelog_spark.jobs.stopping import Stop
from tidelog_spark.jobs.targets import check_target
from tidelog_spark.lake.batches import Batches, Target
from tidelog_spark.lake.columns import name_in_table
from tidelog_spark.lake.folders import TIME_COLUMN, Partitioning, Time
from tidelog_spark.lake.parquet import DeadLetters, ParquetLake
from tidelog_spark.lake.stores import folder_at

NAME: Final = "tidelog-ingest"
"""Of the query, and of the program in Spark."""

COUNTS: Final = ("rows", "deadLetters", "files", "bytes")
"""What the report counts from its beginning on."""


class Attempt:
    """A query from its start to its end."""

    def __init__(self, spark: SparkSession, job: Job, report: Report, stop: Stop) -> None:
        self._spark, self._job, self._report, self._stop = spark, job, report, stop
        self._batches: Batches | None = None
        self._dead_stream: DeadLetterStream | None = None
        self.failure: Exception | None = None
        """What a batch raised; Spark's own error has only its text."""
        self.succeeded = 0
        """Batches that this attempt finished."""

    def run(self) -> None:
        """Returns when the query has ended by itself; raises what ended it, or `Stopped`."""
        letters = self._job.dead_letter
        if letters is not None and letters.stream is not None:
            check_target(self._job.servers, letters.stream, "deadLetter.stream", self._job.source.pattern)
        query = start(read_stream(self._spark, self._job), self._job, NAME, self._write)
        follow(self._spark, query, self._report, self._stop)

    def _write(self, frame: DataFrame, batch: int) -> None:
        try:
            if self._batches is None:
                self._batches = self._open(frame)
            send_bad = None
            if self._dead_stream is not None:
                send_bad = partial(self._dead_stream.send, frame, batch)
            outcome = self._batches.write(batch, runner(frame), send_bad)
        except Exception as error:
            self.failure = error
            raise
        self.succeeded += 1
        self._report.add(outcome.counts)
        self._report.save()
        say("batch", batch=batch, again=outcome.again, **outcome.counts)

    def _open(self, frame: DataFrame) -> Batches:
        query = query_id(self._spark)
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


def target_of(job: Job, query: str, time_column: str) -> Target:
    """The lake or the table of the job, where `time_column` has the time of the record."""
    store = store_of(job)
    if job.sink.parquet is not None:
        lake = job.sink.parquet
        by = partitioning(lake.partition_by, time_column)
        return ParquetLake(folder_at(lake.path, store), by, query, compact=lake.compact_small_files)
    assert job.sink.iceberg is not None, "the configuration was checked"
    # Only here, because PyIceberg takes a second to import, and a Parquet lake does not need it.
    from tidelog_spark.lake.iceberg import IcebergTable, TableName, Upkeep, catalog_properties

    table = job.sink.iceberg
    properties = catalog_properties(
        table.catalog.type, table.catalog.uri, table.catalog.warehouse, table.catalog.properties
    )
    by = partitioning(table.partition_by, time_column)
    age = table.expire_snapshots_older_than
    upkeep = Upkeep(table.compact_small_files, None if age is None else timedelta(seconds=age))
    return IcebergTable(TableName(table.table, properties), store, by, query, upkeep)


def partitioning(section: PartitionBy, time_column: str) -> Partitioning:
    return Partitioning(section.time, tuple(section.columns), time_column)

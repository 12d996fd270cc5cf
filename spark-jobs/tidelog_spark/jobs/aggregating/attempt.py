"""One attempt at an aggregation: a streaming query whose closed windows become records of a stream.

A micro-batch has three steps: Spark computes the results, the results are decided (`results`), and the sink
writes them under the number of the micro-batch. Each step may be repeated after a crash.
"""

from __future__ import annotations

from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tidelog.errors import InvalidRequest
from tidelog_spark.failures import sentence_of
from tidelog_spark.jobs.aggregating import definition
from tidelog_spark.jobs.aggregating.config import Aggregation
from tidelog_spark.jobs.aggregating.query import results
from tidelog_spark.jobs.aggregating.results import Results
from tidelog_spark.jobs.following import DROPPED, follow, query_id, read_stream, start
from tidelog_spark.jobs.reporting import Report, say
from tidelog_spark.jobs.sessions import store_of
from tidelog_spark.jobs.stopping import Stop
from tidelog_spark.jobs.targets import check_target
from tidelog_spark.lake.stores import folder_at
from tidelog_spark.servers import SERVERS

NAME: Final = "tidelog-aggregate"
"""Of the query, and of the program in Spark."""

COUNTS: Final = ("rows", DROPPED)
"""What the report counts from its beginning on."""

FOLDER: Final = "tidelog"
"""Of this job, beside those of Spark in the checkpoint."""


class Attempt:
    """A query from its start to its end."""

    def __init__(self, spark: SparkSession, job: Aggregation, report: Report, stop: Stop) -> None:
        self._spark, self._job, self._report, self._stop = spark, job, report, stop
        self._folder = folder_at(f"{job.checkpoint.rstrip('/')}/{FOLDER}", store_of(job))
        self._results: Results | None = None
        self._sink: dict[str, str] = {}
        self._tasks = 1
        self.failure: Exception | None = None
        """What a batch raised; Spark's own error has only its text."""
        self.succeeded = 0
        """Batches that this attempt finished."""

    def run(self) -> None:
        """Returns when the query has ended by itself; raises what ended it, or `Stopped`."""
        job = self._job
        definition.check(self._folder, job)
        # As many tasks as the stream has partitions: more could not write at the same time.
        self._tasks = check_target(job.servers, job.sink.stream, "sink.stream", job.source.pattern)
        rows = results(read_stream(self._spark, job), job)
        try:
            query = start(rows, job, NAME, self._write)
        except AnalysisException as error:
            raise InvalidRequest(
                f"Spark cannot compute these aggregates of a stream: {sentence_of(error)}"
            ) from None
        follow(self._spark, query, self._report, self._stop)

    def _write(self, frame: DataFrame, batch: int) -> None:
        try:
            counts, again = self._aggregate(frame, batch)
        except Exception as error:
            self.failure = error
            raise
        self.succeeded += 1
        self._report.add(counts)
        self._report.save()
        say("batch", batch=batch, again=again, **counts)

    def _aggregate(self, frame: DataFrame, batch: int) -> tuple[dict[str, int], bool]:
        if self._results is None:
            self._results = self._open(frame)
        self._results.forget_before(batch)
        outcome = self._results.decide(batch, frame, self._tasks)
        rows = self._results.kept(self._spark, batch)
        if rows is not None:
            writer = rows.write.format("tidelog").options(**self._sink)
            writer.option("sinkBatchId", str(batch)).mode("append").save()
        return {"rows": outcome.counts["rows"]}, outcome.again

    def _open(self, frame: DataFrame) -> Results:
        job, query = self._job, query_id(self._spark)
        definition.keep(self._folder, job)
        self._sink = {
            SERVERS: job.servers,
            "stream": job.sink.stream,
            "compression": job.sink.compression,
            "sinkId": f"{query}-aggregates",
        }
        say("opened", query=query, sink=job.sink.stream)
        return Results(folder_at(f"{self._folder.url}/results", store_of(job)), query)

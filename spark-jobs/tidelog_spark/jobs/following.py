"""The streaming query of a job while it runs: how it starts, what it reports, and how it is stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelog_spark.jobs.config import Reading
from tidelog_spark.jobs.reporting import Report, say
from tidelog_spark.jobs.sessions import hadoop_url
from tidelog_spark.jobs.stopping import Stop
from tidelog_spark.sink import QUERY_ID

PROGRESS_SECONDS: Final = 1
"""How often the driver looks whether the query has ended or has finished a batch."""

DROPPED: Final = "lateGroups"
"""The count of what a watermark has dropped. Only queries with a state have it."""


def read_stream(spark: SparkSession, job: Reading) -> DataFrame:
    """The records of the job's streams, as rows of the source."""
    return spark.readStream.format("tidelog").options(**job.source_options).load()


def start(
    rows: DataFrame, job: Reading, name: str, write: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Starts a query that calls `write` with the rows and the number of each micro-batch."""
    writer = rows.writeStream.foreachBatch(write).queryName(name)
    writer = writer.option("checkpointLocation", hadoop_url(job.checkpoint))
    if job.trigger is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(job.trigger.interval * 1000)} milliseconds").start()


def query_id(spark: SparkSession) -> str:
    """The identity of the query, which its checkpoint keeps; only in the thread of the query."""
    found = spark.sparkContext.getLocalProperty(QUERY_ID)
    assert found is not None, "Spark sets it in the thread of the query"
    return found


def follow(spark: SparkSession, query: StreamingQuery, report: Report, stop: Stop) -> None:
    """Returns when the query has ended by itself; raises what ended it, or `Stopped`."""
    progress = Progress(report)
    context = spark.sparkContext
    needs_executors = not context._jsc.sc().isLocal()
    try:
        while not query.awaitTermination(PROGRESS_SECONDS):
            stop.check()
            progress.tell(query)
            if needs_executors:
                report.note_executors(executors(context))
        progress.tell(query)
    finally:
        query.stop()


def executors(context: SparkContext) -> int:
    """The number of executors that have registered with the driver and are alive."""
    # The driver itself is one of those that keep blocks.
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1


class Progress:
    """Notes the offsets and the lag of the batches that have ended."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._seen = ""
        """The time of the newest progress that was looked at. Its number would not do: a trigger without new
        records has the number of the next batch."""
        self._told = -1

    def tell(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            if progress.timestamp <= self._seen or not progress.sources:
                continue
            self._seen = progress.timestamp
            reached, lag = position(progress.sources[0].endOffset, progress.sources[0].latestOffset)
            self._report.offsets = reached
            self._report.lag = lag
            facts: dict[str, Any] = {"lag": lag, "rowsPerSecond": progress.processedRowsPerSecond}
            if progress.stateOperators:
                state = progress.stateOperators[0]
                self._report.count({DROPPED: state.numRowsDroppedByWatermark})
                facts |= {
                    DROPPED: state.numRowsDroppedByWatermark,
                    "openGroups": state.numRowsTotal,
                    "watermark": progress.eventTime.get("watermark"),
                }
            self._report.save()
            if progress.numInputRows or progress.batchId > self._told:
                # Without records it is said once, and not every ten seconds.
                self._told = progress.batchId
                say("progress", batch=progress.batchId, **facts)


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

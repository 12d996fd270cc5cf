"""The job that writes streams to Parquet; `jobs/stream_to_parquet.py` runs it.

It is a streaming query into Spark's file sink. The sink's own log (`_spark_metadata` in the target folder)
makes each micro-batch count once. With `available_now` the job ends at the records that exist when it
starts; started again with the same checkpoint, it continues behind them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pyspark.sql import SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from tidelog_spark.options import SERVERS


class Folders(StrEnum):
    """The folders of the files, by the timestamp of each record in UTC."""

    NONE = "none"
    DAY = "day"
    """``date=2026-11-21/``"""
    HOUR = "hour"
    """``date=2026-11-21/hour=07/``"""


FOLDER_COLUMNS: Final = {Folders.NONE: (), Folders.DAY: ("date",), Folders.HOUR: ("date", "hour")}
_FOLDER_VALUES: Final = {
    "date": "to_date(timestamp)",
    # Text of two digits, so that the folders sort like the hours.
    "hour": "date_format(timestamp, 'HH')",
}


@dataclass(frozen=True, slots=True)
class ParquetJob:
    """The settings of a job: the streams, the target, and how to write."""

    servers: str
    """host:port of a broker; several are separated by commas."""
    streams: str
    """One or more names, separated by commas."""
    path: str
    """The folder of the Parquet files; any file system that Spark knows."""
    checkpoint: str
    """The folder where the query keeps its position. Use it only for this job and path."""
    folders: Folders = Folders.NONE
    starting_offsets: str = "earliest"
    """Where a new checkpoint begins; an existing checkpoint continues at its position."""
    offsets_per_trigger_max: int | None = None
    available_now: bool = True
    """End at the records that exist at the start. False: continue until stopped."""
    interval_s: float = 60.0
    """How often a continuing job writes files. Seconds."""
    headers: bool = False
    fail_on_data_loss: bool = True

    @property
    def options(self) -> dict[str, str]:
        """The options of the data source."""
        limit = self.offsets_per_trigger_max
        return {
            SERVERS: self.servers,
            "subscribe": self.streams,
            "startingOffsets": self.starting_offsets,
            "includeHeaders": str(self.headers).lower(),
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            **({} if limit is None else {"maxOffsetsPerTrigger": str(limit)}),
        }


def start(spark: SparkSession, job: ParquetJob) -> StreamingQuery:
    """Starts the query and returns it; `format("tidelog")` must be registered.

    Sets the session's time zone to UTC, in which days and hours are counted.
    """
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    rows = spark.readStream.format("tidelog").options(**job.options).load()
    folders = FOLDER_COLUMNS[job.folders]
    for name in folders:
        rows = rows.withColumn(name, functions.expr(_FOLDER_VALUES[name]))
    writer = rows.writeStream.format("parquet").queryName("stream_to_parquet").partitionBy(*folders)
    writer = writer.option("path", job.path).option("checkpointLocation", job.checkpoint)
    if job.available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{job.interval_s:g} seconds").start()

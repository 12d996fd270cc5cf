"""The job that writes streams to Parquet: what `jobs/stream_to_parquet.py` runs.

A streaming query into Spark's file sink, whose own log (`_spark_metadata` in the target
folder) makes each micro-batch count once. With `available_now` it ends at what was there
when it began; started again with the same checkpoint it goes on where it stood.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pyspark.sql import SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from tidelog_spark.options import SERVERS


class Folders(StrEnum):
    """How the files are laid out, by each record's own timestamp in UTC."""

    NONE = "none"
    DAY = "day"
    """``date=2026-11-21/``"""
    HOUR = "hour"
    """``date=2026-11-21/hour=07/``"""


FOLDER_COLUMNS: Final = {Folders.NONE: (), Folders.DAY: ("date",), Folders.HOUR: ("date", "hour")}
_FOLDER_VALUES: Final = {
    "date": "to_date(timestamp)",
    # Text of two digits, so that folders sort as hours do.
    "hour": "date_format(timestamp, 'HH')",
}


@dataclass(frozen=True, slots=True)
class ParquetJob:
    """Which streams go where, and how."""

    servers: str
    """host:port of a broker; several with commas."""
    streams: str
    """One or more names, with commas."""
    path: str
    """The folder of the Parquet files; any file system that Spark knows."""
    checkpoint: str
    """The folder where the query keeps its position; it belongs to this job and path alone."""
    folders: Folders = Folders.NONE
    starting_offsets: str = "earliest"
    """Where a new checkpoint begins; an old one goes on where it stands."""
    offsets_per_trigger_max: int | None = None
    available_now: bool = True
    """End at what was there at the beginning. False: go on until stopped."""
    interval_s: float = 60.0
    """How often a job that goes on writes files."""
    headers: bool = False
    fail_on_data_loss: bool = True

    @property
    def options(self) -> dict[str, str]:
        """Of the data source."""
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
    """The running query; `format("tidelog")` must be registered.

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

"""The measured Spark session, a process of its own: `python -m bench.ours.spark WORK …`.

Reads a whole stream into Spark's noop sink, again and again. So the time is that of Tidelog's data source
and of Spark's way from Python workers to rows, without a sink. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter

from pyspark.sql import SparkSession

from bench.harness.processes import Failed
from bench.measuring.clock import print_result
from tidelog_spark.options import SERVERS
from tidelog_spark.session import local_session

MASTER = "local[2]"
READS_MIN = 2
READ_SECONDS_MIN = 10.0
"""A session takes long to start, so some more reads are cheap."""

QUERY_SECONDS_MAX = 100
OFFSETS_PER_TRIGGER = 1_000_000
"""Limit of a streaming read: it takes several micro-batches, as a query that follows a stream does."""


def read_batch(spark: SparkSession, options: argparse.Namespace) -> None:
    rows = spark.read.format("tidelog").options(**_source(options))
    rows.load().write.format("noop").mode("overwrite").save()


def read_stream(spark: SparkSession, options: argparse.Namespace) -> None:
    """Reads the whole stream with a new checkpoint."""
    rows = spark.readStream.format("tidelog").options(
        **_source(options), startingOffsets="earliest", maxOffsetsPerTrigger=str(OFFSETS_PER_TRIGGER)
    )
    with tempfile.TemporaryDirectory(prefix="checkpoint-", dir=options.folder) as folder:
        writer = rows.load().writeStream.format("noop").option("checkpointLocation", folder)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(QUERY_SECONDS_MAX):
            query.stop()
            raise Failed(f"the query took more than {QUERY_SECONDS_MAX} s")
        read = sum(progress.numInputRows for progress in query.recentProgress)
    if read != options.rows:
        raise Failed(f"the query read {read} rows, {options.rows} are there")


def _source(options: argparse.Namespace) -> dict[str, str]:
    return {SERVERS: options.address, "subscribe": options.stream}


WORKS: dict[str, Callable[[SparkSession, argparse.Namespace], None]] = {
    "batch": read_batch,
    "stream": read_stream,
}


def work(options: argparse.Namespace) -> dict[str, float]:
    """Rows a second of the median read. The first read of the session is not counted but reported."""

    def timed() -> float:
        began = perf_counter()
        WORKS[options.work](spark, options)
        return perf_counter() - began

    began = perf_counter()
    with local_session("tidelog-bench", master=MASTER) as spark:
        session = perf_counter() - began
        cold = timed()
        reads: list[float] = []
        while len(reads) < READS_MIN or sum(reads) < max(options.seconds, READ_SECONDS_MIN):
            reads.append(timed())
    return {
        "value": options.rows / median(reads),
        "read_s": median(reads),
        "slowest_s": max(reads),
        "reads": float(len(reads)),
        "cold_first_s": cold,
        "session_s": session,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.ours.spark", description="Reads a stream with Spark and prints a line of JSON."
    )
    parser.add_argument("work", choices=sorted(WORKS))
    parser.add_argument("--address", required=True, help="host:port of the broker")
    parser.add_argument("--stream", required=True)
    parser.add_argument("--rows", type=int, required=True, help="number of records in the stream")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument(
        "--folder", default=None, help="for checkpoints. Default: the folder for temporary files"
    )
    print_result(work(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()

"""Writes streams to Parquet: the command line of `tidelog_spark.parquet`.

On this machine:           python stream_to_parquet.py --servers localhost:9210 …
On a Spark cluster:        spark-submit stream_to_parquet.py --servers tidelog:9210 …
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelog.errors import TidelogError
from tidelog_spark.failures import sentence_of
from tidelog_spark.parquet import Folders, ParquetJob, start
from tidelog_spark.session import local_session
from tidelog_spark.source import register

PROGRESS_SECONDS = 1
"""How often the job checks for finished batches. Seconds."""

EXAMPLE = """\
example:
  stream_to_parquet.py --servers localhost:9210 --streams orders --path lake/orders \\
      --checkpoint lake/_checkpoints/orders --folders day
"""


class _Failed(Exception):
    """The query failed; the message says why."""


class _Stopped(Exception):
    """The job was asked to stop (SIGTERM)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0: done; 1: failed, with the reason; 2: wrong arguments; 130: interrupted."""
    given = _parser().parse_args(arguments)
    job = ParquetJob(
        servers=given.servers,
        streams=given.streams,
        path=given.path,
        checkpoint=given.checkpoint,
        folders=Folders(given.folders),
        starting_offsets=given.starting_offsets,
        offsets_per_trigger_max=given.max_offsets_per_trigger,
        available_now=not given.follow,
        interval_s=given.interval,
        headers=given.headers,
        fail_on_data_loss=not given.skip_lost_records,
    )
    signal.signal(signal.SIGTERM, _stop)
    try:
        with _session(given.master, "error" if given.verbose else "off") as spark:
            _run(spark, job)
    except (TidelogError, _Failed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, _Stopped):
        print("stopped; start the job again with the same checkpoint to continue from here", file=sys.stderr)
        return 130
    return 0


def _run(spark: SparkSession, job: ParquetJob) -> None:
    try:
        query = start(spark, job)
        try:
            rows, batches = _follow(query)
        finally:
            query.stop()
    except PySparkException as error:
        # The text is taken now, because Spark's exceptions lose it when the session ends.
        raise _Failed(sentence_of(error)) from None
    print(f"{rows} rows in {batches} batches to {job.path}")


def _follow(query: StreamingQuery) -> tuple[int, int]:
    """Prints each finished batch; returns the rows and batches when the query has ended."""
    rows = batches = 0
    last = -1
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(PROGRESS_SECONDS))
        for progress in query.recentProgress:
            if progress.batchId > last and progress.numInputRows:
                last = progress.batchId
                rows, batches = rows + progress.numInputRows, batches + 1
                print(f"batch {last}: {progress.numInputRows} rows", flush=True)
    return rows, batches


@contextmanager
def _session(master: str, log_level: str) -> Iterator[SparkSession]:
    """The session of spark-submit, or a session on this machine."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        with local_session("stream_to_parquet", master=master, log_level=log_level) as spark:
            yield spark
        return
    spark = SparkSession.builder.appName("stream_to_parquet").getOrCreate()
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def _stop(number: int, frame: FrameType | None) -> None:
    raise _Stopped


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stream_to_parquet.py",
        description="Writes Tidelog streams to Parquet files, each record once.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--servers", required=True, metavar="HOST:PORT", help="a broker; several are separated by commas")
    add("--streams", required=True, metavar="NAMES", help="one or more streams, separated by commas")
    add("--path", required=True, help="folder for the Parquet files")
    add("--checkpoint", required=True, help="folder where the job keeps its position")
    add("--folders", choices=[kind.value for kind in Folders], default="none", help="by time (default: none)")
    add(
        "--follow",
        action="store_true",
        help="continue with new records; without it: end at the records that exist now",
    )
    add("--interval", type=float, default=60.0, metavar="SECONDS", help="with --follow: between batches (60)")
    add("--max-offsets-per-trigger", type=int, metavar="N", help="records of one batch (default: no limit)")
    add("--starting-offsets", default="earliest", help="where a new checkpoint begins (earliest)")
    add("--headers", action="store_true", help="add the column headers")
    add("--skip-lost-records", action="store_true", help="continue when records are lost; default: fail")
    add("--verbose", action="store_true", help="show Spark's own error messages")
    add("--master", default="local[*]", help="Spark master if not run by spark-submit (local[*])")
    return parser


if __name__ == "__main__":
    sys.exit(main())

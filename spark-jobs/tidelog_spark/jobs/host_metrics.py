"""The Spark part of `tidelog demo`: from measurements in a stream to aggregates in Parquet.

It reads a stream of JSON messages through the tidelog source. Each message is one measurement ({"item",
"metric", "value", "unit"}); its kind is the last token of the subject. ``summary`` has one row for each
measured item, ``per_second`` one row for each second of it; both are partitioned by kind. The last line on
standard output is a JSON object with the seconds of each step.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidelog.errors import TidelogError
from tidelog_spark import local_session

MESSAGE = "item STRING, metric STRING, value DOUBLE, unit STRING"
MEASURED = ("kind", "item", "metric", "unit")


def measurements(spark: SparkSession, server: str, stream: str) -> DataFrame:
    """The stream's records as rows: kind, item, metric, unit, value, timestamp."""
    records = (
        spark.read.format("tidelog")
        .option("tidelog.bootstrap.servers", server)
        .option("subscribe", stream)
        .load()
    )
    return records.select(
        F.element_at(F.split("subject", r"\."), -1).alias("kind"),
        F.from_json(F.col("value").cast("string"), MESSAGE).alias("message"),
        "timestamp",
    ).select("kind", "message.*", "timestamp")


def summary(rows: DataFrame) -> DataFrame:
    """One row for each measured item."""
    return rows.groupBy(*MEASURED).agg(
        F.count("value").alias("samples"),
        F.avg("value").alias("average"),
        F.max("value").alias("maximum"),
        F.max_by("value", "timestamp").alias("latest"),
    )


def per_second(rows: DataFrame) -> DataFrame:
    """One row for each second of each measured item."""
    return rows.groupBy(*MEASURED, F.date_trunc("second", "timestamp").alias("second")).agg(
        F.avg("value").alias("average")
    )


def run(server: str, stream: str, folder: str) -> dict[str, float]:
    """Writes both tables into `folder`; returns the seconds of each step."""
    seconds: dict[str, float] = {}
    at = time.perf_counter()

    def took(step: str) -> None:
        nonlocal at
        now = time.perf_counter()
        seconds[step], at = round(now - at, 3), now

    with local_session("host metrics") as spark:
        took("start")
        rows = measurements(spark, server, stream).cache()
        rows.count()
        took("read")
        summary(rows).coalesce(1).write.mode("overwrite").partitionBy("kind").parquet(f"{folder}/summary")
        per_second(rows).coalesce(1).write.mode("overwrite").partitionBy("kind").parquet(
            f"{folder}/per_second"
        )
        took("aggregate and write")
    took("stop")
    return seconds


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Aggregate a stream of measurements to Parquet.")
    parser.add_argument("--server", default="localhost:9210", help="any broker, as host:port")
    parser.add_argument("--stream", required=True, help="the stream to read")
    parser.add_argument("--output", required=True, help="folder for the Parquet files")
    options = parser.parse_args(arguments)
    try:
        seconds = run(options.server, options.stream, options.output)
    except TidelogError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(seconds) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the session does on request: batch reads, streaming reads and both kinds of writes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession

from bench.harness.processes import Failed
from bench.spark.cost import Cost
from bench.spark.latency import latency
from bench.spark.request import Format, Request

QUERY_SECONDS_MAX = 100


def count(spark: SparkSession, request: Request) -> None:
    """Checks that a read gives the rows that it must give; nothing else in a batch read counts them."""
    found = _chosen(_frame(spark, request.source), request).count()
    if found != request.rows:
        raise Failed(f"{request.source.name} read {found} rows, {request.rows} must be there")


def batch(spark: SparkSession, request: Request) -> None:
    """A batch read, or a batch write: reads the source into the sink."""
    rows = _chosen(_frame(spark, request.source), request)
    # The noop sink does not append.
    mode = "overwrite" if request.sink.name == "noop" else "append"
    rows.write.format(request.sink.name).options(**request.sink.options).mode(mode).save()


def stream(spark: SparkSession, request: Request) -> None:
    """AvailableNow from the start of the source, with a new checkpoint."""
    source = request.source
    reader = spark.readStream.format(source.name).options(**source.options)
    rows = _chosen((reader.schema(source.schema) if source.schema else reader).load(), request)
    with tempfile.TemporaryDirectory(prefix="checkpoint-", dir=request.folder) as folder:
        writer = rows.writeStream.format(request.sink.name).options(**request.sink.options)
        query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
        if not query.awaitTermination(QUERY_SECONDS_MAX):
            query.stop()
            raise Failed(f"the query took more than {QUERY_SECONDS_MAX} s")
        read = sum(progress.numInputRows for progress in query.recentProgress)
    if read != request.rows:
        raise Failed(f"the query read {read} rows, {request.rows} must be there")


def _frame(spark: SparkSession, source: Format) -> DataFrame:
    reader = spark.read.format(source.name).options(**source.options)
    return (reader.schema(source.schema) if source.schema else reader).load()


def _chosen(rows: DataFrame, request: Request) -> DataFrame:
    if request.where:
        rows = rows.where(request.where)
    return rows.select(*request.select) if request.select else rows


Work: TypeAlias = Callable[[SparkSession, Request], None]

WORKS: dict[str, Work] = {"count": count, "batch": batch, "stream": stream}
"""By name. `latency` is another kind of work: it measures each micro-batch."""


def answer(spark: SparkSession, request: Request, jvm: int) -> dict[str, float]:
    """Does the work and measures it: `value`, in rows per second or in milliseconds, and facts."""
    if request.work == "latency":
        return latency(spark, request, jvm)
    work = WORKS[request.work]
    times: list[float] = []
    before = Cost.now(jvm, request.brokers)
    while not times or sum(times) < request.seconds:
        began = perf_counter()
        work(spark, request)
        times.append(perf_counter() - began)
    cost = Cost.now(jvm, request.brokers).since(before)
    return {
        "value": request.rows / median(times),
        "run_s": median(times),
        "runs": float(len(times)),
        **cost.per_million_rows(request.rows * len(times)),
    }

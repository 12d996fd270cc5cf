"""Runs the tasks that stage the rows of a micro-batch as files, in Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tidelog_spark.lake.batches import REPORT_DDL, Order, Run, stage


def runner(frame: DataFrame) -> Run:
    """Stages the rows of the frame, and answers what the tasks report."""

    def run(order: Order) -> Iterable[Mapping[str, Any]]:
        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return stage(batches, order)

        return [row.asDict() for row in frame.mapInArrow(task, REPORT_DDL).collect()]

    return run

"""The results of a micro-batch: decided once in a folder of the checkpoint, then sent to the stream.

A micro-batch that runs again need not compute the same bytes: the sum of doubles depends on the order in
which a shuffle hands them over, and so do ``first`` and ``collect_list``. The sink takes the same rows only
(S2). So the rows that the first attempt has computed are kept as files, in the manner of a lake, before a
single row is sent. Each later attempt sends these files. One task sends one file, in the order of its rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tidelog_spark.jobs.aggregating.config import WINDOW_START
from tidelog_spark.jobs.staging import runner
from tidelog_spark.lake.batches import Batches, Outcome
from tidelog_spark.lake.folders import Partitioning
from tidelog_spark.lake.parquet import ParquetLake
from tidelog_spark.lake.stores import Folder

ROWS_DDL = "key binary, value string, timestamp timestamp"
"""The columns of a result, as the sink takes them."""

ROWS_READ_MAX = 8_192
"""Rows of a file that a task has in memory at once."""


class Results:
    """The results of one query."""

    def __init__(self, folder: Folder, query: str) -> None:
        self._folder = folder
        self._prefix = query[:8]
        self._batches = Batches(ParquetLake(folder, Partitioning(), query))
        self._open = False

    def __repr__(self) -> str:
        return f"<Results {self._folder.url}>"

    def decide(self, batch: int, rows: DataFrame, tasks: int) -> Outcome:
        """Keeps the rows of `query.results` in `tasks` pieces, unless an earlier attempt has decided."""
        if not self._open:
            self._batches.open(to_arrow_schema(rows.drop(WINDOW_START).schema, timezone="UTC"))
            self._open = True
        # The results of one key stand in the order of their windows.
        ordered = rows.repartition(tasks, "key").sortWithinPartitions("key", WINDOW_START).drop(WINDOW_START)
        outcome = self._batches.write(batch, runner(ordered))
        if outcome.again:
            # Spark keeps the state of the windows while it computes them, and the next batch needs it.
            rows.write.format("noop").mode("overwrite").save()
        return outcome

    def kept(self, spark: SparkSession, batch: int) -> DataFrame | None:
        """The decided rows, the same in the same tasks whenever they are read; None: no rows."""
        files = [name for name, number in self._files() if number == batch]
        if not files:
            return None
        folder = self._folder

        def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for some in numbers:
                for number in some.column(0).to_pylist():
                    yield from read_rows(folder, files[number])

        return spark.range(0, len(files), 1, len(files)).mapInArrow(task, ROWS_DDL)

    def forget_before(self, batch: int) -> None:
        """Removes the results of earlier batches, which Spark does not run again."""
        for name, number in self._files():
            if number < batch:
                self._folder.remove(name)

    def _files(self) -> list[tuple[str, int]]:
        pattern = re.compile(rf"{re.escape(self._prefix)}-(\d+)-\d+\.parquet")
        found = map(pattern.fullmatch, self._folder.names(""))
        return [(match[0], int(match[1])) for match in found if match]


def read_rows(folder: Folder, name: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file, in pieces."""
    with folder.open(name) as file, pq.ParquetFile(file) as rows:
        yield from rows.iter_batches(ROWS_READ_MAX)

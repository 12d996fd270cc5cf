"""A Python data source without a log: its tasks send the same rows as ours from memory, `format("memory")`.

It is the limit of what a Python data source can reach in Spark: what it costs is the way of the rows from a
Python process into the JVM, and what Spark does with them there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bench.harness.work import SPARK_PARTITIONS
from bench.spark.rows import batches
from tidelog_spark.options import RECORDS_PER_PARTITION_DEFAULT
from tidelog_spark.schema import arrow_schema, row_schema

FORMAT: Final = "memory"
STREAM: Final = "memory"


class MemorySource(DataSource):
    """Options: `rows`, `size` of a value in bytes, and for streams `rowsPerTrigger`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return row_schema(headers=False)

    def reader(self, schema: StructType) -> MemoryReader:
        return MemoryReader(int(self.options["rows"]), int(self.options["size"]))

    def streamReader(self, schema: StructType) -> MemoryStreamReader:  # noqa: N802 - PySpark's name
        rows, size = int(self.options["rows"]), int(self.options["size"])
        return MemoryStreamReader(rows, size, int(self.options["rowsPerTrigger"]))


class Some(InputPartition):
    """The rows of one task."""

    def __init__(self, partition: int, begin: int, end: int) -> None:
        super().__init__(None)
        self.partition, self.begin, self.end = partition, begin, end


def tasks(begin: int, end: int) -> Sequence[Some]:
    """The tasks for rows `begin` up to `end`, as many as for a stream of as many partitions."""
    share = -(-(end - begin) // SPARK_PARTITIONS)
    shares = [
        (begin + number * share, min(begin + (number + 1) * share, end)) for number in range(SPARK_PARTITIONS)
    ]
    return [
        Some(number, at, min(at + RECORDS_PER_PARTITION_DEFAULT, last))
        for number, (first, last) in enumerate(shares)
        for at in range(first, last, RECORDS_PER_PARTITION_DEFAULT)
    ]


def rows_of(task: Some, size: int) -> Iterator[pa.RecordBatch]:
    """Batches with every column that a stream has; they are made once and sent again and again."""
    schema = arrow_schema(row_schema(headers=False))
    values = next(batches(size, task.end - task.begin, subjects=False)).column("value")
    count = len(values)
    columns = {
        "key": pa.nulls(count, pa.binary()),
        "value": values,
        "stream": pa.repeat(pa.scalar(STREAM), count),
        "partition": pa.repeat(pa.scalar(task.partition, pa.int32()), count),
        "offset": pa.arange(task.begin, task.begin + count),
        "timestamp": pa.repeat(pa.scalar(0, pa.timestamp("us", "UTC")), count),
        "subject": pa.nulls(count, pa.utf8()),
        "leader_epoch": pa.repeat(pa.scalar(1, pa.int64()), count),
    }
    batch = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
    for at in range(task.begin, task.end, count):
        yield batch.slice(0, min(count, task.end - at))


class MemoryReader(DataSourceReader):
    """All rows."""

    def __init__(self, rows: int, size: int) -> None:
        self._rows, self._size = rows, size

    def partitions(self) -> list[InputPartition]:
        return list(tasks(0, self._rows))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Some)
        return rows_of(partition, self._size)


class MemoryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """All rows, some in each micro-batch; an offset is the number of rows before it."""

    def __init__(self, rows: int, size: int, per_trigger: int) -> None:
        self._rows, self._size, self._per_trigger = rows, size, per_trigger

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's name
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """There are never more rows."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {"rows": min(start["rows"] + self._per_trigger, self._rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return tasks(start["rows"], end["rows"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Some)
        return rows_of(partition, self._size)


def register(spark: SparkSession) -> None:
    spark.dataSource.register(MemorySource)

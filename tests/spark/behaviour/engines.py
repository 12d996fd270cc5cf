"""Two ways to run a case: in Spark, and by the calls that Spark makes, without its processes.

A process of Spark takes a second for each plan. So `make test` makes the calls, and `make long` runs each
case in Spark, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition

from spark.behaviour.case import PLACE, Bad, Good, Row
from spark.brokers import Brokers
from tidelog_spark.reader import Split
from tidelog_spark.servers import SERVERS
from tidelog_spark.source import TidelogDataSource, TidelogReader
from tidelog_spark.stream import TidelogStreamReader

TOO_LATE = "Python worker failed to connect back"
"""The process that plans a streaming query has ten seconds to connect, a constant of Spark."""

STARTS_MAX = 3
"""Of a streaming query on a machine with load."""


class Result:
    """What a read gave."""

    def __init__(self, rows: Sequence[Row], columns: Sequence[str], parts: Sequence[int]) -> None:
        self.rows = sorted(rows, key=lambda row: tuple((value is None, value) for value in row))
        self.columns = tuple(columns)
        self.parts = tuple(parts)
        """A batch read: the number of tasks. A streaming read: the rows of each micro-batch."""


class Engine(Protocol):
    """Runs reads."""

    def batch(self, options: Mapping[str, str], select: Sequence[str]) -> Result: ...

    def stream(self, options: Mapping[str, str], select: Sequence[str]) -> Result: ...


class InSpark:
    """Real queries."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def batch(self, options: Mapping[str, str], select: Sequence[str]) -> Result:
        frame = self._spark.read.format("tidelog").options(**options).load()
        rows = frame.selectExpr("spark_partition_id()", *_present(select, frame.columns)).collect()
        found = [tuple(_plain(value) for value in row[1:]) for row in rows]
        return Result(found, frame.columns, [len({row[0] for row in rows})])

    def stream(self, options: Mapping[str, str], select: Sequence[str]) -> Result:
        for _ in range(STARTS_MAX - 1):
            try:
                return self._stream(options, select)
            except StreamingQueryException as error:
                if TOO_LATE not in str(error):
                    raise
        return self._stream(options, select)

    def _stream(self, options: Mapping[str, str], select: Sequence[str]) -> Result:
        frame = self._spark.readStream.format("tidelog").options(**options).load()
        name = "behaviour"
        chosen = frame.selectExpr(
            *(f"{one} as c{n}" for n, one in enumerate(_present(select, frame.columns)))
        )
        query = chosen.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
            found = [tuple(_plain(value) for value in row) for row in self._spark.table(name).collect()]
        finally:
            query.stop()
            self._spark.catalog.dropTempView(name)
        sizes = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
        return Result(found, frame.columns, sizes)


class ByCalls:
    """The calls of PySpark's workers."""

    def batch(self, options: Mapping[str, str], select: Sequence[str]) -> Result:
        source = TidelogDataSource(CaseInsensitiveDict(dict(options)))
        reader = source.reader(source.schema())
        splits = reader.partitions()
        return self._result(source, select, [_read(reader, splits)], [len(splits)])

    def stream(self, options: Mapping[str, str], select: Sequence[str]) -> Result:
        source = TidelogDataSource(CaseInsensitiveDict(dict(options)))
        reader = source.streamReader(source.schema())
        start = reader.initialOffset()
        limit = reader.getDefaultReadLimit()
        reader.prepareForTriggerAvailableNow()
        batches = []
        while (end := json.loads(json.dumps(reader.latestOffset(start, limit)))) != start:
            batches.append(_read(reader, reader.partitions(start, end)))
            start = end
        sizes = [sum(batch.num_rows for batch in some) for some in batches]
        return self._result(source, select, batches, [size for size in sizes if size])

    def _result(
        self,
        source: TidelogDataSource,
        select: Sequence[str],
        batches: Sequence[Sequence[pa.RecordBatch]],
        parts: Sequence[int],
    ) -> Result:
        names = source.schema().fieldNames()
        rows = [row for some in batches for batch in some for row in batch.to_pylist()]
        chosen = [tuple(_field(row, one) for one in _present(select, names)) for row in rows]
        return Result(chosen, names, parts)


def _read(
    reader: TidelogReader | TidelogStreamReader, splits: Sequence[InputPartition]
) -> list[pa.RecordBatch]:
    return [batch for split in splits if isinstance(split, Split) for batch in reader.read(split)]


def _present(select: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Without the columns that an option leaves out."""
    heads = [one.split("(")[-1].split("[")[0].split(".")[0].rstrip(")") for one in select]
    return [one for one, head in zip(select, heads, strict=True) if head in columns]


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def _field(row: Mapping[str, Any], expression: str) -> Any:
    """The value of an expression of the table: `a.b`, `a[0].b`, and `unix_millis(a.b)`."""
    inner = expression.removeprefix("unix_millis(").rstrip(")")
    found: Any = row
    for step in inner.replace("[", ".[").split("."):
        if found is None:
            return None
        found = found[int(step[1:-1])] if step.startswith("[") else found[step]
    return found if inner == expression or found is None else int(found.timestamp() * 1000)


def run(engine: Engine, case: Good, brokers: Brokers) -> Result:
    """Runs a case against the brokers."""
    given = completed(case.options, brokers)
    if case.batches is None:
        return engine.batch(given, case.select)
    return engine.stream({"startingOffsets": "earliest", **given}, case.select)


def fail(engine: Engine, case: Bad, brokers: Brokers) -> None:
    """Runs a case that must raise."""
    given = completed(case.options, brokers)
    if case.streaming:
        engine.stream({"startingOffsets": "earliest", **given}, PLACE)
    else:
        engine.batch(given, PLACE)


def completed(options: Mapping[str, str], brokers: Brokers) -> dict[str, str]:
    """The options with those that every read needs."""
    given = brokers.filled({SERVERS: brokers.address, **options})
    if not any(name in given for name in ("subscribe", "subscribePattern", "assign")):
        given["subscribe"] = "orders"
    return given

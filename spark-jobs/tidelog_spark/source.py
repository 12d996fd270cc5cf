"""The Spark format `tidelog`: the data source and its batch reader. `stream` reads and `sink` writes
queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.errors import InvalidRequest
from tidelog_spark import cluster
from tidelog_spark.offsets import ranges_between
from tidelog_spark.options import Options, parse, parse_batch, parse_stream
from tidelog_spark.points import Bound, Edge
from tidelog_spark.positions import check_order, marks_at, reachable
from tidelog_spark.reader import Split, read_rows, splits
from tidelog_spark.schema import arrow_schema, check_schema, row_schema
from tidelog_spark.sink import TidelogBatchWriter, TidelogStreamWriter
from tidelog_spark.sink_options import check_batch_write, check_stream_write, parse_sink
from tidelog_spark.stream import TidelogStreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TidelogDataSource(DataSource):
    """The data source. docs/spark.md has its options, columns and guarantees."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType:
        options = parse(self.options)
        return row_schema(headers=options.headers, columns=options.pruning.columns, payload=options.payload)

    def reader(self, schema: StructType) -> TidelogReader:
        options = parse_batch(self.options)
        check_schema(schema, options.pruning.columns, options.payload)
        return TidelogReader(options, schema)

    def streamReader(self, schema: StructType) -> TidelogStreamReader:  # noqa: N802 - PySpark's name
        options = parse_stream(self.options)
        check_schema(schema, options.pruning.columns, options.payload)
        return TidelogStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> TidelogBatchWriter:
        options = check_batch_write(parse_sink(self.options))
        if overwrite:
            raise InvalidRequest('a log cannot be overwritten; write with mode("append")')
        return TidelogBatchWriter(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TidelogStreamWriter:  # noqa: N802
        options = check_stream_write(parse_sink(self.options))
        if overwrite:
            raise InvalidRequest(
                'a log cannot be overwritten, as outputMode("complete") asks; use "append" or "update"'
            )
        return TidelogStreamWriter(options, schema)


def register(spark: SparkSession) -> None:
    """Makes `format("tidelog")` known to a session."""
    spark.dataSource.register(TidelogDataSource)


class TidelogReader(DataSourceReader):
    """Reads a batch from `startingOffsets` to `endingOffsets`, as they are at the first action on a frame."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def __repr__(self) -> str:
        return f"<TidelogReader {self._options.chosen}>"

    def partitions(self) -> list[InputPartition]:
        options = self._options
        reach = reachable(options).complete()
        start = options.starting or Bound("startingOffsets", Edge.EARLIEST)
        end = options.ending or Bound("endingOffsets", Edge.LATEST)
        begins, ends = marks_at(start, reach, options), marks_at(end, reach, options)
        check_order(start, begins, end, ends)
        return splits(ranges_between(begins, ends), options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # If there is nothing to read, PySpark adds a partition of its own.
        if not isinstance(partition, Split):
            return iter(())
        return read_rows(
            cluster.of(self._options.servers), partition.piece, arrow_schema(self._schema), self._options
        )

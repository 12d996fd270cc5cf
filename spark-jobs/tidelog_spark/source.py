"""The Spark format `tidelog`: the data source and its batch reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog_spark import cluster, planning
from tidelog_spark.offsets import ranges_between
from tidelog_spark.options import Edge, Options, check_batch, check_stream, parse
from tidelog_spark.positions import marks_at, reachable
from tidelog_spark.reader import Split, read_payload
from tidelog_spark.schema import arrow_schema, check_schema, row_schema
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
        return row_schema(headers=options.headers, payload=options.payload)

    def reader(self, schema: StructType) -> TidelogReader:
        options = check_batch(parse(self.options))
        check_schema(schema, options.payload)
        return TidelogReader(options, schema)

    def streamReader(self, schema: StructType) -> TidelogStreamReader:  # noqa: N802 - PySpark's name
        options = check_stream(parse(self.options))
        check_schema(schema, options.payload)
        return TidelogStreamReader(options, schema)


def register(spark: SparkSession) -> None:
    """Makes `format("tidelog")` known to a session."""
    spark.dataSource.register(TidelogDataSource)


class TidelogReader(DataSourceReader):
    """Reads a batch from `startingOffsets` to `endingOffsets`, as they are at the first action on a frame."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def __repr__(self) -> str:
        return f"<TidelogReader {','.join(self._options.streams)}>"

    def partitions(self) -> list[InputPartition]:
        options = self._options
        reach = reachable(options)
        start = marks_at("startingOffsets", options.starting or Edge.EARLIEST, reach, options)
        end = marks_at("endingOffsets", options.ending or Edge.LATEST, reach, options)
        pieces = planning.split(
            ranges_between(start, end),
            records_max=options.records_per_partition_max,
            partitions_min=options.partitions_min,
        )
        return [Split(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # If there is nothing to read, PySpark adds a partition of its own.
        if not isinstance(partition, Split):
            return iter(())
        return read_payload(
            cluster.of(self._options.servers),
            partition.piece,
            arrow_schema(self._schema),
            self._options.payload,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )

"""The streaming reader, which PySpark calls between micro-batches in a process of its own.

The records of a batch are determined by the two documents (`offsets`) that Spark writes to the checkpoint
before the batch runs. `partitions` plans from them alone, so a batch that runs again reads the same
records. `commit` does nothing, because brokers keep no position of a Spark query (and PySpark calls it one
batch late, and never for the last batch).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidelog.errors import LogTruncated, OffsetOutOfRange, StreamNotFound, TidelogError
from tidelog.model import id_text
from tidelog_spark import cluster, planning
from tidelog_spark.offsets import (
    Mark,
    Offsets,
    PartitionKey,
    from_document,
    ranges_between,
    to_document,
)
from tidelog_spark.options import Edge, Options
from tidelog_spark.positions import REMEDY, marks_at, reachable, with_epochs
from tidelog_spark.reader import Split, read_payload
from tidelog_spark.schema import arrow_schema

log = logging.getLogger(__name__)


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the micro-batches of a query and reads their ranges. Picklable: tasks get a copy for `read`."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: dict[PartitionKey, Mark] | None = None
        """With Trigger.AvailableNow: the marks at which the query ends."""

    def __repr__(self) -> str:
        return f"<TidelogStreamReader {','.join(self._options.streams)}>"

    # --- offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's names
        """The start of the query. Spark calls it once for each checkpoint."""
        options = self._options
        points = options.starting or Edge.LATEST
        marks = marks_at("startingOffsets", points, reachable(options), options)
        return to_document(with_epochs(marks, options))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = reachable(self._options)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch; `start` if there are no new records."""
        begin = from_document(start)
        ends = reachable(self._options) if self._target is None else self._target
        self._check(begin, ends)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_document(with_epochs(planning.advance(begin, ends, rows), self._options))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The ends of the streams, without limits, for the status of the query."""
        return to_document(reachable(self._options))

    # --- ranges

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        ranges = ranges_between(from_document(start), from_document(end))
        pieces = planning.split(
            ranges,
            records_max=self._options.records_per_partition_max,
            partitions_min=self._options.partitions_min,
        )
        return [Split(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Split):
            return iter(())
        return read_payload(
            cluster.of(self._options.servers),
            partition.piece,
            arrow_schema(self._schema),
            self._options.payload,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )

    def commit(self, end: Mapping[str, Any]) -> None:
        """Does nothing: the position of the query is only in its checkpoint."""

    def stop(self) -> None:
        cluster.close_all()

    # --- lost records

    def _check(self, begin: Offsets, ends: Offsets) -> None:
        """Reports lost records behind `begin` before a batch is planned: an error, or a warning."""
        for key, mark in begin.items():
            error = _what_is_lost(key, mark, ends.get(key)) if self._wanted(key) else None
            if error is None:
                continue
            if self._options.fail_on_data_loss:
                raise type(error)(f"records are lost: {error}; {REMEDY}")
            log.warning("records are lost: %s", error)

    def _wanted(self, key: PartitionKey) -> bool:
        """Whether the options still choose the partition: a query may drop streams between two runs."""
        assigned = self._options.assigned
        if assigned is None:
            return key.stream in self._options.streams
        return key.partition in assigned.get(key.stream, ())


def _what_is_lost(key: PartitionKey, mark: Mark, now: Mark | None) -> TidelogError | None:
    """The reason why a query at `mark` cannot continue in a log with the mark `now`; None: it can."""
    if now is None:
        return StreamNotFound(f"the partition {key} no longer exists")
    if now.stream_id != mark.stream_id:
        return StreamNotFound(
            f"the stream {key.stream} that this query read ({id_text(mark.stream_id)}) was deleted, "
            f"and another stream has its name now ({id_text(now.stream_id)})"
        )
    at = mark.position.offset
    if at < now.first:
        return OffsetOutOfRange(f"{key} begins at offset {now.first}, but the query has read only up to {at}")
    if at > now.position.offset:
        return LogTruncated(f"{key} ends at offset {now.position.offset}, but the query has read up to {at}")
    return None

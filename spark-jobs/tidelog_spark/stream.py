"""The streaming reader, which PySpark calls between micro-batches in a process of its own.

The records of a batch are determined by the two documents (`offsets`) that Spark writes to the checkpoint
before the batch runs. `partitions` plans from them alone, so a batch that runs again reads the same
records. `commit` does nothing, because brokers keep no position of a Spark query (and PySpark calls it one
batch late, and never for the last batch).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidelog.errors import TidelogError
from tidelog_spark import cluster, planning
from tidelog_spark.byte_limits import within
from tidelog_spark.losses import losses
from tidelog_spark.offsets import Mark, Offsets, PartitionKey, from_document, ranges_between, to_document
from tidelog_spark.options import Options
from tidelog_spark.points import Bound, Edge
from tidelog_spark.positions import REMEDY, Reach, marks_at, reachable, with_epochs
from tidelog_spark.reader import Split, read_rows, splits
from tidelog_spark.schema import arrow_schema
from tidelog_spark.trigger_gate import TriggerGate

WARNINGS_MAX: Final = 1_000
"""The most different warnings that a query remembers, in order to log each of them once."""

log = logging.getLogger(__name__)


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the micro-batches of a query and reads their ranges. Picklable: tasks get a copy for `read`."""

    def __init__(
        self, options: Options, schema: StructType, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock`: seconds; it measures `maxTriggerDelay`."""
        self._options = options
        self._schema = schema
        self._clock = clock
        self._gate = TriggerGate(options.trigger.offsets_min, options.trigger.delay_s_max)
        self._target: Reach | None = None
        """With Trigger.AvailableNow: the marks at which the query ends."""
        self._known: Mapping[PartitionKey, Mark] | None = None
        """The ends of the streams when the last micro-batch was planned."""
        self._turn: int | None = None
        """The turn of the last micro-batch (`fair_shares`); None: this process has planned none."""
        self._warned: dict[str, None] = {}

    def __repr__(self) -> str:
        return f"<TidelogStreamReader {self._options.chosen}>"

    # --- offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's names
        """The start of the query. Spark calls it once for each checkpoint."""
        options = self._options
        start = options.starting or Bound("startingOffsets", Edge.LATEST)
        marks = marks_at(start, reachable(options).complete(), options)
        return to_document(with_epochs(marks, options))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Tells Spark that there is a limit. `latestOffset` applies all limits of the options together."""
        limits = self._options.trigger
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        return ReadAllAvailable() if limits.offsets_min is None else ReadMinRows(limits.offsets_min)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = reachable(self._options)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch; `start` if there are no new records, or not enough."""
        begin = from_document(start)
        reach = reachable(self._options) if self._target is None else self._target
        self._known = reach.marks
        self._check(begin, reach)
        if isinstance(limit, ReadAllAvailable):
            # Spark ignores the limits for Trigger.Once.
            return to_document(with_epochs(planning.advance(begin, reach.marks, None), self._options))
        begins = planning.begin_marks(begin, reach.marks)
        waiting = sum(planning.unread(begins, reach.marks).values())
        if self._target is None and not self._gate.opens(waiting, self._clock()):
            return dict(start)
        return to_document(with_epochs(self._limited(begin, begins, reach.marks), self._options))

    def _limited(self, begin: Offsets, begins: Offsets, ends: Offsets) -> dict[PartitionKey, Mark]:
        """The end of a micro-batch within the limits of the options."""
        limits = self._options.trigger
        # The first turn differs from start to start: otherwise a query that starts again for each
        # micro-batch would prefer the same partitions each time.
        last = sum(mark.position.offset for mark in begins.values()) if self._turn is None else self._turn
        self._turn = last + 1
        marks = planning.advance(begin, ends, limits.offsets_max, self._turn)
        if limits.bytes_max is None:
            return marks
        brokers, retries = cluster.of(self._options.servers), self._options.retries
        return within(
            begins,
            marks,
            limits.bytes_max,
            turn=self._turn,
            reach=ends,
            find=lambda starts: brokers.find(starts, retries),
        )

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the streams when the last micro-batch was planned, for the progress of the query.

        It asks no broker and never fails: Spark would end the query for the sake of a report.
        """
        return None if self._known is None else to_document(self._known)

    # --- ranges

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        return splits(ranges_between(from_document(start), from_document(end)), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Split):
            return iter(())
        return read_rows(
            cluster.of(self._options.servers), partition.piece, arrow_schema(self._schema), self._options
        )

    def commit(self, end: Mapping[str, Any]) -> None:
        """Does nothing: the position of the query is only in its checkpoint."""

    def stop(self) -> None:
        cluster.close_all()

    # --- lost records

    def _check(self, begin: Offsets, reach: Reach) -> None:
        """Reports what cannot be read before a batch is planned: an error, or a warning."""
        known = {key.stream for key in begin}
        for error in losses(begin, reach, self._options.chosen):
            self._report(error, f"records are lost: {error}")
        for error in reach.missing:
            if error.details.get("stream") not in known:
                self._report(error, str(error))

    def _report(self, error: TidelogError, sentence: str) -> None:
        if self._options.fail_on_data_loss:
            raise type(error)(f"{sentence}; {REMEDY}")
        if sentence not in self._warned and len(self._warned) < WARNINGS_MAX:
            self._warned[sentence] = None
            log.warning("%s", sentence)

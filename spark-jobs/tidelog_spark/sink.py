"""Writes the rows of a query to a stream: the sink of batch writes and streaming queries (S1–S4,
docs/sink.md).

For each batch Spark makes a writer on the driver, sends copies of it to the tasks, and commits the batch when
all tasks have succeeded. The writer on the driver begins a run of the sink; so each attempt of a batch fences
the attempts before it. The commit begins one more run, so that no task writes any more, and then compares
the log with what the tasks have reported.

PySpark does not give the number of the batch to `write`. Tasks read it from the local properties of their
job, which Spark sets for each micro-batch, also for retries and speculative attempts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tidelog import blocking
from tidelog.errors import IndeterminateReplay, InternalError, TidelogError
from tidelog.sink import OpenBatch, TaskRows
from tidelog_spark import cluster
from tidelog_spark.sink_options import SinkOptions
from tidelog_spark.sink_rows import RowSplitter, check_sink_schema

BATCH_ID: Final = "streaming.sql.batchId"
"""The local property with the number of the micro-batch."""

QUERY_ID: Final = "sql.streaming.queryId"
"""The local property with the id of the query, which its checkpoint keeps."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task has written; the driver gets it from each task of the batch."""

    name: str
    """Of the sink."""
    batch_id: int
    task: int
    rows: dict[int, TaskRows]
    """By partition."""


class _Writer:
    """What batch writes and streaming queries have in common."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Raises `InvalidRequest` for rows that are no records, and `StreamNotFound`: tasks would find out
        only after several attempts.
        """
        check_sink_schema(schema)
        self._options = options
        cluster.of(options.servers).check_stream(options.stream, "stream")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._options.stream}>"

    def _sink(self) -> blocking.Sink:
        return cluster.of(self._options.servers).sink(self._options.stream)

    def _write(self, rows: Iterator[pa.RecordBatch], name: str, batch: OpenBatch) -> Written:
        """The work of a task."""
        task = _context().partitionId()
        splitter = RowSplitter(task, batch.partitions, batch.time_us)
        with self._sink().attempt(batch, task, compression=self._options.compression) as attempt:
            for some in rows:
                for partition, columns in splitter.split(some):
                    attempt.write(columns, partition)
            return Written(name, batch.batch_id, task, attempt.finish())

    def _commit(
        self, messages: Sequence[WriterCommitMessage | None], *, once: bool = False
    ) -> OpenBatch | None:
        """Ends the runs of the tasks, and checks that the log has what they reported.

        Returns the batch in its last run; None if there were no tasks.
        """
        written = [message for message in messages if isinstance(message, Written)]
        if len(written) < len(messages):
            raise InternalError("Spark commits a batch of which a task has not reported what it wrote")
        if not written:
            return None
        name, batch_id = written[0].name, written[0].batch_id
        if any((one.name, one.batch_id) != (name, batch_id) for one in written):
            raise IndeterminateReplay("Spark commits tasks of several batches at once")
        sink = self._sink()
        batch = sink.open(name, run=sink.begin_run(), batch_id=batch_id, once=once)
        sink.verify(batch, {one.task: one.rows for one in written})
        return batch


class TidelogStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query, each exactly once."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Also begins a run of the sink. Only tasks know the number of the micro-batch, so they open it."""
        super().__init__(options, schema)
        self._run = self._sink().begin_run()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batch_id, query_id = _property(BATCH_ID), _property(QUERY_ID)
        name = self._options.sink_id or f"spark-{query_id}"
        return self._write(iterator, name, self._sink().open(name, run=self._run, batch_id=int(batch_id)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's
        """Nothing is taken back: when Spark repeats the batch, its tasks find their rows in the log."""


class TidelogBatchWriter(_Writer, DataSourceArrowWriter):
    """Writes the rows of a batch write: each once if it succeeds."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Also opens the batch: a task that opened it itself could do so again after the end of the write."""
        super().__init__(options, schema)
        self._once = not options.sink_id
        self._name = options.sink_id or f"write-{uuid.uuid4()}"
        self._batch = self._open()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._write(iterator, self._name, self._batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._end(self._commit(messages, once=self._once))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is taken back: rows of a write that failed may stay in the stream. No task adds to them."""
        with suppress(TidelogError):
            self._end(None)

    def _open(self) -> OpenBatch:
        sink, batch_id = self._sink(), self._options.sink_batch_id or 0
        return sink.open(self._name, run=sink.begin_run(), batch_id=batch_id, once=self._once)

    def _end(self, last: OpenBatch | None) -> None:
        """Ends a sink that no later write uses: from now on attempts of its tasks are refused."""
        if self._once:
            self._sink().close(self._name, (last or self._open()).run)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written by a task"
    return context


def _property(name: str) -> str:
    value = _context().getLocalProperty(name)
    if value is None:
        raise InternalError(
            f"Spark has not set the property {name} for this task, so the number of its micro-batch is not "
            f"known"
        )
    return value

"""One attempt of a task of a sink: skips the rows that are in the log, and writes the others (S2, S3).

Attempts of one task may run at the same time. Each cuts the same record batches of the same rows, and a
partition takes a record batch only behind the rows before it. So the attempts help each other if their rows
are equal, and if not, an attempt ends with `IndeterminateReplay`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from tidelog._producing.sender import Sender
from tidelog._sinking.calls import OpenBatch, TaskRows
from tidelog._sinking.cutting import Cutter
from tidelog.errors import DuplicateSequence, IndeterminateReplay, InvalidRequest
from tidelog.model import Receipt
from tidelog.records import BatchHeader, Compression, encode_batch, to_columns
from tidelog.records.checksum import chained
from tidelog.records.layout import SinkTask

TASK_ROWS_MAX: Final = (1 << 32) - 1
"""Rows of one task and partition: sequences do not begin again."""


class _Progress:
    """What the attempt has cut for one partition."""

    def __init__(self, there: TaskRows, cutter: Cutter) -> None:
        self.there = there
        """The rows of the task that were in the log when the attempt began."""
        self.cutter = cutter
        self.rows = 0
        self.chain = 0


class SinkAttempt:
    """Writes the rows of one task; made by `tidelog.sink.Sink.attempt`."""

    def __init__(
        self,
        sender: Sender,
        batch: OpenBatch,
        task: int,
        there: Mapping[int, TaskRows],
        compression: Compression,
        rows_max: int,
    ) -> None:
        """`rows_max`: rows of one record batch."""
        self._sender = sender
        self._batch = batch
        self._task = SinkTask(batch.sink, task)
        self._compression = compression
        size = sender.description.config.batch_bytes_max
        self.there = there
        """By partition: the rows of the task that were in the log when the attempt began."""
        self._partitions = {
            number: _Progress(rows, Cutter(size, rows_max)) for number, rows in sorted(there.items())
        }
        self._waiting: dict[asyncio.Future[Receipt], None] = {}

    def __repr__(self) -> str:
        return f"<SinkAttempt task={self._task.task} of {self._batch}>"

    async def write(self, columns: pa.RecordBatch, partition: int) -> None:
        """Takes rows for a partition; waits while too many bytes are on their way.

        Columns: as for `Producer.send_batch`, the same in every call of the attempt; rows without a timestamp
        get the time of the batch. Raises `IndeterminateReplay` if the rows differ from those in the log, and
        the error of an earlier write.
        """
        progress = self._partitions.get(partition)
        if progress is None or partition >= self._batch.partitions:
            raise InvalidRequest(
                f"a row is for partition {partition}, but the batch is spread over partitions 0 to "
                f"{self._batch.partitions - 1}"
            )
        for piece in progress.cutter.push(to_columns(columns, now_us=self._batch.time_us)):
            await self._emit(partition, progress, piece)

    async def finish(self) -> dict[int, TaskRows]:
        """Writes the rest and waits until all rows are committed; returns the rows of each partition.

        Raises like `write`.
        """
        for partition, progress in self._partitions.items():
            for piece in progress.cutter.flush():
                await self._emit(partition, progress, piece)
            if progress.rows < progress.there.rows:
                raise self._differs(
                    partition, f"it has {progress.there.rows} rows, and this attempt {progress.rows}"
                )
        if self._waiting:
            await asyncio.wait(list(self._waiting))
        self._raise_failures()
        return {
            partition: TaskRows(progress.rows, progress.chain)
            for partition, progress in self._partitions.items()
            if progress.rows
        }

    async def close(self) -> None:
        """Ends the attempt; rows on their way may still be written."""
        await self._sender.stop()
        for future in self._waiting:
            if future.done() and not future.cancelled():
                future.exception()

    # --- record batches

    async def _emit(self, partition: int, progress: _Progress, piece: pa.RecordBatch) -> None:
        """Sends the next record batch of a partition, or compares it with the log."""
        first, there = progress.rows, progress.there
        if first + piece.num_rows > TASK_ROWS_MAX:
            raise InvalidRequest(
                f"a task has more than {TASK_ROWS_MAX} rows for one partition; use more Spark partitions"
            )
        data = encode_batch(
            piece,
            compression=self._compression,
            producer_id=self._task.producer_id,
            base_sequence=first,
            sink_batch_id=self._batch.batch_id,
        )
        progress.rows = first + piece.num_rows
        progress.chain = chained(progress.chain, BatchHeader.unpack(data).body_crc)
        if first >= there.rows:
            await self._send(partition, piece.num_rows, data)
        elif progress.rows > there.rows:
            raise self._differs(partition, f"row {there.rows} is inside a record batch of this attempt")
        elif progress.rows == there.rows and progress.chain != there.chain:
            raise self._differs(partition, f"the first {there.rows} rows of the task have another checksum")

    async def _send(self, partition: int, count: int, data: bytes) -> None:
        sender = self._sender
        held = min(len(data), sender.budget.bytes_max)
        while not sender.budget.take(held):
            await sender.budget.room(held)
        self._raise_failures()
        batch = sender.new_batch(partition, count, held)
        batch.data = data
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        batch.future = future
        self._waiting[future] = None
        sender.submit(sender.queue(partition), batch)

    def _raise_failures(self) -> None:
        """Drops the answered record batches; raises the first error among them."""
        for future in [future for future in self._waiting if future.done()]:
            del self._waiting[future]
            error = future.exception()
            if isinstance(error, DuplicateSequence):
                raise DuplicateSequence(
                    f"another attempt of task {self._task.task} is ahead of this one: {error}"
                ) from error
            if error is not None:
                raise error

    def _differs(self, partition: int, why: str) -> IndeterminateReplay:
        return IndeterminateReplay(
            f"task {self._task.task} writes batch {self._batch.batch_id} again with other rows than those in "
            f"partition {partition} of the log: {why}. The query must give the same rows, in the same "
            f"tasks, when Spark repeats a batch"
        )

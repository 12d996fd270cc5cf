"""The public producer: it takes records and returns receipts.

This module chooses the partition of a record, computes its size and keeps the bound of the buffer.
`_producing.accumulator` collects records in batches, `_producing.splitting` cuts Arrow data into
batches, and `_producing.sender` delivers them.
"""

from __future__ import annotations

import asyncio
import random
import time
from datetime import datetime
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from tidelog._arguments import GivenHeaders, as_bytes, as_headers, as_subject, as_us
from tidelog._connecting.channels import Channels
from tidelog._connecting.metadata import Metadata
from tidelog._options import ProducerOptions
from tidelog._producing.accumulator import RecordAccumulator
from tidelog._producing.batching import COLUMN_BYTES, GRANT_BYTES, RECORD_BYTES, OpenBatch, record_size
from tidelog._producing.buffer_budget import BufferFull
from tidelog._producing.checks import (
    check_arrow,
    check_record_size,
    checked_expected_offset,
    checked_partition,
)
from tidelog._producing.partition_queue import PartitionQueue
from tidelog._producing.partitioner import StickyPartition, partition_of
from tidelog._producing.sender import Sender, Stall
from tidelog._producing.splitting import split
from tidelog._producing.unfinished import own_copy
from tidelog.errors import BatchTooLarge, InvalidRequest, TidelogError
from tidelog.model import Receipt
from tidelog.records.limits import BATCH_OVERHEAD_BYTES, RECORDS_PER_BATCH_MAX

__all__ = ["BufferFull", "Producer", "Stall"]

KEYED_RECORD_BYTES: Final = RECORD_BYTES + COLUMN_BYTES

RECORDS_MAX: Final = RECORDS_PER_BATCH_MAX - GRANT_BYTES // RECORD_BYTES - 1
"""Records are only counted when a batch takes memory, so the limit is lower by one grant of the smallest
records."""


class Producer:
    """Writes records to one stream. `Client.producer` makes it; use it with ``async with``.

    It is not thread-safe: all calls must come from one event loop. For threads use `tidelog.blocking`.
    """

    def __init__(
        self,
        stream: str,
        channels: Channels,
        metadata: Metadata,
        options: ProducerOptions,
        rng: random.Random,
    ) -> None:
        self.stream = stream
        self.options = options
        self._rng = rng
        self._sender = Sender(stream, channels, metadata, options, rng, self._window_opened)
        self._accumulator = RecordAccumulator(self._sender, options)
        self._budget = self._sender.budget
        self._count = 1
        """The number of partitions; known after `start`."""
        self._loop: asyncio.AbstractEventLoop
        self._started = False
        self._closed = False

    def __repr__(self) -> str:
        state = " closed" if self._closed else ""
        return (
            f"<Producer {self.stream} unfinished={len(self._sender.unfinished)} "
            f"buffered={self._budget.used}/{self._budget.bytes_max}{state}>"
        )

    # --- life

    async def start(self) -> None:
        """Finds the stream and gets a producer id; ``async with`` calls it.

        Raises `StreamNotFound`, or `Unavailable` when no broker answers.
        """
        if self._started:
            return
        self._loop = asyncio.get_running_loop()
        await self._sender.start()
        description = self._sender.description
        config = description.config
        self._count = len(description.partitions)
        self._batch_bytes_max = config.batch_bytes_max
        self._size_max = min(self.options.batch_bytes, config.batch_bytes_max) - BATCH_OVERHEAD_BYTES
        if self._size_max <= 0:
            self._size_max = config.batch_bytes_max // 2
        sticky = StickyPartition(self._count, self._rng.randrange(self._count))
        self._accumulator.start(sticky, config.batch_bytes_max)
        self._started = True

    async def close(self) -> None:
        """Sends all buffered records, waits for their receipts, and closes the producer.

        Raises the same errors as `flush`. When cancelled, or called again, it gives up the records that
        are left.
        """
        if not self._started:
            self._closed = True
            return
        already, self._closed = self._closed, True
        try:
            if not already:
                await self.flush()
        finally:
            await self._shut_down()

    async def abort(self) -> None:
        """Closes at once. Unacknowledged records fail; those in flight fail with an indefinite error."""
        self._closed = True
        if self._started:
            await self._shut_down()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            await self.abort()
        elif error is not None:
            # The error of the body is the one to raise.
            try:
                await self.close()
            except TidelogError as failure:
                error.add_note(f"the producer also lost records: {failure}")
        else:
            await self.close()

    # --- records

    def send_nowait(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: GivenHeaders | None = None,
        subject: str | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
    ) -> None:
        """Buffers a record, which is sent in the background together with others.

        The next `flush` or `close` raises an error if the record was not committed. When the buffer is
        full, this raises `ResourceExhausted` (definite: the record was not taken). Call ``await
        producer.drain()`` regularly; it also lets the event loop work. `timestamp` must have a time
        zone; None: now. Arguments of the wrong type raise `InvalidRequest`.
        """
        # This runs a million times a second, so it does only what a plain record needs. `_append` does
        # the rest and raises every error.
        if (
            value.__class__ is bytes
            and headers is None
            and subject is None
            and timestamp is None
            and partition is None
        ):
            if key is None:
                batch = self._accumulator.sticky_open
                room = batch.room - len(value) - RECORD_BYTES
                if room >= 0:
                    batch.room = room
                    batch.add_value(value)
                    batch.add_timestamp(time.time_ns())
                    return
            elif key.__class__ is bytes:
                batch = self._accumulator.open_batches[self._partition_of_key(key)]
                room = batch.room - len(value) - len(key) - KEYED_RECORD_BYTES
                if room >= 0 and len(batch.keys) == len(batch.values):
                    batch.room = room
                    batch.add_value(value)
                    batch.keys.append(key)
                    batch.add_timestamp(time.time_ns())
                    return
        self._append(value, key, headers, subject, timestamp, partition)

    async def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: GivenHeaders | None = None,
        subject: str | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
        expected_offset: int | None = None,
    ) -> Receipt:
        """Sends a record and waits for its receipt: the record is committed when this returns.

        Waits while the buffer is full. With `expected_offset` it is a conditional append (R9): the record
        is sent alone, and appended only if it gets this offset; otherwise it raises `UnexpectedOffset`. A
        conditional append needs `partition` if the stream has several. A cancelled send may still be
        executed. Arguments of the wrong type raise `InvalidRequest`.
        """
        if expected_offset is not None:
            return await self._send_alone(value, key, headers, subject, timestamp, partition, expected_offset)
        while True:
            try:
                queue, batch, index = self._append(value, key, headers, subject, timestamp, partition)
                break
            except BufferFull as full:
                await self._budget.room(full.size)
        future: asyncio.Future[Receipt] = self._loop.create_future()
        batch.futures.append((index, future))
        if queue.open is batch:
            self._accumulator.awaited(queue)
        return await future

    async def send_batch(
        self, data: pa.RecordBatch | pa.Table, *, partition: int | None = None
    ) -> list[Receipt]:
        """Sends Arrow data and waits for its receipts: all rows are committed when this returns.

        Columns: any of key, value, headers, subject, timestamp (types: `to_columns`). Large data is sent
        as several batches, rows with a key to the partitions of their keys; each batch has a receipt.
        Waits while the buffer is full. When one batch fails, the others may have been committed.
        """
        futures: list[asyncio.Future[Receipt]] = []
        try:
            for target, columns in self._parts(data, partition):
                size = columns.nbytes + BATCH_OVERHEAD_BYTES
                held_bytes = min(size, self._budget.bytes_max)
                while not self._budget.take(held_bytes):
                    self._accumulator.seal_all()
                    await self._budget.room(held_bytes)
                    self._check_usable()
                future: asyncio.Future[Receipt] = self._loop.create_future()
                self._accumulator.send(target, columns, held_bytes, future=future)
                futures.append(future)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        if futures:
            await asyncio.wait(futures)
        return [future.result() for future in futures]

    def send_batch_nowait(self, data: pa.RecordBatch | pa.Table, *, partition: int | None = None) -> None:
        """Buffers Arrow data as `send_nowait` buffers a record: all rows, or none (`ResourceExhausted`)."""
        parts = list(self._parts(data, partition))
        sizes = [columns.nbytes + BATCH_OVERHEAD_BYTES for _, columns in parts]
        if sum(sizes) > self._budget.bytes_max:
            raise BatchTooLarge(
                f"data of {sum(sizes)} bytes does not fit into the producer's buffer of "
                f"{self._budget.bytes_max} bytes (buffer_bytes_max); use send_batch(), or smaller parts"
            )
        if not self._budget.take(sum(sizes)):
            self._accumulator.seal_all()
            raise self._budget.full(sum(sizes))
        for (target, columns), size in zip(parts, sizes, strict=True):
            self._accumulator.send(target, columns, size)

    async def drain(self) -> None:
        """Waits while more than half of the buffer is in use; lets the event loop run at least once."""
        await asyncio.sleep(0)
        half = self._budget.bytes_max // 2
        while self._budget.used > half and not self._closed:
            await self._budget.room(half)

    async def room(self, size: int) -> None:
        """Waits until `size` bytes of the buffer may be free."""
        await self._budget.room(size)

    async def flush(self) -> None:
        """Sends all records that are buffered now and waits for their receipts.

        Raises the first failure of the records that were sent without waiting (`send_nowait`) since the
        last flush. ``details["records_lost"]`` is the number of failed records. The error is indefinite if
        the failure of any of these records was.
        """
        self._check_started()
        self._accumulator.seal_all()
        await self._sender.unfinished.all_finished()

    def stall(self) -> Stall | None:
        """How long records have waited for a receipt, and after which failure; None: none wait."""
        return self._sender.stall() if self._started else None

    # --- from records to batches

    def _append(
        self,
        value: object,
        key: object,
        given_headers: GivenHeaders | None,
        given_subject: object,
        timestamp: datetime | None,
        partition: int | None,
    ) -> tuple[PartitionQueue, OpenBatch, int]:
        self._check_usable()
        value, key = as_bytes(value, "value"), as_bytes(key, "key")
        headers, subject = as_headers(given_headers), as_subject(given_subject)
        timestamp_ns = time.time_ns() if timestamp is None else as_us(timestamp, "timestamp") * 1000
        queue = self._sender.queue(self._choose(key, partition))
        batch = queue.open
        size = record_size(value, key, headers, subject, len(batch.values) if batch is not None else 0)
        if batch is not None and (batch.used + size > self._size_max or len(batch.values) >= RECORDS_MAX):
            self._accumulator.seal(queue)
            queue = self._sender.queue(self._choose(key, partition))
            batch = queue.open
            size = record_size(value, key, headers, subject, len(batch.values) if batch is not None else 0)
        self._check_size(size)
        if batch is None:
            batch = self._accumulator.open(queue)
        if not batch.reserve(size, self._budget, self._size_max):
            # The buffered records must not wait for more records, because the buffer has no room for them.
            self._accumulator.seal_all()
            raise self._budget.full(size)
        index = batch.append(value, timestamp_ns, key, headers, subject, size)
        return queue, batch, index

    def _check_size(self, size: int) -> None:
        check_record_size(size, self._batch_bytes_max, self._budget.bytes_max)

    def _choose(self, key: bytes | None, partition: int | None) -> int:
        if partition is not None:
            return checked_partition(partition, self.stream, self._count)
        return self._accumulator.sticky.current if key is None else self._partition_of_key(key)

    def _partition_of_key(self, key: bytes) -> int:
        return partition_of(key, self._count) if self._count > 1 else 0

    def _parts(
        self, data: pa.RecordBatch | pa.Table, partition: int | None
    ) -> list[tuple[int, pa.RecordBatch]]:
        """Cuts Arrow data into batches of the right size, each with its partition."""
        self._check_usable()
        check_arrow(data)
        if partition is not None:
            partition = self._choose(None, partition)
        return split(data, partition, self._accumulator.sticky, self._size_max, self._batch_bytes_max)

    async def _send_alone(
        self,
        value: object,
        key: object,
        headers: GivenHeaders | None,
        subject: object,
        timestamp: datetime | None,
        partition: int | None,
        expected_offset: int,
    ) -> Receipt:
        self._check_usable()
        expected_offset = checked_expected_offset(expected_offset, partition, self.stream, self._count)
        target = self._choose(None, 0 if partition is None else partition)
        single = OpenBatch()
        value, key = as_bytes(value, "value"), as_bytes(key, "key")
        checked, text = as_headers(headers), as_subject(subject)
        size = record_size(value, key, checked, text, 0)
        self._check_size(size)
        timestamp_ns = time.time_ns() if timestamp is None else as_us(timestamp, "timestamp") * 1000
        while not single.reserve(size, self._budget, size):
            self._accumulator.seal_all()
            await self._budget.room(size)
            self._check_usable()
        single.append(value, timestamp_ns, key, checked, text, size)
        future: asyncio.Future[Receipt] = self._loop.create_future()
        columns, held = single.columns(), single.granted
        self._accumulator.send(target, columns, held, future=future, expected_offset=expected_offset)
        return await future

    # --- the rest

    def _window_opened(self, queue: PartitionQueue) -> None:
        self._accumulator.window_opened(queue)

    def _check_started(self) -> None:
        if not self._started:
            raise InvalidRequest("the producer is not started; use it with async with, or call start()")

    def _check_usable(self) -> None:
        self._check_started()
        if self._closed:
            raise InvalidRequest("the producer is closed; make another one")
        if self._sender.fatal is not None:
            raise own_copy(self._sender.fatal)

    async def _shut_down(self) -> None:
        reason = InvalidRequest("the producer was closed before the record was sent")
        self._accumulator.give_up(reason)
        await self._sender.stop()

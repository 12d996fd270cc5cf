"""The producer of `tidelog.blocking`: it collects the records of many threads in batches.

To wake the loop's thread for every record would cost more than the record. So records are collected in
batches here, under a lock, and the asyncio producer (`tidelog.producer`) gets whole batches.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from tidelog import producer
from tidelog._arguments import GivenHeaders, as_bytes, as_headers, as_int, as_subject
from tidelog._blocking.loop_thread import LoopThread
from tidelog._producing.batching import OpenBatch, record_size
from tidelog._producing.buffer_budget import BufferFull
from tidelog.errors import ResourceExhausted, TidelogError
from tidelog.model import Receipt


class Producer:
    """Writes records to one stream, from any number of threads.

    `tidelog.producer.Producer` describes the methods. Records are collected in batches in the calling
    thread; the loop's thread gets whole batches.
    """

    def __init__(self, thread: LoopThread, inner: producer.Producer) -> None:
        self._thread = thread
        self._producer = inner
        self._lock = threading.Lock()
        self._open: dict[int | None, OpenBatch] = {}
        """By the given partition; None: the producer chooses it."""
        self._full: deque[tuple[int | None, OpenBatch]] = deque()
        """Sealed batches that wait for the loop's thread."""
        self._held_bytes = 0
        self._held_bytes_max = inner.options.buffer_bytes_max
        self._batch_bytes = min(inner.options.batch_bytes, self._held_bytes_max // 4)
        self._feeding: asyncio.Task[None] | None = None
        self._refused_records = 0
        self._refused_first: TidelogError | None = None

    def __repr__(self) -> str:
        return f"<blocking {self._producer!r}>"

    def send_nowait(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: GivenHeaders | None = None,
        subject: str | None = None,
        partition: int | None = None,
    ) -> None:
        """Buffers a record; the next `flush` or `close` raises an error if it was not committed.

        Raises `ResourceExhausted` (definite) when the buffer is full: call `drain` regularly.
        """
        value, key = as_bytes(value, "value"), as_bytes(key, "key")
        checked, text = as_headers(headers), as_subject(subject)
        if partition is not None:
            partition = as_int(partition, "partition")
        with self._lock:
            batch = self._open.get(partition)
            position = len(batch.values) if batch is not None else 0
            size = record_size(value, key, checked, text, position)
            if self._held_bytes + size > self._held_bytes_max:
                raise ResourceExhausted(
                    f"the producer's buffer is full: {self._held_bytes} of {self._held_bytes_max} bytes "
                    "(buffer_bytes_max); wait with drain(), or use send()"
                )
            self._held_bytes += size
            if batch is None:
                batch = self._open[partition] = OpenBatch()
                self._thread.loop.call_soon_threadsafe(self._linger, partition, batch)
            batch.append(value, time.time_ns(), key, checked, text, size)
            if batch.used >= self._batch_bytes:
                self._seal(partition)
                self._thread.loop.call_soon_threadsafe(self._feed)

    def send(self, value: bytes | None, **record: Any) -> Receipt:
        """Sends a record and waits for its receipt; `record` as for the asyncio producer."""

        async def send() -> Receipt:
            await self._fed()
            return await self._producer.send(value, **record)

        return self._thread.run(send())

    def send_batch(self, data: pa.RecordBatch | pa.Table, *, partition: int | None = None) -> list[Receipt]:
        """Sends Arrow data and waits for its receipts."""

        async def send() -> list[Receipt]:
            await self._fed()
            return await self._producer.send_batch(data, partition=partition)

        return self._thread.run(send())

    def drain(self) -> None:
        """Waits while more than half of the buffer is in use."""

        async def drain() -> None:
            while self._full:
                self._feed()
                assert self._feeding is not None
                await asyncio.shield(self._feeding)
            await self._producer.drain()

        self._thread.run(drain())

    def flush(self) -> None:
        """Sends all buffered records and waits for their receipts; raises the first failure."""
        self._thread.run(self._flush())

    def close(self) -> None:
        """Flushes and closes; raises the same errors as `flush`."""

        async def close() -> None:
            try:
                await self._flush()
            finally:
                await self._producer.close()

        self._thread.run(close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except TidelogError as failure:
            error.add_note(f"the producer also lost records: {failure}")

    def _seal(self, partition: int | None) -> None:
        self._full.append((partition, self._open.pop(partition)))

    # --- in the loop's thread

    def _linger(self, partition: int | None, batch: OpenBatch) -> None:
        delay_s = self._producer.options.linger_ms / 1000
        self._thread.loop.call_later(delay_s, self._lingered, partition, batch)

    def _lingered(self, partition: int | None, batch: OpenBatch) -> None:
        with self._lock:
            if self._open.get(partition) is not batch:
                return
            self._seal(partition)
        self._feed()

    def _feed(self) -> None:
        if self._feeding is None or self._feeding.done():
            self._feeding = self._thread.loop.create_task(self._hand_over(), name="records of other threads")

    async def _hand_over(self) -> None:
        while self._full:
            partition, batch = self._full.popleft()
            await self._hand_over_one(partition, batch)
            with self._lock:
                self._held_bytes -= batch.used

    async def _hand_over_one(self, partition: int | None, batch: OpenBatch) -> None:
        columns = batch.columns()
        while True:
            try:
                self._producer.send_batch_nowait(columns, partition=partition)
                return
            except BufferFull as full:
                await self._producer.room(full.size)
            except TidelogError as error:
                self._refused_records += columns.num_rows
                self._refused_first = self._refused_first or error
                return

    async def _fed(self) -> None:
        """Hands all records so far to the asyncio producer."""
        with self._lock:
            for partition in list(self._open):
                self._seal(partition)
        while self._full or (self._feeding is not None and not self._feeding.done()):
            self._feed()
            assert self._feeding is not None
            await asyncio.shield(self._feeding)

    async def _flush(self) -> None:
        await self._fed()
        await self._producer.flush()
        first, refused = self._refused_first, self._refused_records
        self._refused_first, self._refused_records = None, 0
        if first is not None:
            records = "record was" if refused == 1 else "records were"
            raise type(first)(
                f"{refused} {records} not taken; the first error: {first}",
                records_lost=refused,
            ) from first

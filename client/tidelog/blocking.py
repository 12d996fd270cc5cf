"""The same nouns without asyncio, for scripts and Spark tasks.

All clients of a process share one event loop in a daemon thread (gRPC's asyncio side is
made for one loop), with the asyncio client inside it; batches cross threads several at a
time. Methods may be called from any thread but the loop's own.

    with tidelog.blocking.connect("localhost:9210") as log:
        with log.producer("orders") as producer:
            producer.send(b"value", key=b"k")
        for record in log.reader("orders", follow=False):
            ...
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import wraps
from types import TracebackType
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

import pyarrow as pa

from tidelog import client, producer, reader
from tidelog._batching import GivenHeaders, OpenBatch, as_bytes, as_headers, as_subject, record_size
from tidelog._consuming import Consumed
from tidelog._fetching import FetchedBatch
from tidelog.errors import InvalidRequest, ResourceExhausted, TidelogError
from tidelog.model import Position, Receipt, Record

T = TypeVar("T")
P = ParamSpec("P")


class _LoopThread:
    """The event loop that runs in a daemon thread until the process ends."""

    _shared: ClassVar[_LoopThread | None] = None
    _shared_lock = threading.Lock()

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="tidelog", daemon=True)
        self._thread.start()

    @classmethod
    def shared(cls) -> _LoopThread:
        with cls._shared_lock:
            if cls._shared is None:
                cls._shared = cls()
            return cls._shared

    @classmethod
    def forget(cls) -> None:
        """After a fork: the thread stayed with the parent."""
        cls._shared = None
        cls._shared_lock = threading.Lock()

    @classmethod
    def stop(cls) -> None:
        """At the end of the process."""
        with cls._shared_lock:
            shared, cls._shared = cls._shared, None
        if shared is not None:
            shared.loop.call_soon_threadsafe(shared.loop.stop)
            shared._thread.join()
            shared.loop.close()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which is cancelled if the waiting thread is interrupted."""
        if threading.current_thread() is self._thread:
            work.close()
            raise InvalidRequest("a blocking call in the event loop's own thread would wait for itself")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
            raise


atexit.register(_LoopThread.stop)
os.register_at_fork(after_in_child=_LoopThread.forget)


def connect(addresses: str | Sequence[str], **settings: Any) -> Client:
    """A connected client; see `tidelog.connect`. Close it, or use it with ``with``."""
    thread = _LoopThread.shared()

    async def make() -> client.Client:
        return await client.connect(addresses, **settings)

    return Client(thread, thread.run(make()))


def _blocking(
    method: Callable[Concatenate[client.Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """The method of the asyncio client, waited for."""

    @wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.thread.run(method(self.client, *args, **kwargs))

    return call


class Client:
    """See `tidelog.client.Client`; every method waits for its result."""

    def __init__(self, thread: _LoopThread, inner: client.Client) -> None:
        self.thread = thread
        self.client = inner

    create_stream = _blocking(client.Client.create_stream)
    alter_stream = _blocking(client.Client.alter_stream)
    delete_stream = _blocking(client.Client.delete_stream)
    describe_stream = _blocking(client.Client.describe_stream)
    list_streams = _blocking(client.Client.list_streams)
    describe_cluster = _blocking(client.Client.describe_cluster)
    describe_replicas = _blocking(client.Client.describe_replicas)
    offsets = _blocking(client.Client.offsets)
    delete_records = _blocking(client.Client.delete_records)

    def __repr__(self) -> str:
        return f"<blocking {self.client!r}>"

    def producer(self, stream: str, **settings: Any) -> Producer:
        """A started producer; `settings` as for `tidelog.client.Client.producer`."""

        async def make() -> producer.Producer:
            made = self.client.producer(stream, **settings)
            await made.start()
            return made

        return Producer(self.thread, self.thread.run(make()))

    def reader(self, stream: str, **settings: Any) -> Reader:
        """A reader; `settings` as for `tidelog.client.Client.reader`."""

        async def make() -> reader.Reader:
            return self.client.reader(stream, **settings)

        return Reader(self.thread, self.thread.run(make()))

    def close(self) -> None:
        """Closes everything that the client made."""
        self.thread.run(self.client.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Producer:
    """See `tidelog.producer.Producer`; thread-safe.

    Records gather in batches in the calling thread; the loop's thread gets whole ones.
    """

    def __init__(self, thread: _LoopThread, inner: producer.Producer) -> None:
        self._thread = thread
        self._producer = inner
        self._lock = threading.Lock()
        self._open: dict[int | None, OpenBatch] = {}
        """By the partition that was asked for; None: none was."""
        self._full: deque[tuple[int | None, OpenBatch]] = deque()
        """On their way to the loop's thread."""
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
        """Buffers a record; its fate shows at the next `flush` or `close`.

        Raises `ResourceExhausted` when the buffer is full: `drain` now and then.
        """
        value, key = as_bytes(value, "value"), as_bytes(key, "key")
        checked, text = as_headers(headers), as_subject(subject)
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
        """Sends everything buffered and waits for it; raises the first failure."""
        self._thread.run(self._flush())

    def close(self) -> None:
        """Flushes and closes; raises like `flush`."""

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
            error.add_note(f"and the producer lost records: {failure}")

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
            except producer.BufferFull as full:
                await self._producer.room(full.size)
            except TidelogError as error:
                self._refused_records += columns.num_rows
                self._refused_first = self._refused_first or error
                return

    async def _fed(self) -> None:
        """Everything sent so far is the asyncio producer's."""
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
            raise type(first)(
                f"{refused} records were not taken; the first: {first}", records_lost=refused
            ) from first


class Reader:
    """See `tidelog.reader.Reader`; for one thread at a time."""

    def __init__(self, thread: _LoopThread, inner: reader.Reader) -> None:
        self._thread = thread
        self._reader = inner
        self._here: deque[FetchedBatch] = deque()
        self._consumed = Consumed()

    def __repr__(self) -> str:
        return f"<blocking {self._reader!r}>"

    @property
    def positions(self) -> dict[int, Position]:
        """Where to read on, by partition, with the epoch of the last record read (R13)."""
        return {**self._reader.positions, **self._consumed.positions}

    @property
    def high_watermarks(self) -> dict[int, int]:
        """The newest that the brokers said, by partition."""
        return self._reader.high_watermarks

    def __iter__(self) -> Iterator[Record]:
        """The records; ends at `end`, or without `follow` at the high watermark of the start."""
        while True:
            row = self._consumed.next_row()
            if row is not None:
                yield row
                continue
            batch = self._next()
            if batch is None:
                return
            self._consumed.open(batch)

    def fetched_batches(self) -> Iterator[FetchedBatch]:
        """The batches with their places in the log."""
        rest = self._consumed.rest()
        if rest is not None:
            yield rest
        while (batch := self._next()) is not None:
            yield self._consumed.take(batch)

    def batches(self, *, with_offsets: bool = False) -> Iterator[pa.RecordBatch]:
        """The columns of the batches; `with_offsets` adds the column ``offset``."""
        for batch in self.fetched_batches():
            yield batch.with_offsets() if with_offsets else batch.columns

    def close(self) -> None:
        self._thread.run(self._reader.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _next(self) -> FetchedBatch | None:
        if not self._here:
            self._here.extend(self._thread.run(self._reader.arrived()))
        return self._here.popleft() if self._here else None

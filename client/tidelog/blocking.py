"""The client, producer and reader without asyncio, for scripts and Spark tasks.

The asyncio client runs in a thread of its own (`_blocking.loop_thread`); batches are passed between threads
several at a time. Methods may be called from any thread except the loop's own.

    with tidelog.blocking.connect("localhost:9210") as log:
        with log.producer("orders") as producer:
            producer.send(b"value", key=b"k")
        for record in log.reader("orders", follow=False):
            ...
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

import pyarrow as pa

from tidelog import client, producer, reader, sink
from tidelog._blocking.loop_thread import LoopThread
from tidelog._blocking.producer import Producer
from tidelog._reading.consumed import Consumed
from tidelog._reading.fetching import FetchedBatch
from tidelog.model import Position, Record

__all__ = ["Client", "Producer", "Reader", "Sink", "SinkAttempt", "connect"]

T = TypeVar("T")
P = ParamSpec("P")


def connect(addresses: str | Sequence[str], **settings: Any) -> Client:
    """A connected client; see `tidelog.connect`. Close it, or use it with ``with``."""
    thread = LoopThread.shared()

    async def make() -> client.Client:
        return await client.connect(addresses, **settings)

    return Client(thread, thread.run(make()))


def _blocking(
    method: Callable[Concatenate[client.Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """The method of the asyncio client, which waits for its result."""

    @wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.thread.run(method(self.client, *args, **kwargs))

    return call


class Client:
    """A client whose methods wait for their results; `tidelog.client.Client` describes them."""

    def __init__(self, thread: LoopThread, inner: client.Client) -> None:
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
    find_positions = _blocking(client.Client.find_positions)
    positions = _blocking(client.Client.positions)
    delete_records = _blocking(client.Client.delete_records)
    list_reassignments = _blocking(client.Client.list_reassignments)
    cordon = _blocking(client.Client.cordon)
    uncordon = _blocking(client.Client.uncordon)
    drain = _blocking(client.Client.drain)
    prepare_stop = _blocking(client.Client.prepare_stop)
    cancel_stop = _blocking(client.Client.cancel_stop)
    unregister_broker = _blocking(client.Client.unregister_broker)
    add_voter = _blocking(client.Client.add_voter)
    remove_voter = _blocking(client.Client.remove_voter)
    elect_preferred = _blocking(client.Client.elect_preferred)
    throttle = _blocking(client.Client.throttle)
    elect_unclean = _blocking(client.Client.elect_unclean)
    reassign = _blocking(client.Client.reassign)
    spread = _blocking(client.Client.spread)
    cancel_reassignment = _blocking(client.Client.cancel_reassignment)

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

    def sink(self, stream: str) -> Sink:
        """A sink of a job that repeats its work after failures, and writes to one stream."""
        return Sink(self.thread, self.client.sink(stream))

    def close(self) -> None:
        """Closes the client, its readers and its producers."""
        self.thread.run(self.client.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Reader:
    """Reads one stream, in one thread at a time; `tidelog.reader.Reader` describes the methods."""

    def __init__(self, thread: LoopThread, inner: reader.Reader) -> None:
        self._thread = thread
        self._reader = inner
        self._here: deque[FetchedBatch] = deque()
        self._consumed = Consumed()

    def __repr__(self) -> str:
        return f"<blocking {self._reader!r}>"

    @property
    def positions(self) -> dict[int, Position]:
        """The next position by partition, with the epoch of the last record read (R13)."""
        return {**self._reader.positions, **self._consumed.positions}

    @property
    def high_watermarks(self) -> dict[int, int]:
        """The newest high watermark that a broker reported, by partition."""
        return self._reader.high_watermarks

    def __iter__(self) -> Iterator[Record]:
        """The records. The iteration ends at `end`; without `follow` at the high watermark of the start."""
        self._reader.check_whole_records()
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
        """The batches with their offsets in the log."""
        rest = self._consumed.rest()
        if rest is not None:
            yield rest
        while (batch := self._next()) is not None:
            yield self._consumed.take(batch)

    def batches(self, *, with_offsets: bool = False) -> Iterator[pa.RecordBatch]:
        """The columns of the batches; `with_offsets` adds the column ``offset``."""
        with_offsets = with_offsets or self._reader.gives_offsets
        for batch in self.fetched_batches():
            yield batch.with_offsets() if with_offsets else batch.columns

    def close(self) -> None:
        """Ends the calls. After that the reader cannot be used."""
        self._thread.run(self._reader.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _next(self) -> FetchedBatch | None:
        while True:
            if not self._here:
                self._here.extend(self._thread.run(self._reader.arrived()))
            if not self._here:
                return None
            batch = self._here.popleft()
            if not self._consumed.passes(batch):
                return batch


class Sink:
    """A sink; `tidelog.sink.Sink` describes the methods."""

    def __init__(self, thread: LoopThread, inner: sink.Sink) -> None:
        self._thread = thread
        self._sink = inner

    def __repr__(self) -> str:
        return f"<blocking {self._sink!r}>"

    def begin_run(self) -> int:
        """The number of a new run, greater than that of every run before in this cluster."""
        return self._thread.run(self._sink.begin_run())

    def open(self, name: str, *, run: int, batch_id: int, once: bool = False) -> sink.OpenBatch:
        """Opens a batch of the sink `name` for a run; earlier runs and batches of the sink are over."""
        return self._thread.run(self._sink.open(name, run=run, batch_id=batch_id, once=once))

    def attempt(
        self, batch: sink.OpenBatch, task: int, *, compression: Literal["none", "lz4", "zstd"] = "none"
    ) -> SinkAttempt:
        """An attempt of a task; close it, or use it with ``with``."""
        made = self._thread.run(self._sink.attempt(batch, task, compression=compression))
        return SinkAttempt(self._thread, made)

    def verify(self, batch: sink.OpenBatch, expected: Mapping[int, Mapping[int, sink.TaskRows]]) -> None:
        """Checks that the log has exactly the rows that the tasks of a run have reported."""
        self._thread.run(self._sink.verify(batch, expected))

    def close(self, name: str, run: int) -> None:
        """Forgets a sink of one batch that is written."""
        self._thread.run(self._sink.close(name, run))


class SinkAttempt:
    """An attempt of a task; `tidelog.sink.SinkAttempt` describes the methods."""

    def __init__(self, thread: LoopThread, inner: sink.SinkAttempt) -> None:
        self._thread = thread
        self._attempt = inner

    def __repr__(self) -> str:
        return f"<blocking {self._attempt!r}>"

    def write(self, columns: pa.RecordBatch, partition: int) -> None:
        """Takes rows for a partition; waits while too many bytes are on their way."""
        self._thread.run(self._attempt.write(columns, partition))

    def finish(self) -> dict[int, sink.TaskRows]:
        """Writes the rest and waits until all rows are committed; returns the rows of each partition."""
        return self._thread.run(self._attempt.finish())

    def close(self) -> None:
        """Ends the attempt; rows on their way may still be written."""
        self._thread.run(self._attempt.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

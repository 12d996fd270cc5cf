"""Clients that write and read all the time with the public library, and record what they are told.

Neighbours: `nats_load` has the publishers to NATS, `recording` the history.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa

import tidelog
from chaos.recording import Recording
from tidelog import FetchedBatch, Position, Producer, ProducerOptions, Reader, Receipt
from tidelog.errors import (
    DataCorrupt,
    FencedProducer,
    InternalError,
    InvalidRequest,
    LogTruncated,
    OffsetOutOfRange,
    TidelogError,
)
from tidelog.history import Outcome, Write, stamp

VALUE_BYTES: Final = 100
UNANSWERED_MAX: Final = 8
"""How many sends of one writer may wait for their receipts."""

AGAIN_SECONDS: Final = 0.2
"""How long a client waits after an error."""

SAMPLE_RECORDS_MAX: Final = 3_000
SAMPLE_PAUSE_SECONDS: Final = 2.0
END_SECONDS_MAX: Final = 60.0
"""How long the last receipts may take when no more is sent, and a reader to reach the end."""

NEVER = (LogTruncated, OffsetOutOfRange, DataCorrupt, InternalError, InvalidRequest)
"""Errors that a reader of committed records must never get, whatever faults the brokers have."""


READER: Final = "reader"
"""The name under which errors of readers are recorded."""


class WriterKind(NamedTuple):
    """How a writer writes."""

    name: str
    options: ProducerOptions
    records_max: int
    """The most records of one send."""
    unanswered_max: int
    sends_per_second: float


WRITERS: Final = (
    WriterKind("idempotent, in batches", ProducerOptions(delivery_timeout_s=60), 20, UNANSWERED_MAX, 12),
    WriterKind("idempotent, impatient", ProducerOptions(delivery_timeout_s=4), 5, UNANSWERED_MAX, 8),
    WriterKind("idempotent, one by one", ProducerOptions(delivery_timeout_s=60), 1, 1, 15),
    WriterKind("plain, in batches", ProducerOptions(idempotent=False, delivery_timeout_s=20), 10, 3, 8),
    WriterKind("plain, one by one", ProducerOptions(idempotent=False, delivery_timeout_s=20), 1, 1, 10),
)


IDEMPOTENT: Final = tuple(kind.name for kind in WRITERS if kind.options.idempotent)

STEADY: Final = WriterKind(
    "idempotent, steady", ProducerOptions(delivery_timeout_s=60), 1, UNANSWERED_MAX, 60
)
"""An additional writer where gaps are measured. It sends so often that a gap of 0.2 s is significant."""


class StreamWriter:
    """Writes to one stream until `stopping` is set."""

    def __init__(
        self,
        client: tidelog.Client,
        stream: str,
        partitions: int,
        kind: WriterKind,
        recording: Recording,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._stream = stream
        self._partitions = partitions
        self._kind = kind
        self._recording = recording
        self._rng = rng
        self._numbers: Counter[int] = Counter()
        """The next number, by partition."""
        self._sends: set[asyncio.Task[None]] = set()
        self._spent = False
        """The producer can send no more."""
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        while not self.stopping.is_set():
            # A new producer in the history as well: the library may get another producer id.
            number = self._recording.new_producer(self._stream, self._kind.name)
            self._numbers.clear()
            self._spent = False
            producer = self._client.producer(self._stream, options=self._kind.options)
            try:
                await producer.start()
                await self._write(producer, number)
            except TidelogError as error:
                self._recording.told(self._kind.name, error)
                await asyncio.sleep(AGAIN_SECONDS)
            finally:
                await self._end(producer)

    async def _write(self, producer: Producer, number: int) -> None:
        room = asyncio.Semaphore(self._kind.unanswered_max)
        while not (self.stopping.is_set() or self._spent):
            await room.acquire()
            partition = self._rng.randrange(self._partitions)
            records = self._rng.randint(1, self._kind.records_max)
            first = self._numbers[partition]
            self._numbers[partition] += records
            send = asyncio.create_task(self._send(producer, number, partition, first, records))
            self._sends.add(send)
            send.add_done_callback(self._sends.discard)
            send.add_done_callback(lambda _: room.release())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._rng.expovariate(self._kind.sends_per_second)):
                    await self.stopping.wait()

    async def _send(self, producer: Producer, number: int, partition: int, first: int, records: int) -> None:
        values = [stamp(number, first + index, VALUE_BYTES) for index in range(records)]
        offset: int | None = None
        try:
            if self._kind.records_max == 1:
                offset = (await producer.send(values[0], partition=partition)).offset
            else:
                columns = pa.record_batch({"value": pa.array(values, pa.binary())})
                offset = _offset(await producer.send_batch(columns, partition=partition), records)
            outcome = Outcome.ACKNOWLEDGED
        except asyncio.CancelledError:
            outcome = Outcome.UNKNOWN
        except TidelogError as error:
            self._recording.told(self._kind.name, error)
            outcome = Outcome.REFUSED if error.definite else Outcome.UNKNOWN
            self._spent = self._spent or isinstance(error, FencedProducer | InvalidRequest)
            if isinstance(error, InternalError):
                self._recording.failed(f"The writer '{self._kind.name}' got an internal error: {error}")
        write = Write(number, partition, first, records, outcome, offset)
        self._recording.wrote(self._stream, write, asyncio.get_running_loop().time())

    async def _end(self, producer: Producer) -> None:
        """Waits for the receipts of all sends, and gives up the sends without one."""
        if self._sends:
            await asyncio.wait(self._sends, timeout=END_SECONDS_MAX)
        await producer.abort()
        if self._sends:
            await asyncio.wait(self._sends)


def _offset(receipts: Sequence[Receipt], records: int) -> int:
    """The offset of the first record. A small batch is not split, so its offsets are contiguous."""
    assert receipts[-1].last_offset - receipts[0].offset == records - 1, receipts
    return receipts[0].offset


class TailReader:
    """Reads one stream from its beginning, and follows it."""

    def __init__(self, client: tidelog.Client, stream: str, partitions: int, recording: Recording) -> None:
        self._client = client
        self._stream = stream
        self._recording = recording
        self._number = recording.new_reader()
        self.positions: dict[int, Position] = {number: Position(0) for number in range(partitions)}

    async def run(self) -> None:
        """Reads until it is cancelled, or until it gets an error of `NEVER`."""
        while True:
            reader = self._client.reader(self._stream, start=dict(self.positions))
            try:
                while (batch := await reader.next_batch()) is not None:
                    self._recording.saw(self._number, batch)
                    self.positions[batch.partition] = batch.position
            except NEVER as error:
                self._recording.failed(
                    f"The reader that follows {self._stream} got an error that no reader of committed "
                    f"records may get: {type(error).__name__}: {error}"
                )
                return
            except TidelogError as error:
                self._recording.told(READER, error)
                await asyncio.sleep(AGAIN_SECONDS)
            finally:
                await reader.aclose()


class Sampler:
    """Reads some records from a random offset of a stream, again and again, each time as a new reader."""

    def __init__(
        self,
        client: tidelog.Client,
        tail: TailReader,
        stream: str,
        recording: Recording,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._tail = tail
        self._stream = stream
        self._recording = recording
        self._rng = rng

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(0.5, 1.5) * SAMPLE_PAUSE_SECONDS)
            partition = self._rng.choice(sorted(self._tail.positions))
            start = self._rng.randint(0, self._tail.positions[partition].offset)
            reader = self._client.reader(
                self._stream, start=Position(start), partitions=[partition], follow=False
            )
            try:
                await note_all(reader, self._recording, SAMPLE_RECORDS_MAX)
            except NEVER as error:
                self._recording.failed(
                    f"A reader of {self._stream}/{partition} from offset {start} got an error that no reader "
                    f"of committed records may get: {type(error).__name__}: {error}"
                )
            except TidelogError as error:
                self._recording.told(READER, error)
            finally:
                await reader.aclose()


async def note_all(reader: Reader, recording: Recording, records_max: int | None = None) -> dict[int, int]:
    """Reads and records to the end, or about `records_max` records. Returns the next offset by partition."""
    number, records = recording.new_reader(), 0
    reached: dict[int, int] = {}
    batch: FetchedBatch | None
    while (batch := await reader.next_batch()) is not None:
        recording.saw(number, batch)
        reached[batch.partition] = batch.next_offset
        records += batch.columns.num_rows
        if records_max is not None and records >= records_max:
            break
    return reached

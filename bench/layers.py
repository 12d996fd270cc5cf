"""Each layer of ours by itself, so that it is visible where the time goes.

The record format and the storage engine in this process, one thread; gRPC between two
processes with plain bytes and none of our code. `python -m bench.layers` is the gRPC
server.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from time import perf_counter, perf_counter_ns, time
from typing import Any

import grpc
import grpc.aio
import uvloop

from bench.latency import summary_ms
from bench.model import OURS, Contender, Sample
from bench.ours.client import arrow_batches, records_per_batch
from bench.physical import fdatasync
from bench.processes import ROOT, Server, python
from bench.stage import Stage
from bench.work import within_disk
from tidelog.records import (
    BatchLimits,
    decode_batch,
    encode_batch,
    to_columns,
    validate_batch,
)
from tidelog_broker.storage.directory.opening import Wanted
from tidelog_broker.storage.directory.store import LogStore
from tidelog_broker.storage.files.os_files import OsFiles
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.write_batch import AppendItem, LogConfig

SIZE = 100
LIMITS = BatchLimits()
LEADER_EPOCH = 1
READ_BYTES = 1 << 20
STREAM_MESSAGE_BYTES = 1 << 20
STREAM_MESSAGES_AHEAD = 8
ECHO_BYTES = 600
"""About a batch of one record."""

WARM_CALLS = 300
MESSAGE_BYTES_MAX = 64 << 20


def _now_us() -> int:
    return int(time() * 1e6)


def _batches() -> list[bytes]:
    return [encode_batch(to_columns(batch, now_us=_now_us())) for batch in arrow_batches(SIZE)]


def _repeat(work: Callable[[], object], seconds: float) -> Sample:
    """Records per second of work on whole batches."""
    rows, done, began = records_per_batch(SIZE), 0, perf_counter()
    until = began + seconds
    while perf_counter() < until:
        work()
        done += 1
    took = perf_counter() - began
    return Sample(done * rows / took, {"us_per_batch": took / done * 1e6})


# --- the record format


def encode(seconds: float) -> Sample:
    """Arrow columns → batch bytes with their CRC."""
    columns = cycle([to_columns(batch, now_us=_now_us()) for batch in arrow_batches(SIZE)])
    return _repeat(lambda: encode_batch(next(columns)), seconds)


def decode(seconds: float) -> Sample:
    """Batch bytes → Arrow columns, without a copy; CRCs are verified elsewhere."""
    batches = cycle(_batches())
    return _repeat(lambda: decode_batch(next(batches)), seconds)


def validate(seconds: float) -> Sample:
    """All that a leader checks (F1)."""
    batches = cycle(_batches())
    return _repeat(lambda: validate_batch(next(batches), LIMITS, now_us=_now_us()), seconds)


# --- storage


@contextmanager
def _log(folder: Path) -> Iterator[PartitionLog]:
    with tempfile.TemporaryDirectory(prefix="layer-", dir=folder) as root:
        store = LogStore(OsFiles(), root, tail_cache_bytes_max=0)
        log = store.opener.create(Wanted("layer", bytes(16), 0, LogConfig()))
        try:
            yield log
        finally:
            log.close()


def _items() -> list[AppendItem]:
    return [AppendItem(batch, validate_batch(batch, LIMITS, now_us=_now_us())) for batch in _batches()]


def append(folder: Path, seconds: float, *, fsync: bool) -> Sample:
    """Validated batches into a log, one at a time, each made durable or not."""
    items = cycle(_items())
    left = within_disk(SIZE)
    with _log(folder) as log:

        def one() -> None:
            log.writer.append([next(items)], leader_epoch=LEADER_EPOCH, now_us=_now_us())
            if fsync:
                log.flusher.sync()

        rows = records_per_batch(SIZE)
        done, began = 0, perf_counter()
        while done * rows < left and perf_counter() - began < seconds:
            one()
            done += 1
        took = perf_counter() - began
    return Sample(done * rows / took, {"us_per_batch": took / done * 1e6})


def read(folder: Path, seconds: float) -> Sample:
    """Batches out of a log by offset, both CRCs verified, from the page cache."""
    items = cycle(_items())
    with _log(folder) as log:
        for _ in range(200):
            log.writer.append([next(items)], leader_epoch=LEADER_EPOCH, now_us=_now_us())
        end, records, began = log.end_offset, 0, perf_counter()
        until = began + seconds
        while perf_counter() < until:
            offset, place = 0, None
            while offset < end:
                chunk = log.reader.read(offset, READ_BYTES, end, place)
                assert chunk is not None
                offset, place = chunk.next_offset, chunk.place
            records += end
        took = perf_counter() - began
    return Sample(records / took)


# --- gRPC without us

SERVICE = "bench.Layer"
ECHO = f"/{SERVICE}/Echo"
SINK = f"/{SERVICE}/Sink"
OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
)


async def _echo(messages: AsyncIterator[bytes], _context: object) -> AsyncIterator[bytes]:
    async for message in messages:
        yield message


async def _sink(messages: AsyncIterator[bytes], _context: object) -> AsyncIterator[bytes]:
    async for _ in messages:
        yield b"."


async def serve() -> None:
    server = grpc.aio.server(options=OPTIONS)
    handlers = {
        "Echo": grpc.stream_stream_rpc_method_handler(_echo),
        "Sink": grpc.stream_stream_rpc_method_handler(_sink),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"port {port}", flush=True)
    await server.wait_for_termination()


class PlainGrpc(Server):
    """The server above, in its process."""

    def __init__(self, folder: Path) -> None:
        super().__init__("grpc", folder)
        self.port = 0

    def start(self) -> None:
        self.launch(python("bench.layers"), self._listening, {"PYTHONPATH": _path()})

    def _listening(self) -> bool:
        found = re.search(r"port (\d+)", self.log())
        if found:
            self.port = int(found[1])
        return found is not None


def _path() -> str:
    """Servers run in folders of their own and must still find this package."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))


@contextmanager
def _plain_grpc(folder: Path) -> Iterator[PlainGrpc]:
    server = PlainGrpc(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _open(channel: Any, method: str) -> Any:
    """A call whose messages are plain bytes."""
    return channel.stream_stream(method)()


def roundtrip(folder: Path, seconds: float) -> Sample:
    """Milliseconds for a small message there and back on an open call."""
    with _plain_grpc(folder) as server:
        return uvloop.run(_roundtrips(server.port, seconds))


async def _roundtrips(port: int, seconds: float) -> Sample:
    message, took = bytes(ECHO_BYTES), []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
        call: Any = _open(channel, ECHO)
        for _ in range(WARM_CALLS):
            await call.write(message)
            await call.read()
        until = perf_counter() + seconds
        while perf_counter() < until:
            began = perf_counter_ns()
            await call.write(message)
            await call.read()
            took.append(perf_counter_ns() - began)
        await call.done_writing()
    found = summary_ms(took)
    return Sample(found["p50_ms"], found)


def stream(folder: Path, seconds: float) -> Sample:
    """Megabytes per second of 1 MiB messages, each answered with a byte, some ahead."""
    with _plain_grpc(folder) as server:
        return uvloop.run(_stream(server.port, seconds))


async def _stream(port: int, seconds: float) -> Sample:
    message, ahead = bytes(STREAM_MESSAGE_BYTES), asyncio.Semaphore(STREAM_MESSAGES_AHEAD)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
        call: Any = _open(channel, SINK)

        async def answers() -> None:
            while await call.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
                ahead.release()

        reading = asyncio.create_task(answers())
        sent, began = 0, perf_counter()
        while perf_counter() - began < seconds:
            await ahead.acquire()
            await call.write(message)
            sent += 1
        await call.done_writing()
        await reading
        took = perf_counter() - began
    return Sample(sent * STREAM_MESSAGE_BYTES / took / 1e6)


# --- as a contender


def grpc_and_disk(stage: Stage) -> Contender:
    """What a serial, durable write cannot do without: a round trip and an fdatasync."""

    def measure(seconds: float) -> Sample:
        there = roundtrip(stage.folder, seconds / 2).value
        disk = fdatasync(stage.folder, seconds / 2).value
        return Sample(there + disk, {"grpc_roundtrip_ms": there, "fdatasync_ms": disk})

    return Contender(
        "physical (grpc round trip + fdatasync)", measure, {"grpc": "grpc.aio, bytes, one open call"}
    )


def grpc_alone(stage: Stage) -> Contender:
    """The round trip without a disk."""
    return Contender(
        "physical (grpc round trip)",
        lambda seconds: roundtrip(stage.folder, seconds),
        {"grpc": "grpc.aio, bytes, one open call"},
    )


def alone(measure: Callable[[float], Sample], **settings: object) -> Callable[[Stage], Contender]:
    """A layer as a case of its own."""
    return lambda _stage: Contender(OURS, measure, settings)


if __name__ == "__main__":
    uvloop.run(serve())

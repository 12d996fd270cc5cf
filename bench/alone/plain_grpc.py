"""gRPC alone: plain bytes between two processes, and none of our code.

`python -m bench.alone.plain_grpc` is the server.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any

import grpc
import grpc.aio
import uvloop

from bench.alone.physical import fdatasync
from bench.harness.model import Contender, Sample
from bench.harness.processes import ROOT, Server, python
from bench.harness.stage import Stage
from bench.measuring.latency import summary_ms

STREAM_MESSAGE_BYTES = 1 << 20
STREAM_MESSAGES_AHEAD = 8
ECHO_BYTES = 600
"""About a batch of one record."""

WARM_CALLS = 300
MESSAGE_BYTES_MAX = 64 << 20

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
    """`serve` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__("grpc", folder)
        self.port = 0

    def start(self) -> None:
        self.launch(python("bench.alone.plain_grpc"), self._listening, {"PYTHONPATH": _path()})

    def _listening(self) -> bool:
        found = re.search(r"port (\d+)", self.log())
        if found:
            self.port = int(found[1])
        return found is not None


def _path() -> str:
    """A server runs in a folder of its own and must still find this package."""
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
    """Milliseconds of a small message and its answer on an open call."""
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
    """Megabytes per second of 1 MiB messages, each answered with a byte, some of them in flight."""
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
    """The least that a serial, durable write takes: a round trip and an fdatasync."""

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


if __name__ == "__main__":
    uvloop.run(serve())

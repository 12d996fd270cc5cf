"""How long a broker takes to be ready again: with one large stream, and with thousands of small streams.

``python -m bench.restart [--gigabytes 10] [--streams 5000] [--folder DIR]`` prints the figures as JSON. It
needs 2.5 times as much free disk as it fills, and removes what it wrote.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import pyarrow as pa

from bench.measuring.machine import process_seconds
from bench.ours.broker import Broker
from tidelog.records import Columns, encode_batch, schema_of
from tidelog_proto import admin_pb2, admin_pb2_grpc, common_pb2, log_pb2, log_pb2_grpc

BATCH_BYTES = 8 << 20
CREATES_AT_ONCE = 64
IDLE_SECONDS = 20.0


class RestartedBroker(Broker):
    """A broker whose starts and ends are timed."""

    def timed_start(self) -> float:
        """Seconds until it serves, the start of Python (and of the guard that starts it) included."""
        began = time.perf_counter()
        self.start()
        return time.perf_counter() - began

    def end(self, number: signal.Signals) -> float:
        """Seconds until the process has ended after a signal."""
        began = time.perf_counter()
        self.signal(number)
        self.wait_ended()
        return time.perf_counter() - began

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


def _batch() -> bytes:
    schema = schema_of(Columns.NONE)
    values = [os.urandom(8000) for _ in range(BATCH_BYTES // 8100)]
    columns = {"value": values, "timestamp": [int(time.time() * 1e6)] * len(values)}
    arrays = [pa.array(columns[name], schema.field(name).type) for name in schema.names]
    return encode_batch(pa.record_batch(arrays, schema=schema))


async def _fill(address: str, size: int) -> None:
    async with grpc.aio.insecure_channel(
        address, options=[("grpc.max_send_message_length", 2 * BATCH_BYTES)]
    ) as channel:
        config = common_pb2.StreamConfig(batch_bytes_max=2 * BATCH_BYTES)
        request = admin_pb2.CreateStreamRequest(name="large", config=config)
        created = await admin_pb2_grpc.AdminStub(channel).CreateStream(request)
        # The stubs of grpc ask for an iterator of requests; this call writes them one by one.
        log: Any = log_pb2_grpc.LogStub(channel)
        call = log.Produce()
        batch = _batch()
        count = -(-size // len(batch))
        unanswered = 0
        for number in range(count):
            await call.write(
                log_pb2.ProduceRequest(request_id=number, stream_id=created.stream.stream_id, batch=batch)
            )
            unanswered += 1
            while unanswered >= (4 if number + 1 < count else 1):
                response: Any = await call.read()
                assert response.HasField("receipt"), response
                unanswered -= 1
        await call.done_writing()


async def _create(address: str, count: int) -> float:
    async with grpc.aio.insecure_channel(address) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        names = iter([f"stream-{number}" for number in range(count)])

        async def worker() -> None:
            for name in names:
                await admin.CreateStream(admin_pb2.CreateStreamRequest(name=name))

        began = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(CREATES_AT_ONCE)))
        return time.perf_counter() - began


async def _touch(address: str, count: int) -> None:
    """A record in every stream, so that none is empty."""
    async with grpc.aio.insecure_channel(address) as channel:
        log = log_pb2_grpc.LogStub(channel)
        record = log_pb2.PublishRecord(record=common_pb2.Record(value=b"x" * 100))
        for start in range(0, count, 500):
            await asyncio.gather(
                *(
                    log.Publish(log_pb2.PublishRequest(name=f"stream-{number}", records=[record]))
                    for number in range(start, min(start + 500, count))
                )
            )


def measure_large(folder: Path, gigabytes: float) -> dict[str, float]:
    """One stream of so many gigabytes: ready after a stop, after a kill, and after a kill under load."""
    broker = RestartedBroker(folder)
    try:
        broker.start()
        began = time.perf_counter()
        asyncio.run(_fill(broker.address, int(gigabytes * 1e9)))
        found = {"gigabytes": gigabytes, "fill_s": time.perf_counter() - began}
        found["stop_s"] = broker.end(signal.SIGTERM)
        found["ready_after_stop_s"] = broker.timed_start()
        broker.end(signal.SIGKILL)
        found["ready_after_kill_s"] = broker.timed_start()
        asyncio.run(_fill(broker.address, 2 * BATCH_BYTES))
        broker.end(signal.SIGKILL)
        found["ready_after_kill_under_load_s"] = broker.timed_start()
        return found
    finally:
        broker.stop()


def measure_many(folder: Path, streams: int) -> dict[str, float]:
    """Many small streams: ready after a stop and after a kill, memory, and CPU without requests."""
    broker = RestartedBroker(folder)
    try:
        broker.start()
        found = {"streams": float(streams), "memory_empty_mb": broker.memory_mb()}
        found["create_s"] = asyncio.run(_create(broker.address, streams))
        asyncio.run(_touch(broker.address, streams))
        found["memory_after_writes_mb"] = broker.memory_mb()
        found["stop_s"] = broker.end(signal.SIGTERM)
        found["ready_after_stop_s"] = broker.timed_start()
        found["memory_mb"] = broker.memory_mb()
        time.sleep(3)
        before, began = process_seconds(broker.pid), time.perf_counter()
        time.sleep(IDLE_SECONDS)
        used = process_seconds(broker.pid) - before
        found["idle_cpu_percent"] = 100 * used / (time.perf_counter() - began)
        broker.end(signal.SIGKILL)
        found["ready_after_kill_s"] = broker.timed_start()
        return found
    finally:
        broker.stop()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.restart",
        description="Measures how long a broker takes to be ready again, and prints the figures as JSON.",
    )
    parser.add_argument(
        "--gigabytes", type=float, default=10,
        help="size of the large stream; 0 leaves it out. Default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--streams", type=int, default=5000,
        help="number of small streams; 0 leaves them out. Default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--folder", default=None, help="where to write. Default: the folder for temporary files"
    )
    options = parser.parse_args(arguments)
    for name, amount, measure in (
        ("large", options.gigabytes, measure_large),
        ("many", options.streams, measure_many),
    ):
        if not amount:
            continue
        with tempfile.TemporaryDirectory(prefix="tidelog-restart-", dir=options.folder) as folder:
            if name == "large" and shutil.disk_usage(folder).free < 2.5e9 * options.gigabytes:
                raise SystemExit(
                    f"{folder} has too little free disk: a stream of {options.gigabytes:g} GB needs "
                    f"{2.5 * options.gigabytes:g} GB; choose another folder with --folder"
                )
            found = measure(Path(folder), amount)
        print(json.dumps({name: {key: round(value, 3) for key, value in found.items()}}), flush=True)


if __name__ == "__main__":
    main()

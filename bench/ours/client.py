"""The measured client of Tidelog, a process of its own: `python -m bench.ours.client WORK …`.

It uses only the public library, as applications do, and prints one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle
from time import perf_counter, perf_counter_ns

import pyarrow as pa
import uvloop

import tidelog
from bench.measuring.clock import Span, print_result
from bench.measuring.latency import summary_ms
from bench.measuring.pace import open_loop

BATCH_BYTES = 900_000
"""Bytes of values in one Arrow batch: with offsets and timestamps they stay below the stream's 1 MiB."""

BATCHES_IN_FLIGHT = 8
RECORDS_BETWEEN_DRAINS = 500
WARM_SECONDS = 0.3
E2E_WARM_SECONDS = 1.0
ARRIVE_SECONDS_MAX = 20.0
"""From the last acknowledgement until the reader has all records."""

MOMENT_BYTES = 8
VALUES = 4096
"""Number of different random values, used in turn."""


def records_per_batch(size: int) -> int:
    """8,000 records, or fewer where 8,000 would not fit."""
    return min(8000, BATCH_BYTES // size)


def arrow_batches(size: int, count: int = 4) -> list[pa.RecordBatch]:
    """Batches of random values, as an application would pass them."""
    rows = records_per_batch(size)
    return [
        pa.record_batch({"value": pa.array([os.urandom(size) for _ in range(rows)], pa.binary())})
        for _ in range(count)
    ]


async def produce_batches(client: tidelog.Client, stream: str, size: int, limits: Limits) -> dict[str, float]:
    """Sends Arrow batches, some in flight at a time, until the time or the bytes are used up."""
    batches = cycle(arrow_batches(size))
    rows = records_per_batch(size)
    async with client.producer(stream) as producer:

        async def spend(seconds: float, records_max: int) -> dict[str, float]:
            span = Span(seconds)
            left = records_max

            async def lane() -> None:
                nonlocal left
                while left > 0 and not span.over:
                    left -= rows
                    await producer.send_batch(next(batches))

            await asyncio.gather(*(lane() for _ in range(BATCHES_IN_FLIGHT)))
            return span.rate(records_max - left, size)

        await spend(limits.warm_seconds, limits.records_max)
        return await spend(limits.seconds, limits.records_max)


async def produce_records(client: tidelog.Client, stream: str, size: int, limits: Limits) -> dict[str, float]:
    """Sends records one by one, which the library batches; ends when all are acknowledged."""
    values = [os.urandom(size) for _ in range(VALUES)]
    async with client.producer(stream) as producer:

        async def spend(seconds: float, records_max: int) -> dict[str, float]:
            span, sent = Span(seconds), 0
            while sent < records_max and not span.over:
                at = sent % (VALUES - RECORDS_BETWEEN_DRAINS)
                for value in values[at : at + RECORDS_BETWEEN_DRAINS]:
                    producer.send_nowait(value)
                sent += RECORDS_BETWEEN_DRAINS
                await producer.drain()
            await producer.flush()
            return span.rate(sent, size)

        await spend(limits.warm_seconds, limits.records_max)
        return await spend(limits.seconds, limits.records_max)


async def consume(client: tidelog.Client, stream: str, size: int, limits: Limits) -> dict[str, float]:
    """Reads the whole stream as Arrow batches, again and again until the time is used up."""

    async def once() -> int:
        rows = 0
        async with client.reader(stream, follow=False) as reader:
            async for batch in reader.batches():
                rows += batch.num_rows
        return rows

    if limits.warm_seconds:
        await once()
    span, rows = Span(limits.seconds), 0
    while not span.over:
        rows += await once()
    return span.rate(rows, size)


async def serial(client: tidelog.Client, stream: str, size: int, limits: Limits) -> dict[str, float]:
    """Sends one record at a time, the next when the receipt has come."""
    value = os.urandom(size)
    async with client.producer(stream) as producer:
        warm_until = perf_counter() + limits.warm_seconds
        while perf_counter() < warm_until:
            await producer.send(value)
        latencies = []
        span = Span(limits.seconds)
        while not span.over:
            began = perf_counter_ns()
            await producer.send(value)
            latencies.append(perf_counter_ns() - began)
    found = summary_ms(latencies)
    return {"value": found["p50_ms"], **found}


async def end_to_end(client: tidelog.Client, stream: str, size: int, limits: Limits) -> dict[str, float]:
    """Sends records by a clock and reads them in the same process; latencies count from the clock."""
    latencies: list[int] = []
    expected = round(limits.rate * limits.seconds)
    counted_from = 2**63
    padding = os.urandom(size - MOMENT_BYTES)
    arrived = asyncio.Event()

    async def take(reader: tidelog.Reader) -> None:
        async for record in reader:
            now = perf_counter_ns()
            due = int.from_bytes((record.value or b"")[:MOMENT_BYTES])
            if due >= counted_from:
                latencies.append(now - due)
                if len(latencies) == expected:
                    arrived.set()

    _, end = (await client.offsets(stream))[0]
    options = tidelog.ProducerOptions(linger_ms=0, inflight_batches_max=limits.in_flight)
    async with (
        client.reader(stream, start=end) as reader,
        client.producer(stream, options=options) as producer,
    ):

        async def send(due: int) -> None:
            await producer.send(due.to_bytes(MOMENT_BYTES) + padding)

        taking = asyncio.create_task(take(reader))
        try:
            await open_loop(send, limits.rate, E2E_WARM_SECONDS)
            counted_from = perf_counter_ns()
            acked = await open_loop(send, limits.rate, limits.seconds)
            async with asyncio.timeout(ARRIVE_SECONDS_MAX):
                await arrived.wait()
        finally:
            taking.cancel()
    found = summary_ms(latencies)
    return {"value": found["p50_ms"], **found, "ack_p50_ms": summary_ms(acked)["p50_ms"]}


class Limits:
    """The limits and the rate of a piece of work."""

    def __init__(self, seconds: float, records_max: int, *, warm: bool, rate: float, in_flight: int) -> None:
        self.seconds = seconds
        self.records_max = records_max
        self.rate = rate
        """Records per second, for work with a fixed rate."""
        self.in_flight = in_flight
        """Unanswered batches at most, with a fixed rate; records that are due meanwhile share the next."""
        self.warm_seconds = WARM_SECONDS if warm else 0.0


Work = Callable[[tidelog.Client, str, int, Limits], Awaitable[dict[str, float]]]

WORKS: dict[str, Work] = {
    "batch": produce_batches,
    "record": produce_records,
    "consume": consume,
    "serial": serial,
    "e2e": end_to_end,
}


async def work(options: argparse.Namespace) -> dict[str, float]:
    limits = Limits(
        options.seconds,
        options.records_max,
        warm=options.warm,
        rate=options.rate,
        in_flight=options.in_flight,
    )
    async with tidelog.connect(options.address.split(",")) as client:
        return await WORKS[options.work](client, options.stream, options.size, limits)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.ours.client", description="Runs one piece of work and prints a line of JSON."
    )
    parser.add_argument("work", choices=sorted(WORKS))
    parser.add_argument("--address", required=True, help="host:port of the brokers")
    parser.add_argument("--stream", required=True)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--records-max", type=int, default=10**12, help="stop early after this many records")
    parser.add_argument("--rate", type=float, default=1000, help="records per second of e2e")
    parser.add_argument("--in-flight", type=int, default=1, help="batches of e2e. Default: %(default)s")
    parser.add_argument("--warm", action=argparse.BooleanOptionalAction, default=True)
    print_result(uvloop.run(work(parser.parse_args(arguments))))


if __name__ == "__main__":
    main()

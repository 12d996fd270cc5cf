"""nats-py as a JetStream client, a process of its own: against JetStream, and against our broker.

`python -m bench.peers.jetstream.client serial|publish|consume …` prints one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from time import perf_counter, perf_counter_ns
from typing import Any

import uvloop

from bench.harness.model import Sample
from bench.harness.processes import python, run_for_json
from bench.harness.work import sample_of
from bench.measuring.clock import Span, print_result
from bench.measuring.latency import summary_ms

PENDING_MAX = 4000
"""Unacknowledged messages at most; the default of nats-py."""

WARM_SECONDS = 0.3
ACK_SECONDS_MAX = 20.0

SETTINGS: dict[str, dict[str, object]] = {
    "serial": {"client": "nats-py on uvloop: await js.publish(), one in flight"},
    "publish": {"client": f"nats-py on uvloop: js.publish_async(), {PENDING_MAX} unacknowledged at most"},
    "consume": {"client": "nats-py on uvloop: ordered push consumer"},
}


def run(work: str, url: str, subject: str, seconds: float, *, size: int = 100, records: int = 0) -> Sample:
    """Runs the client in a process of its own."""
    return sample_of(
        run_for_json(
            python(
                "bench.peers.jetstream.client", work, "--url", url, "--subject", subject,
                "--seconds", seconds, "--size", size, "--records", records,
            )
        )
    )  # fmt: skip


async def serial(js: Any, options: argparse.Namespace) -> dict[str, float]:
    value = os.urandom(options.size)
    warm_until = perf_counter() + WARM_SECONDS
    while perf_counter() < warm_until:
        await js.publish(options.subject, value, timeout=ACK_SECONDS_MAX)
    latencies = []
    span = Span(options.seconds)
    while not span.over:
        began = perf_counter_ns()
        await js.publish(options.subject, value, timeout=ACK_SECONDS_MAX)
        latencies.append(perf_counter_ns() - began)
    found = summary_ms(latencies)
    return {"value": found["p50_ms"], **found}


async def publish(js: Any, options: argparse.Namespace) -> dict[str, float]:
    value = os.urandom(options.size)

    async def spend(seconds: float, records_max: int) -> dict[str, float]:
        futures: list[asyncio.Future[Any]] = []
        span = Span(seconds)
        while not span.over and len(futures) < records_max:
            futures.append(await js.publish_async(options.subject, value, wait_stall=ACK_SECONDS_MAX))
        # An acknowledgement that is an error raises.
        for future in futures:
            await future
        return span.rate(len(futures), options.size)

    if options.records:
        return await spend(600.0, options.records)
    await spend(WARM_SECONDS, 10**9)
    return await spend(options.seconds, 10**9)


async def consume(js: Any, options: argparse.Namespace) -> dict[str, float]:
    """Reads the first `records` messages of the stream."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    seen = 0

    async def take(_message: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == options.records and not done.done():
            done.set_result(None)

    span = Span(0)
    await js.subscribe(options.subject, cb=take, ordered_consumer=True)
    await done
    return span.rate(seen, options.size)


WORKS = {"serial": serial, "publish": publish, "consume": consume}


async def work(options: argparse.Namespace) -> dict[str, float]:
    import nats

    connection = await nats.connect(options.url)
    try:
        js = connection.jetstream(publish_async_max_pending=PENDING_MAX)
        return await WORKS[options.work](js, options)
    finally:
        await connection.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers.jetstream.client",
        description="Runs one piece of work with nats-py and prints a line of JSON.",
    )
    parser.add_argument("work", choices=sorted(WORKS))
    parser.add_argument("--url", required=True)
    parser.add_argument("--subject", required=True)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument(
        "--records", type=int, default=0, help="publish exactly this many messages, without a time limit"
    )
    print_result(uvloop.run(work(parser.parse_args(arguments))))


if __name__ == "__main__":
    main()

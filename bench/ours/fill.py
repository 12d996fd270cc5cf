"""Fills a stream before it is read: the same few batches again and again, partition by partition.

``python -m bench.ours.fill …`` does it in a process of its own, for callers without an event loop: gRPC for
asyncio does not work well with several event loops in one process.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

import pyarrow as pa
import uvloop

import tidelog
from bench.ours.client import arrow_batches

LANES = 8
"""Batches in flight."""


async def fill(
    client: tidelog.Client, stream: str, batches: Sequence[pa.RecordBatch], *, count: int, partitions: int
) -> None:
    """Sends `count` batches, the same number to each partition; all are committed when it returns."""
    numbers = iter(range(count))
    async with client.producer(stream) as producer:

        async def lane() -> None:
            for number in numbers:
                batch = batches[number % len(batches)]
                await producer.send_batch(batch, partition=number % partitions)

        await asyncio.gather(*(lane() for _ in range(LANES)))


async def work(options: argparse.Namespace) -> None:
    batches = arrow_batches(options.size)
    count = -(-options.rows // batches[0].num_rows)
    async with tidelog.connect(options.address) as client:
        await fill(client, options.stream, batches, count=count, partitions=options.partitions)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.ours.fill", description="Fills a stream with random records."
    )
    parser.add_argument("--address", required=True, help="host:port of the broker")
    parser.add_argument("--stream", required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument(
        "--rows", type=int, required=True, help="number of records, rounded up to whole batches"
    )
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    uvloop.run(work(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()

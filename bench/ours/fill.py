"""Fills a stream before it is read: the same few batches again and again, partition by partition."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pyarrow as pa

import tidelog

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

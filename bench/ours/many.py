"""Tidelog with thousands of streams of three copies each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from signal import SIGKILL
from statistics import median
from time import perf_counter
from typing import TypeVar

import uvloop

import tidelog
from bench.clusters.many import Footprint, contender, footprint
from bench.harness.model import OURS, Contender, Sample
from bench.harness.stage import Stage
from bench.ours.cluster import BROKERS, Cluster

T = TypeVar("T")

AT_ONCE = 64
"""Streams that are made or opened at the same time."""

RECOVER_SECONDS_MAX = 60.0
CLIENT = "tidelog, asyncio on uvloop"


def cost(stage: Stage, *, streams: int, aspect: str) -> Contender:
    def measure(count: int) -> Footprint:
        cluster = Cluster(stage.folder)
        try:
            cluster.start()
            took = _with_client(cluster, lambda client: create(client, count))
            _with_client(cluster, lambda client: touch(client, count))
            return footprint(cluster.pids, took)
        finally:
            cluster.stop()

    settings = {"client": f"{CLIENT}: {AT_ONCE} streams made at a time, then a record written to each"}
    return contender(stage, OURS, measure, streams=streams, aspect=aspect, settings=settings)


def failover(stage: Stage, *, streams: int) -> Contender:
    """The time from kill -9 of a broker until each stream that it led has acknowledged a record again."""
    count = stage.effort.streams(streams)

    def measure(_seconds: float) -> Sample:
        cluster = Cluster(stage.folder)
        try:
            cluster.start()
            _with_client(cluster, lambda client: create(client, count))
            return _with_client(cluster, partial(_killed, cluster))
        finally:
            cluster.stop()

    return Contender(
        OURS,
        measure,
        {
            "client": f"{CLIENT}: a producer for each stream of the broker, one record each after the kill",
            "streams": count,
            "copies": BROKERS,
        },
    )


def _with_client(cluster: Cluster, work: Callable[[tidelog.Client], Awaitable[T]]) -> T:
    async def connected() -> T:
        async with tidelog.connect(cluster.address.split(",")) as client:
            return await work(client)

    return uvloop.run(connected())


async def _each(items: Iterable[T], work: Callable[[T], Awaitable[object]]) -> None:
    """Runs `work` for each item, `AT_ONCE` at a time."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


async def create(client: tidelog.Client, count: int) -> float:
    """Makes `count` streams, each with a leader and without records; how many seconds that took."""
    began = perf_counter()

    async def one(number: int) -> None:
        await client.create_stream(f"many-{number}", replication_factor=BROKERS)

    await _each(range(count), one)
    return perf_counter() - began


async def touch(client: tidelog.Client, count: int) -> None:
    """Writes a record to each stream: that makes files and state that an empty stream may not have yet."""

    async def one(number: int) -> None:
        async with client.producer(f"many-{number}") as producer:
            await producer.send(b"a record")

    await _each(range(count), one)


@asynccontextmanager
async def _producing(client: tidelog.Client, names: Iterable[str]) -> AsyncIterator[list[tidelog.Producer]]:
    """Producers, one for each stream, that have written a record."""
    producers: list[tidelog.Producer] = []
    async with AsyncExitStack() as closing:

        async def open_one(name: str) -> None:
            producer = await closing.enter_async_context(client.producer(name))
            await producer.send(b"before")
            producers.append(producer)

        await _each(names, open_one)
        yield producers


async def _killed(cluster: Cluster, client: tidelog.Client) -> Sample:
    """Seconds from the kill until the last stream has acknowledged a record."""
    controller = (await client.describe_cluster()).controller
    victim = next(number for number in range(BROKERS) if number != controller)
    names = [one.name for one in await client.list_streams() if one.partitions[0].leader == victim]
    async with _producing(client, names) as producers:
        took: list[float] = []
        began = perf_counter()
        cluster.brokers[victim].signal(SIGKILL)

        async def again(producer: tidelog.Producer) -> None:
            await producer.send(b"after")
            took.append(perf_counter() - began)

        async with asyncio.timeout(RECOVER_SECONDS_MAX):
            await asyncio.gather(*(again(producer) for producer in producers))
    return Sample(max(took), {"led": len(names), "first_s": min(took), "p50_s": median(took)})

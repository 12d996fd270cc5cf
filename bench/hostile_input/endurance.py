"""The long run: ten times the readers of the table, all at once, again and again, beside stalled readers."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc.aio

from bench.hostile_input.bombs import bomb, filled, produce, read_all
from bench.hostile_input.catalog import BATCHES, PLAIN
from bench.hostile_input.measuring import SETTLE_SECONDS, Watching, print_alarms, turns
from bench.hostile_input.probe import probing
from bench.hostile_input.stalled import incompressible, kilobyte_records, stalled
from support.api import Api
from support.broker import BrokerProcess

TOLD_SECONDS = 10.0
"""From one line of the table to the next."""


async def endure(minutes: float) -> None:
    """Runs the load for so many minutes and prints a table."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder, BrokerProcess(Path(folder)) as broker:
        await asyncio.sleep(1)
        watching, waits, done = Watching(broker), list[float](), [0, 0]
        failed, data = Counter[str](), bomb()
        end = time.monotonic() + 60 * minutes

        async def again(work: Callable[[], Awaitable[object]], kind: int, count: int) -> None:
            while time.monotonic() < end:
                try:
                    await work()
                    done[kind] += count
                except grpc.aio.AioRpcError as error:
                    failed[f"{error.code().name}: {error.details()}"] += 1
                    await asyncio.sleep(1)

        async def write() -> None:
            async with Api(broker.address) as own:
                await produce(own, written, data, 10)
            await asyncio.sleep(1)

        async def tell() -> None:
            began = time.monotonic()
            while True:
                late, ran = await turns(broker)
                print(
                    f"| {time.monotonic() - began:.0f} | {watching.now_mb():.0f} | {late:.0f} | {ran:.0f} "
                    f"| {done[0]} | {done[1]} |",
                    flush=True,
                )
                await asyncio.sleep(TOLD_SECONDS)

        async with Api(broker.address) as api, probing(broker.address, waits):
            bombs, records = await filled(api, bomb(), 8), await kilobyte_records(api)
            batches, written = await incompressible(api), await api.create()
            print("| s | MB | longest delay, ms | ran in one, ms | bombs' readers done | bombs written |")
            print("|---|---|---|---|---|---|")
            telling = asyncio.create_task(tell())
            async with (
                stalled(broker, records, 1000, PLAIN),
                stalled(broker, batches, 1000, BATCHES),
            ):
                await asyncio.gather(
                    *(again(lambda: read_all(broker.address, bombs), 0, 1) for _ in range(80)),
                    *(again(write, 1, 10) for _ in range(10)),
                )
            await asyncio.sleep(SETTLE_SECONDS)
            telling.cancel()
        print(f"at the end {watching.now_mb():.0f} MB; the slowest small request took {waits[0]:.0f} ms")
        print(f"failed: {dict(failed)}")
        print_alarms(broker)

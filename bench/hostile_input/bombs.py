"""Bombs: batches of some two kilobytes that decode to 60 MB, just what a stream takes by default."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from support.api import Api, batch, code_of, start_of
from support.broker import BrokerProcess
from tidelog.records import Compression
from tidelog_proto import common_pb2

BOMB_BYTES = 60_000_000

Case: TypeAlias = Callable[[BrokerProcess, Api], Awaitable[str]]
"""Sends the input of a case; returns a note for the table."""


def bomb() -> bytes:
    """A batch of sixty records of a MB."""
    return batch(*[bytes(1_000_000)] * (BOMB_BYTES // 1_000_000), compression=Compression.ZSTD)


def one_record_bomb() -> bytes:
    return batch(bytes(BOMB_BYTES), compression=Compression.ZSTD)


def many_records_bomb() -> bytes:
    return batch(*[b""] * 1_000_000, compression=Compression.ZSTD)


async def filled(
    api: Api, data: bytes, count: int, calls: int = 1, **config: Any
) -> common_pb2.StreamDescription:
    """A stream with `count` batches, produced on `calls` calls at a time."""
    stream = await api.create(**config)
    await asyncio.gather(*(produce(api, stream, data, count // calls) for _ in range(calls)))
    return stream


async def produce(api: Api, stream: common_pb2.StreamDescription, data: bytes, count: int) -> None:
    call = api.produce()
    for _ in range(count):
        await call.send(stream, data)
    for _ in range(count):
        assert (await call.answer()).HasField("receipt")
    await call.call.done_writing()


async def read_all(address: str, stream: common_pb2.StreamDescription) -> int:
    """Reads plain records as a client with a connection of its own; how many there were."""
    count = 0
    async with Api(address) as api:
        async for response in api.fetch(start_of(stream)):
            assert response.WhichOneof("item") != "error", response.error
            count += len(response.records.records)
    return count


def bombs_produced(count: int, calls: int) -> Case:
    async def case(broker: BrokerProcess, api: Api) -> str:
        await filled(api, bomb(), count, calls)
        return ""

    return case


def bombs_read(readers: int, count: int) -> Case:
    async def case(broker: BrokerProcess, api: Api) -> str:
        stream = await filled(api, bomb(), count)
        found = await asyncio.gather(*(read_all(broker.address, stream) for _ in range(readers)))
        assert found == [count * BOMB_BYTES // 1_000_000] * readers
        return ""

    return case


async def one_record_bombs_read(broker: BrokerProcess, api: Api) -> str:
    stream = await filled(api, one_record_bomb(), 8)
    codes = set()
    for _ in range(8):
        async for response in api.fetch(start_of(stream)):
            if response.HasField("error"):
                codes.add(code_of(response.error))
    return f"refused: {', '.join(codes)}"


async def small_requests_beside(broker: BrokerProcess, api: Api) -> str:
    """A thousand publishes, beside eight readers and a producer of bombs."""
    stream, other = await filled(api, bomb(), 8), await api.create()

    async def publish() -> None:
        async with Api(broker.address) as own:
            for _ in range(1000):
                await own.publish(other, b"x" * 100)

    await asyncio.gather(
        publish(), filled(api, bomb(), 60), *(read_all(broker.address, stream) for _ in range(8))
    )
    return ""

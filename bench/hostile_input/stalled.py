"""Readers that ask for records and stop reading the answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

from bench.hostile_input.bombs import Case, filled, many_records_bomb
from support.api import Api, batch, start_of
from support.broker import BrokerProcess
from tidelog_proto import common_pb2, log_pb2

STALLED_SECONDS = 5.0
"""How long the broker is watched while the readers do not read."""

Fill: TypeAlias = Callable[[Api], Awaitable[common_pb2.StreamDescription]]


async def kilobyte_records(api: Api) -> common_pb2.StreamDescription:
    return await filled(api, batch(*[bytes(1000)] * 900), 40)


async def many_empty_records(api: Api) -> common_pb2.StreamDescription:
    return await filled(api, many_records_bomb(), 10)


async def incompressible(api: Api) -> common_pb2.StreamDescription:
    return await filled(api, batch(os.urandom(1_000_000)), 200)


def stalled_readers(
    count: int, fill: Fill, record_format: log_pb2.FetchFormat.ValueType, response_bytes_max: int
) -> Case:
    async def case(broker: BrokerProcess, api: Api) -> str:
        stream = await fill(api)
        async with stalled(broker, stream, count, record_format, response_bytes_max):
            await asyncio.sleep(STALLED_SECONDS)
        return ""

    return case


@asynccontextmanager
async def stalled(
    broker: BrokerProcess,
    stream: common_pb2.StreamDescription,
    count: int,
    record_format: log_pb2.FetchFormat.ValueType,
    response_bytes_max: int = 1 << 20,
) -> AsyncIterator[None]:
    """`count` calls on ten connections, none of which reads an answer; cancelled with the block."""
    request = log_pb2.FetchRequest(
        partitions=[start_of(stream)], format=record_format, response_bytes_max=response_bytes_max
    )
    apis = [Api(broker.address) for _ in range(10)]
    calls = [apis[number % 10].log.Fetch(request) for number in range(count)]
    try:
        await asyncio.gather(*(call.initial_metadata() for call in calls if record_format == log_pb2.RECORDS))
        yield
    finally:
        for call in calls:
            call.cancel()
        for one in apis:
            await one.channel.close(None)

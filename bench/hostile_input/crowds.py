"""Very many calls of one client at once, and HTTP connections that never end their request."""

from __future__ import annotations

import asyncio
import socket
import time

import grpc.aio

from bench.hostile_input.bombs import Case
from bench.hostile_input.stalled import STALLED_SECONDS
from support.api import Api, start_of
from support.broker import BrokerProcess
from support.hosts import HOST
from tidelog_proto import log_pb2


def many_fetches(count: int) -> Case:
    """Fetch calls that all follow an empty stream."""

    async def case(broker: BrokerProcess, api: Api) -> str:
        stream = await api.create()
        request = log_pb2.FetchRequest(partitions=[start_of(stream)], follow=True, heartbeat_ms=1000)
        apis = [Api(broker.address) for _ in range(10)]
        calls = [apis[number % 10].log.Fetch(request) for number in range(count)]
        refused = 0
        for done in await asyncio.gather(*(call.read() for call in calls), return_exceptions=True):
            refused += isinstance(done, grpc.aio.AioRpcError)
        for call in calls:
            call.cancel()
        for one in apis:
            await one.channel.close(None)
        return f"{refused} refused"

    return case


def many_publishes(count: int) -> Case:
    async def case(broker: BrokerProcess, api: Api) -> str:
        stream = await api.create()
        apis = [Api(broker.address) for _ in range(10)]
        refused = 0
        for done in await asyncio.gather(
            *(apis[number % 10].publish(stream, b"x" * 100) for number in range(count)),
            return_exceptions=True,
        ):
            refused += isinstance(done, grpc.aio.AioRpcError)
        for one in apis:
            await one.channel.close(None)
        return f"{refused} refused"

    return case


def slow_http(count: int) -> Case:
    """Connections that never end their request, beside a probe; the note is the probe's slowest answer."""

    async def case(broker: BrokerProcess, api: Api) -> str:
        slow = []
        for _ in range(count):
            slow.append(socket.create_connection((HOST, broker.http_port)))
            slow[-1].sendall(b"GET /healthz HTTP/1.1\r\nSlow: ")
        longest, end = 0.0, time.perf_counter() + STALLED_SECONDS
        while time.perf_counter() < end:
            began = time.perf_counter()
            assert await asyncio.to_thread(broker.get, "/healthz") == "ok\n"
            longest = max(longest, time.perf_counter() - began)
        for one in slow:
            one.close()
        return f"slowest /healthz {longest * 1000:.0f} ms"

    return case

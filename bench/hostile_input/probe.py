"""A client that asks a small question a hundred times a second, and how long its slowest answer took.

That is what other clients feel. ``python -m bench.hostile_input.probe ADDRESS`` is a process of its own, so
that the load of a case does not delay it: it prints "ready", asks until its standard input ends, and prints
the milliseconds of the slowest answer.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import grpc.aio

from support.api import Api
from tidelog.cli.local.processes import python_module
from tidelog_proto import log_pb2

PROBE_SECONDS = 0.01


@asynccontextmanager
async def probing(address: str, waits: list[float]) -> AsyncIterator[None]:
    """Runs the probe beside a block; its longest wait is added to `waits` at the end. ms."""
    asking = await asyncio.create_subprocess_exec(
        *python_module("bench.hostile_input.probe", address), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert asking.stdout is not None
    await asking.stdout.readline()
    try:
        yield
    finally:
        out, _ = await asking.communicate(b"")
        waits.append(float(out))


async def probe(address: str) -> None:
    """Asks until standard input ends."""
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    longest = 0.0
    async with Api(address) as api:
        request = log_pb2.OffsetsRequest()
        await api.log.Offsets(request)
        print("ready", flush=True)
        while not ended.done():
            began = time.perf_counter()
            # Where a client has too many calls, the probe's is one of them: a refusal is an answer, too.
            with suppress(grpc.aio.AioRpcError):
                await api.log.Offsets(request)
            longest = max(longest, time.perf_counter() - began)
            await asyncio.sleep(PROBE_SECONDS)
    print(longest * 1000, flush=True)


if __name__ == "__main__":
    asyncio.run(probe(sys.argv[1]))

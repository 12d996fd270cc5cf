"""`produce` says why it waits, on standard error, while it waits."""

from __future__ import annotations

import asyncio
import os
import time
from typing import NamedTuple

import pytest

from cli.conftest import COMMAND
from support.fake_broker import Fail, FakeBroker, Silence
from tidelog.cli.errors import Exit
from tidelog.errors import DiskFull

LINE_SECONDS_MAX = 20.0


class Told(NamedTuple):
    line: str
    after_seconds: float


async def first_line_of(process: asyncio.subprocess.Process) -> Told:
    assert process.stderr is not None
    begun = time.monotonic()
    line = await asyncio.wait_for(process.stderr.readline(), LINE_SECONDS_MAX)
    return Told(line.decode().rstrip("\n"), time.monotonic() - begun)


async def produce(broker: FakeBroker, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *COMMAND, "produce", "orders", *words,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TIDELOG_SERVER": broker.address},
    )  # fmt: skip


@pytest.mark.parametrize("given", [b"one\n", b""], ids=["input", "argument"])
async def test_a_full_disk_is_named_while_produce_waits(given: bytes) -> None:
    full = DiskFull("the broker's disk is full: No space left on device", retry_after_ms=1000)
    async with FakeBroker() as broker:
        broker.add_stream("orders")
        broker.script.extend([Fail(full)] * 3)
        process = await produce(broker, *([] if given else ["one"]))
        assert process.stdin is not None
        process.stdin.write(given)
        process.stdin.close()

        told = await first_line_of(process)
        out, err = await process.communicate()

    assert told.line == "tidelog: waiting for the broker: the broker's disk is full: No space left on device"
    assert told.after_seconds < 10
    assert process.returncode == Exit.OK
    assert out.startswith(b"1 record to orders" if given else b"orders/0 offset 0")
    assert err.decode() in ("", "tidelog: the broker answers again\n")


async def test_a_broker_that_does_not_answer_is_named_while_produce_waits() -> None:
    async with FakeBroker() as broker:
        broker.add_stream("orders")
        broker.script.append(Silence())
        process = await produce(broker, "one")

        told = await first_line_of(process)
        process.terminate()
        await process.communicate()

    assert told.line == "tidelog: waiting for the broker: it has not answered yet"

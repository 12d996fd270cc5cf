"""Runs a case against a broker of its own, and watches the broker's memory and event loop meanwhile."""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.hostile_input.bombs import Case
from bench.hostile_input.probe import probing
from support.api import Api
from support.broker import BrokerProcess

SAMPLE_SECONDS = 0.01

SETTLE_SECONDS = 5.0
"""From the end of the input until the memory is looked at again."""

CASE_SECONDS_MAX = 300.0


class Found(NamedTuple):
    """The figures of one case. MB and ms."""

    before_mb: float
    peak_mb: float
    after_mb: float
    late_ms: float
    """The longest delay of the broker's event loop."""
    ran_ms: float
    """The most processor time that the event loop's thread can have used in one delay."""
    wait_ms: float
    """The slowest small request of the probe."""
    took_s: float
    note: str


class Watching:
    """The memory of a broker, sampled in this process' event loop."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.peak_mb = self.now_mb()

    def now_mb(self) -> float:
        status = Path(f"/proc/{self._broker.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found
        return int(found[1]) / 1000

    async def run(self) -> None:
        while True:
            self.peak_mb = max(self.peak_mb, self.now_mb())
            await asyncio.sleep(SAMPLE_SECONDS)


async def turns(broker: BrokerProcess) -> tuple[float, float]:
    """The longest delay of the event loop, and how long its thread can have run in one delay. ms.

    Both are from the broker's own watch.
    """
    text = await asyncio.to_thread(broker.get, "/metrics")

    def value(name: str) -> float:
        found = re.search(rf"^{name} (\S+)", text, re.MULTILINE)
        assert found, name
        return float(found[1]) * 1000

    return value("tidelog_event_loop_late_max_seconds"), value("tidelog_event_loop_ran_max_seconds")


async def measure(case: Case, flags: tuple[str, ...] = ()) -> Found:
    """`flags`: of the broker."""
    with (
        tempfile.TemporaryDirectory(prefix="hostile-") as folder,
        BrokerProcess(Path(folder), flags=flags) as broker,
    ):
        await asyncio.sleep(1)
        watching, waits = Watching(broker), list[float]()
        before = watching.now_mb()
        sampling = asyncio.create_task(watching.run())
        async with Api(broker.address) as api, probing(broker.address, waits):
            began = time.perf_counter()
            async with asyncio.timeout(CASE_SECONDS_MAX):
                note = await case(broker, api)
            took = time.perf_counter() - began
        sampling.cancel()
        await asyncio.sleep(SETTLE_SECONDS)
        late, ran = await turns(broker)
        print_alarms(broker)
        return Found(before, watching.peak_mb, watching.now_mb(), late, ran, waits[0], took, note)


def print_alarms(broker: BrokerProcess) -> None:
    for line in broker.log().splitlines():
        if "kept from its next turn" in line:
            print(f"    {line}", file=sys.stderr)

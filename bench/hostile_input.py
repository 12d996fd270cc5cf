"""What hostile input costs a broker and its other clients: memory, turns of the event loop, waiting.

``PYTHONPATH=tests python -m bench.hostile_input`` runs every case against a broker of its own and prints
a table. A bomb is a batch of some two kilobytes that decodes to 60 MB, just what a stream takes by default.
Beside every case a process of its own asks a small question a hundred times a second; how long the slowest
took is what other clients feel. The turns of the event loop are from the broker's own watch.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from support.api import Api, batch, start_of
from support.broker import BrokerProcess
from tidelog.records import Compression
from tidelog_proto import common_pb2, log_pb2

BOMB_BYTES = 60_000_000
SAMPLE_SECONDS = 0.01
PROBE_SECONDS = 0.01
STALLED_SECONDS = 5.0
"""How long readers that stopped reading are watched."""

SETTLE_SECONDS = 5.0
"""After the input, before its memory is looked at again."""

CASE_SECONDS_MAX = 300.0


class Found(NamedTuple):
    """Of one case. MB and ms."""

    before_mb: float
    peak_mb: float
    after_mb: float
    turn_ms: float | None
    """None: the broker has no watch."""
    wait_ms: float
    took_s: float


Case = Callable[[BrokerProcess, Api], Awaitable[None]]


def bomb() -> bytes:
    return batch(bytes(BOMB_BYTES), compression=Compression.ZSTD)


def many_records_bomb() -> bytes:
    return batch(*[b""] * 1_000_000, compression=Compression.ZSTD)


async def produce_bombs(api: Api, count: int, calls: int = 1) -> common_pb2.StreamDescription:
    stream, data = await api.create(), bomb()

    async def one(part: int) -> None:
        call = api.produce()
        for _ in range(part):
            await call.send(stream, data)
        for _ in range(part):
            assert (await call.answer()).HasField("receipt")
        await call.call.done_writing()

    await asyncio.gather(*(one(count // calls) for _ in range(calls)))
    return stream


def bombs_produced(count: int, calls: int) -> Case:
    async def case(broker: BrokerProcess, api: Api) -> None:
        await produce_bombs(api, count, calls)

    return case


async def _read_all(address: str, stream: common_pb2.StreamDescription) -> int:
    count = 0
    async with Api(address) as api:
        async for response in api.fetch(start_of(stream)):
            assert response.WhichOneof("item") != "error", response.error
            count += len(response.records.records)
    return count


async def bombs_read(broker: BrokerProcess, api: Api) -> None:
    """By eight clients at a time, each with a connection of its own."""
    stream = await produce_bombs(api, 8)
    assert await asyncio.gather(*(_read_all(broker.address, stream) for _ in range(8))) == [8] * 8


async def one_reader_of_many_bombs(broker: BrokerProcess, api: Api) -> None:
    stream = await produce_bombs(api, 120)
    assert await _read_all(broker.address, stream) == 120


def stalled_readers(count: int, fill: Callable[[Api], Awaitable[common_pb2.StreamDescription]]) -> Case:
    """Readers that take one answer and no more."""

    async def case(broker: BrokerProcess, api: Api) -> None:
        stream = await fill(api)
        request = log_pb2.FetchRequest(
            partitions=[start_of(stream)], format=log_pb2.RECORDS, response_bytes_max=1 << 20
        )
        apis = [Api(broker.address) for _ in range(10)]
        calls = [apis[number % 10].log.Fetch(request) for number in range(count)]
        await asyncio.gather(*(call.read() for call in calls))
        await asyncio.sleep(STALLED_SECONDS)
        for call in calls:
            call.cancel()
        for one in apis:
            await one.channel.close()

    return case


async def plain_stream(api: Api) -> common_pb2.StreamDescription:
    stream, call = await api.create(), api.produce()
    for _ in range(40):
        await call.produce(stream, batch(*[bytes(1000)] * 900))
    return stream


async def many_records_stream(api: Api) -> common_pb2.StreamDescription:
    stream, call = await api.create(), api.produce()
    for _ in range(10):
        await call.produce(stream, many_records_bomb())
    return stream


async def large_batches(broker: BrokerProcess, api: Api) -> None:
    """As large as a stream may have them, written and read as they are."""
    stream, call = await api.create(batch_bytes_max=64 << 20), api.produce()
    for _ in range(8):
        assert (await call.produce(stream, batch(bytes(BOMB_BYTES)))).HasField("receipt")
    async for response in api.fetch(start_of(stream), format=log_pb2.VERBATIM):
        assert response.WhichOneof("item") != "error"


async def small_requests_beside(broker: BrokerProcess, api: Api) -> None:
    """Eight readers of bombs and a producer of them, beside a thousand publishes."""
    stream, other = await produce_bombs(api, 8), await api.create()

    async def publish() -> None:
        async with Api(broker.address) as own:
            for _ in range(1000):
                await own.publish(other, b"x" * 100)

    await asyncio.gather(
        publish(), produce_bombs(api, 60), *(_read_all(broker.address, stream) for _ in range(8))
    )


async def nothing(broker: BrokerProcess, api: Api) -> None:
    await asyncio.sleep(STALLED_SECONDS)


CASES: dict[str, Case] = {
    "nothing": nothing,
    "120 bombs produced on one call": bombs_produced(120, 1),
    "240 bombs produced on 24 calls": bombs_produced(240, 24),
    "8 RECORDS readers of 8 bombs": bombs_read,
    "1 RECORDS reader of 120 bombs": one_reader_of_many_bombs,
    "200 RECORDS readers that stop reading, 1 KB records": stalled_readers(200, plain_stream),
    "200 RECORDS readers that stop reading, 1M empty records": stalled_readers(200, many_records_stream),
    "8 batches of 60 MB, not compressed, written and read": large_batches,
    "1000 publishes beside 60 bombs produced and 8 readers": small_requests_beside,
}


class Watching:
    """The memory of a process, sampled in this one's event loop, and the probe beside it."""

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


@asynccontextmanager
async def probing(address: str, waits: list[float]) -> AsyncIterator[None]:
    """A process that asks small questions; the longest wait is added to `waits` at the end. ms."""
    asking = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.hostile_input", "--probe", address,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert asking.stdout is not None
    await asking.stdout.readline()
    try:
        yield
    finally:
        out, _ = await asking.communicate(b"")
        waits.append(float(out))


async def probe(address: str) -> None:
    """Until standard input ends."""
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    longest = 0.0
    async with Api(address) as api:
        request = log_pb2.OffsetsRequest()
        await api.log.Offsets(request)
        print("ready", flush=True)
        while not ended.done():
            began = time.perf_counter()
            await api.log.Offsets(request)
            longest = max(longest, time.perf_counter() - began)
            await asyncio.sleep(PROBE_SECONDS)
    print(longest * 1000, flush=True)


def turn_ms(broker: BrokerProcess) -> float | None:
    found = re.search(r"^tidelog_event_loop_late_max_seconds (\S+)", broker.get("/metrics"), re.MULTILINE)
    return None if found is None else float(found[1]) * 1000


async def measure(case: Case) -> Found:
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder, BrokerProcess(Path(folder)) as broker:
        await asyncio.sleep(1)
        watching, waits = Watching(broker), list[float]()
        before = watching.now_mb()
        sampling = asyncio.create_task(watching.run())
        async with Api(broker.address) as api, probing(broker.address, waits):
            began = time.perf_counter()
            async with asyncio.timeout(CASE_SECONDS_MAX):
                await case(broker, api)
            took = time.perf_counter() - began
        sampling.cancel()
        await asyncio.sleep(SETTLE_SECONDS)
        turn = await asyncio.to_thread(turn_ms, broker)
        for line in broker.log().splitlines():
            if "kept from its next turn" in line:
                print(f"    {line}", file=sys.stderr)
        return Found(before, watching.peak_mb, watching.now_mb(), turn, waits[0], took)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile_input", description=__doc__)
    parser.add_argument("--case", default="", help="only cases whose name has this text")
    parser.add_argument("--probe", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        asyncio.run(probe(options.probe))
        return
    print("| input | MB before | peak | after | longest delay of the event loop, ms | ", end="")
    print("slowest small request, ms | took, s |")
    print("|---|---|---|---|---|---|---|")
    for name, case in CASES.items():
        if options.case not in name:
            continue
        found = asyncio.run(measure(case))
        turn = "–" if found.turn_ms is None else f"{found.turn_ms:.0f}"
        print(
            f"| {name} | {found.before_mb:.0f} | {found.peak_mb:.0f} | {found.after_mb:.0f} | {turn} "
            f"| {found.wait_ms:.0f} | {found.took_s:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

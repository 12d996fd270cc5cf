"""What hostile input costs a broker and its other clients: memory, turns of the event loop, waiting.

``PYTHONPATH=tests python -m bench.hostile_input`` runs every case against a broker of its own and prints
a table. A bomb is a batch of some two kilobytes that decodes to 60 MB, just what a stream takes by default.
Beside every case a process of its own asks a small question a hundred times a second; how long the slowest
took is what other clients feel. The turns of the event loop are from the broker's own watch.

With ``--minutes 10`` it runs ten times such load for so long instead, and prints the memory every ten
seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import grpc
import grpc.aio

from support.api import Api, Refusal, batch, code_of, start_of
from support.broker import BrokerProcess
from support.hosts import HOST
from tidelog.records import Compression
from tidelog_broker.api.protobuf_writing import bytes_tag, varint
from tidelog_proto import common_pb2, log_pb2

BOMB_BYTES = 60_000_000
SAMPLE_SECONDS = 0.01
PROBE_SECONDS = 0.01
STALLED_SECONDS = 5.0
"""How long readers that stopped reading are watched."""

SETTLE_SECONDS = 5.0
"""After the input, before its memory is looked at again."""

TOLD_SECONDS = 10.0

CASE_SECONDS_MAX = 300.0


class Found(NamedTuple):
    """Of one case. MB and ms."""

    before_mb: float
    peak_mb: float
    after_mb: float
    late_ms: float
    ran_ms: float
    """Of a delay, for how long the event loop's own thread can have run."""
    wait_ms: float
    took_s: float
    note: str


Case = Callable[[BrokerProcess, Api], Awaitable[str]]
"""Gives what else there is to say."""


def bomb() -> bytes:
    """Records of a MB."""
    return batch(*[bytes(1_000_000)] * (BOMB_BYTES // 1_000_000), compression=Compression.ZSTD)


def one_record_bomb() -> bytes:
    return batch(bytes(BOMB_BYTES), compression=Compression.ZSTD)


def many_records_bomb() -> bytes:
    return batch(*[b""] * 1_000_000, compression=Compression.ZSTD)


async def filled(
    api: Api, data: bytes, count: int, calls: int = 1, **config: int
) -> common_pb2.StreamDescription:
    """A stream with `count` batches, produced on so many calls at a time."""
    stream = await api.create(**config)
    await asyncio.gather(*(_produce(api, stream, data, count // calls) for _ in range(calls)))
    return stream


async def _produce(api: Api, stream: common_pb2.StreamDescription, data: bytes, count: int) -> None:
    call = api.produce()
    for _ in range(count):
        await call.send(stream, data)
    for _ in range(count):
        assert (await call.answer()).HasField("receipt")
    await call.call.done_writing()


async def _read_all(address: str, stream: common_pb2.StreamDescription) -> int:
    """Plain records, by a client with a connection of its own; their number."""
    count = 0
    async with Api(address) as api:
        async for response in api.fetch(start_of(stream)):
            assert response.WhichOneof("item") != "error", response.error
            count += len(response.records.records)
    return count


# --- batches that decode to much


def bombs_produced(count: int, calls: int) -> Case:
    async def case(broker: BrokerProcess, api: Api) -> str:
        await filled(api, bomb(), count, calls)
        return ""

    return case


def bombs_read(readers: int, count: int) -> Case:
    async def case(broker: BrokerProcess, api: Api) -> str:
        stream = await filled(api, bomb(), count)
        found = await asyncio.gather(*(_read_all(broker.address, stream) for _ in range(readers)))
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
    """Eight readers of bombs and a producer of them, beside a thousand publishes."""
    stream, other = await filled(api, bomb(), 8), await api.create()

    async def publish() -> None:
        async with Api(broker.address) as own:
            for _ in range(1000):
                await own.publish(other, b"x" * 100)

    await asyncio.gather(
        publish(), filled(api, bomb(), 60), *(_read_all(broker.address, stream) for _ in range(8))
    )
    return ""


# --- readers that stop reading

Fill = Callable[[Api], Awaitable[common_pb2.StreamDescription]]


async def kilobyte_records(api: Api) -> common_pb2.StreamDescription:
    return await filled(api, batch(*[bytes(1000)] * 900), 40)


async def many_empty_records(api: Api) -> common_pb2.StreamDescription:
    return await filled(api, many_records_bomb(), 10)


async def incompressible(api: Api) -> common_pb2.StreamDescription:
    return await filled(api, batch(os.urandom(1_000_000)), 200)


def stalled_readers(
    count: int, fill: Fill, record_format: log_pb2.FetchFormat, response_bytes_max: int
) -> Case:
    """Readers that read no answer."""

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
    record_format: log_pb2.FetchFormat,
    response_bytes_max: int = 1 << 20,
) -> AsyncIterator[None]:
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
            await one.channel.close()


# --- large messages, and messages of many parts


def large_batches(count: int, size: int) -> Case:
    """Written, by four calls at a time, and read as they are."""

    async def case(broker: BrokerProcess, api: Api) -> str:
        stream, data = await api.create(batch_bytes_max=size + (1 << 20)), batch(bytes(size))

        async def produce() -> None:
            call = api.produce()
            for _ in range(count // 4):
                response = await call.produce(stream, data)
                while not response.HasField("receipt"):
                    # Two of the largest do not fit into a partition's queue.
                    assert response.error.retriable, response.error
                    await asyncio.sleep(response.error.retry_after_ms / 1000)
                    response = await call.produce(stream, data, reset=True)

        await asyncio.gather(*(produce() for _ in range(4)))
        async for response in api.fetch(start_of(stream), format=log_pb2.VERBATIM):
            assert response.WhichOneof("item") != "error"
        return ""

    return case


def raw_requests(rpc: str, data: Callable[[], bytes], count: int) -> Case:
    """The same bytes on four calls at a time; the note is what they are refused with."""

    async def case(broker: BrokerProcess, api: Api) -> str:
        codes, body = set[str](), data()
        await api.create("s")

        async def send() -> None:
            for _ in range(count // 4):
                try:
                    await api.channel.unary_unary(f"/tidelog.v1.Log/{rpc}")(body)
                except grpc.aio.AioRpcError as error:
                    codes.add(Refusal(error).code if error.trailing_metadata() else error.code().name)

        await asyncio.gather(*(send() for _ in range(4)))
        return f"refused: {', '.join(codes)}" if codes else ""

    return case


def publish_of_headers() -> bytes:
    """A record with eight million headers that are empty."""
    return _nested(_nested(_nested(b"", 3) * (8 << 20), 1), 5)


def publish_of_records() -> bytes:
    """As many records as a request may have, all as small as can be."""
    records = [log_pb2.PublishRecord(record=common_pb2.Record(value=b"x"))] * 10_000
    return log_pb2.PublishRequest(name="s", records=records).SerializeToString()


def publish_of_many_headers() -> bytes:
    """Records with as many headers as they may have, as much as fits into a batch."""
    headers = [common_pb2.Header(name="a")] * 1000
    records = [log_pb2.PublishRecord(record=common_pb2.Record(value=b"x", headers=headers))] * 70
    return log_pb2.PublishRequest(name="s", records=records).SerializeToString()


def offsets_of_nothing(size: int) -> bytes:
    return _nested(b"", 1) * (size // 2)


def produce_without_batch() -> bytes:
    return b"\x78\1" * (8 << 20)


def _nested(content: bytes, number: int) -> bytes:
    return bytes_tag(number) + varint(len(content)) + content


# --- many clients, or one with many calls


def many_fetches(count: int) -> Case:
    """Of one client, all at once; they follow an empty stream."""

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
            await one.channel.close()
        return f"{refused} refused"

    return case


def many_publishes(count: int) -> Case:
    """Of one client, all at once."""

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
            await one.channel.close()
        return f"{refused} refused"

    return case


def slow_http(count: int) -> Case:
    """Connections that never end their request, and a probe beside them; the note is its slowest."""

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


async def nothing(broker: BrokerProcess, api: Api) -> str:
    await asyncio.sleep(STALLED_SECONDS)
    return ""


MIB = 1 << 20
BATCHES, PLAIN = log_pb2.VERBATIM, log_pb2.RECORDS

CASES: dict[str, Case] = {
    "nothing": nothing,
    "60 bombs produced on one call": bombs_produced(60, 1),
    "240 bombs produced on 24 calls": bombs_produced(240, 24),
    "8 RECORDS readers of 8 bombs": bombs_read(8, 8),
    "1 RECORDS reader of 60 bombs": bombs_read(1, 60),
    "8 RECORDS readings of 8 bombs of one record": one_record_bombs_read,
    "1000 publishes beside 60 bombs produced and 8 readers": small_requests_beside,
    "200 RECORDS readers that stop reading, 1 KB records": stalled_readers(200, kilobyte_records, PLAIN, MIB),
    "200 RECORDS readers that stop reading, 1M empty records": stalled_readers(
        200, many_empty_records, PLAIN, MIB
    ),
    "200 VERBATIM readers of 1 MiB that stop reading": stalled_readers(200, incompressible, BATCHES, MIB),
    "200 VERBATIM readers of 16 MiB that stop reading": stalled_readers(
        200, incompressible, BATCHES, 16 * MIB
    ),
    "40 batches of 15 MB, not compressed, written and read": large_batches(40, 15_000_000),
    "40 requests of 16 MiB that are 8M headers": raw_requests("Publish", publish_of_headers, 40),
    "40 publishes of 10,000 tiny records": raw_requests("Publish", publish_of_records, 40),
    "40 publishes of 70,000 headers": raw_requests("Publish", publish_of_many_headers, 40),
    "40 requests of 1 MiB that are 500,000 partitions": raw_requests(
        "Offsets", lambda: offsets_of_nothing(MIB), 40
    ),
    "40 requests of 16 MiB that are 8M partitions": raw_requests(
        "Offsets", lambda: offsets_of_nothing(16 * MIB), 40
    ),
    "40 requests of 65 MiB": raw_requests("Offsets", lambda: offsets_of_nothing(65 * MIB), 40),
    "3,000 fetch calls of one client": many_fetches(3000),
    "10,000 publishes of one client at once": many_publishes(10_000),
    "32 slow HTTP connections": slow_http(32),
    "200 slow HTTP connections": slow_http(200),
}

LARGE_MESSAGES = "8 batches of 60 MB, with message_bytes_max of 65 MiB"
"""Beyond the default settings."""


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
            # Where a client has too many calls, the probe is one of them: a refusal is an answer, too.
            with suppress(grpc.aio.AioRpcError):
                await api.log.Offsets(request)
            longest = max(longest, time.perf_counter() - began)
            await asyncio.sleep(PROBE_SECONDS)
    print(longest * 1000, flush=True)


async def turns(broker: BrokerProcess) -> tuple[float, float]:
    """The longest delay of the event loop, and how long its thread can have run in one. ms."""
    text = await asyncio.to_thread(broker.get, "/metrics")

    def value(name: str) -> float:
        found = re.search(rf"^{name} (\S+)", text, re.MULTILINE)
        assert found, name
        return float(found[1]) * 1000

    return value("tidelog_event_loop_late_max_seconds"), value("tidelog_event_loop_ran_max_seconds")


async def measure(case: Case, flags: tuple[str, ...] = ()) -> Found:
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


async def endure(minutes: float) -> None:
    """Ten times the readers of the table, all at once and again and again, beside stalled ones."""
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

        async def produce() -> None:
            async with Api(broker.address) as own:
                await _produce(own, written, data, 10)
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
                    *(again(lambda: _read_all(broker.address, bombs), 0, 1) for _ in range(80)),
                    *(again(produce, 1, 10) for _ in range(10)),
                )
            await asyncio.sleep(SETTLE_SECONDS)
            telling.cancel()
        print(f"at the end {watching.now_mb():.0f} MB; the slowest small request took {waits[0]:.0f} ms")
        print(f"failed: {dict(failed)}")
        print_alarms(broker)


def print_found(name: str, found: Found) -> None:
    print(
        f"| {name} | {found.before_mb:.0f} | {found.peak_mb:.0f} | {found.after_mb:.0f} "
        f"| {found.late_ms:.0f} | {found.ran_ms:.0f} | {found.wait_ms:.0f} | {found.took_s:.1f} "
        f"| {found.note} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile_input", description=__doc__)
    parser.add_argument("--case", default="", help="only cases whose name has this text")
    parser.add_argument("--minutes", type=float, default=0.0, help="ten times the load for so long instead")
    parser.add_argument("--probe", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        asyncio.run(probe(options.probe))
        return
    if options.minutes:
        asyncio.run(endure(options.minutes))
        return
    print(
        "| input | MB before | peak | after | longest delay of the event loop, ms | it ran in one, ms | ",
        end="",
    )
    print("slowest small request, ms | took, s | |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, case in CASES.items():
        if options.case in name:
            print_found(name, asyncio.run(measure(case)))
    if options.case in LARGE_MESSAGES:
        flags = ("--message-bytes-max", str(65 * MIB))
        print_found(LARGE_MESSAGES, asyncio.run(measure(large_batches(8, BOMB_BYTES), flags)))


if __name__ == "__main__":
    main()

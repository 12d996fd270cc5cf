"""A phase of `bench.catchup`: a producer, readers beside it, and a window in which both are measured."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import tidelog
from bench.catchup.cold import READING
from bench.harness.processes import ROOT, Failed
from bench.measuring.buckets import buckets_of, difference, total_of
from bench.measuring.machine import ForeignLoad, io_counts, process_seconds
from bench.measuring.pace import open_loop
from bench.ours.broker import Broker
from bench.ours.client import arrow_batches
from tidelog.cli.local.processes import Child, ChildFailed, start

PRODUCE_PER_SECOND = 200
"""Requests that begin each second, whether or not earlier ones were answered."""

PRODUCE_RECORDS = 200
PRODUCE_VALUE_BYTES = 100
"""A request is a batch of 20 KB."""

LEAD_SECONDS = 1.5
"""From the first request until the window opens: connections and read-ahead settle."""

HTTP_SECONDS_MAX = 10.0
BEGIN_SECONDS_MAX = 60.0
"""From the start of a reader until it has its first bytes."""


class Window:
    """Counts time, CPU, bytes and flushes between `open` and `close`."""

    def __init__(self, broker: Broker, readers: Sequence[int]) -> None:
        """`readers`: their pids."""
        self._broker = broker
        self._readers = readers
        self._load = ForeignLoad()
        self._numbers: dict[str, float] = {}
        self._buckets: dict[float, float] = {}
        self.per_second: dict[str, float] = {}
        """broker_cpus, reader_cpus; bytes: fetched (from our broker), read (by the readers), disk."""
        self.flushes: dict[float, float] = {}
        """Upper bound in seconds → flushes that took at most that (`bench.measuring.buckets`)."""
        self.foreign_cpus = 0.0

    def open(self) -> None:
        self._load.begin()
        self._numbers, self._buckets = self._look()

    def close(self) -> None:
        numbers, buckets = self._look()
        self.foreign_cpus = self._load.end()
        seconds = numbers["at"] - self._numbers["at"]
        self.per_second = {name: (value - self._numbers[name]) / seconds for name, value in numbers.items()}
        self.flushes = difference(buckets, self._buckets)

    def _look(self) -> tuple[dict[str, float], dict[float, float]]:
        page = f"http://{self._broker.http_address}/metrics"
        with urllib.request.urlopen(page, timeout=HTTP_SECONDS_MAX) as answer:
            metrics = answer.read().decode()
        readers = [io_counts(pid) for pid in self._readers]
        numbers = {
            "at": perf_counter(),
            "broker_cpus": process_seconds(self._broker.pid),
            "reader_cpus": sum(process_seconds(pid) for pid in self._readers),
            "fetched": total_of("tidelog_fetched_bytes", metrics),
            "read": float(sum(counts["rchar"] for counts in readers)),
            "disk": float(sum(c["read_bytes"] for c in (*readers, io_counts(self._broker.pid)))),
        }
        return numbers, buckets_of("tidelog_flush_seconds", metrics)


async def produce(address: str, stream: str, seconds: float, window: Window) -> list[int]:
    """Latencies of an open loop, after a lead that does not count. ns.

    Nothing is in flight while the window is opened and closed.
    """
    batch = arrow_batches(PRODUCE_VALUE_BYTES, 1)[0].slice(0, PRODUCE_RECORDS)
    async with tidelog.connect(address) as client, client.producer(stream) as producer:

        async def send(_due: int) -> None:
            await producer.send_batch(batch)

        await open_loop(send, PRODUCE_PER_SECOND, LEAD_SECONDS)
        window.open()
        latencies = await open_loop(send, PRODUCE_PER_SECOND, seconds)
        window.close()
    return latencies


@contextmanager
def reading(commands: Sequence[Sequence[str]]) -> Iterator[list[int]]:
    """The pids of readers that have got their first bytes; the readers are ended with the block.

    Raises `Failed` if a reader ends before.
    """
    with TemporaryDirectory(prefix="bench-readers-") as folder, ExitStack() as closing:
        readers = []
        for number, command in enumerate(commands):
            log = Path(folder) / f"{number}.log"
            reader = start(f"reader {number}", command, log, folder=ROOT)
            closing.callback(reader.kill)
            readers.append(reader)
        for reader in readers:
            try:
                reader.wait_ready(partial(_reads, reader), BEGIN_SECONDS_MAX)
            except ChildFailed as failure:
                raise Failed(f"a reader did not begin to read: {failure}") from None
        yield [reader.process.pid for reader in readers]
        for reader in readers:
            if not reader.running:
                raise Failed(f"{reader.name} {reader.how_it_ended()}, too early")


def _reads(reader: Child) -> bool:
    return READING in reader.output().splitlines()

"""JetStream's contender for each case: with its Go client where Go is installed, and with nats-py."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

from bench.harness.build import BUILD_SECONDS_MAX, built
from bench.harness.model import Contender, Missing, Sample
from bench.harness.processes import run, run_for_json
from bench.harness.stage import Stage
from bench.harness.work import WARM_CPU_SECONDS, sample_of
from bench.measuring.machine import memory_mb, process_seconds
from bench.peers.jetstream import client
from bench.peers.jetstream.server import NatsCluster, NatsServer, Streams, version

SOURCES = Path(__file__).with_name("load")

CONSUMED_BYTES = {True: 40_000_000, False: 5_000_000}
"""Bytes of values in a stream that is read, with the Go client and with nats-py. They are fewer than ours, or
filling the stream would take longer than the rest of the case."""

CLIENTS: dict[str, dict[str, object]] = {
    "publish": {"client": "nats.go: PublishAsync, 4000 unacknowledged at most"},
    "serial": {"client": "nats.go: Publish, one in flight"},
    "consume": {"client": "nats.go: ordered consumer, 4000 messages a pull"},
    "e2e": {"client": "nats.go: PublishAsync from a clock, and an ordered consumer"},
}


@cache
def load_program() -> str:
    """The Go load generator, which is built once; raises `Missing` without Go."""
    go = shutil.which("go")
    if go is None:
        raise Missing("there is no Go compiler; only nats-py is measured")

    def build(folder: Path) -> None:
        run([go, "build", "-o", str(folder / "load"), "."], cwd=SOURCES, seconds_max=BUILD_SECONDS_MAX)

    return str(built("jetstream-load", list(SOURCES.iterdir()), build) / "load")


def _name(driver: str, *, fsync: bool = False) -> str:
    return f"jetstream-{version()} ({driver}{', sync always' if fsync else ''})"


def _go(
    server: Streams, work: str, stream: str, size: int, seconds: float, records: int = 0, rate: int = 0
) -> Sample:
    return sample_of(
        run_for_json(
            [
                load_program(), work, "-url", server.url_of(stream), "-stream", stream, "-size", str(size),
                "-seconds", str(seconds), "-records", str(records), "-rate", str(rate),
            ]
        )
    )  # fmt: skip


def _run(
    server: Streams, work: str, stream: str, size: int, seconds: float, *, go: bool, records: int = 0
) -> Sample:
    if go:
        return _go(server, work, stream, size, seconds, records)
    return client.run(work, server.url_of(stream), f"{stream}.x", seconds, size=size, records=records)


def _settings(work: str, *, go: bool, fsync: bool, copies: int = 1) -> dict[str, object]:
    chosen = CLIENTS[work] if go else client.SETTINGS[work]
    replicas = "one replica" if copies == 1 else f"{copies} replicas, the client connects to the leader"
    durability = "sync_interval: always" if fsync else "default: the file is synced every 2 minutes"
    return {**chosen, "server": f"file storage, {replicas}; {durability}"}


def publish(stage: Stage, *, fsync: bool, size: int, go: bool, copies: int = 1) -> Contender:
    """Publishes to a new stream in each measurement and deletes it."""
    if go:
        load_program()

    def measure(seconds: float) -> Sample:
        server, stream = stage.jetstream(fsync=fsync, copies=copies), stage.stream_name()
        server.create(stream)
        try:
            return _run(server, "publish", stream, size, seconds, go=go)
        finally:
            server.delete(stream)

    return Contender(
        _name("Go" if go else "nats-py", fsync=fsync),
        measure,
        _settings("publish", go=go, fsync=fsync, copies=copies),
    )


def consume(stage: Stage, *, size: int, copies: int = 1) -> Contender:
    """Reads with the Go client, or with nats-py where Go is not installed."""
    try:
        load_program()
        go = True
    except Missing:
        go = False
    stream, records = stage.stream_name(), CONSUMED_BYTES[go] // size

    def warm() -> None:
        server = stage.jetstream(fsync=False, copies=copies)
        server.create(stream)
        _run(server, "publish", stream, size, 0, go=go, records=records)

    def measure(_seconds: float) -> Sample:
        server = stage.jetstream(fsync=False, copies=copies)
        return _run(server, "consume", stream, size, 0, go=go, records=records)

    return Contender(
        _name("Go" if go else "nats-py"),
        measure,
        {
            **_settings("consume", go=go, fsync=False, copies=copies),
            "stream_mb": CONSUMED_BYTES[go] // 10**6,
        },
        warm,
        lambda: stage.jetstream(fsync=False, copies=copies).delete(stream),
    )


def serial(stage: Stage, *, fsync: bool, go: bool, copies: int = 1) -> Contender:
    if go:
        load_program()
    stream = stage.stream_name()

    def server() -> NatsServer | NatsCluster:
        return stage.jetstream(fsync=fsync, copies=copies)

    return Contender(
        _name("Go" if go else "nats-py", fsync=fsync),
        lambda seconds: _run(server(), "serial", stream, 100, seconds, go=go),
        _settings("serial", go=go, fsync=fsync, copies=copies),
        lambda: server().create(stream),
        lambda: server().delete(stream),
    )


def end_to_end(stage: Stage, *, rate: int, copies: int) -> Contender:
    """Publishes at a fixed rate and reads with an ordered consumer."""
    load_program()
    stream = stage.stream_name()

    def server() -> NatsServer | NatsCluster:
        return stage.jetstream(fsync=False, copies=copies)

    return Contender(
        _name("Go"),
        lambda seconds: _go(server(), "e2e", stream, 100, seconds, rate=rate),
        {**_settings("e2e", go=True, fsync=False, copies=copies), "per_second": rate},
        lambda: server().create(stream),
        lambda: server().delete(stream),
    )


def cpu(stage: Stage, *, copies: int = 1) -> Contender:
    """The CPU of the servers per million records, published asynchronously."""
    load_program()

    def measure(seconds: float) -> Sample:
        server, stream = stage.jetstream(fsync=False, copies=copies), stage.stream_name()
        server.create(stream)
        try:
            records = max(1000, int(100_000 * seconds))
            before = sum(process_seconds(pid) for pid in server.pids)
            found = _go(server, "publish", stream, 100, seconds, records)
            used = sum(process_seconds(pid) for pid in server.pids) - before
            return Sample(used / records * 1e6, found.facts)
        finally:
            server.delete(stream)

    def warm() -> None:
        measure(WARM_CPU_SECONDS)

    return Contender(_name("Go"), measure, _settings("publish", go=True, fsync=False, copies=copies), warm)


def memory(stage: Stage, *, loaded: bool) -> Contender:
    if loaded:
        load_program()

    def measure(seconds: float) -> Sample:
        server = NatsServer(stage.folder)
        try:
            server.start()
            if not loaded:
                return Sample(memory_mb(server.pid)[0])
            server.create("load")
            found = _go(server, "publish", "load", 100, seconds)
            records = found.facts["records"]
            assert isinstance(records, int | float)
            _go(server, "consume", "load", 100, 0, int(records))
            return Sample(memory_mb(server.pid)[1])
        finally:
            server.stop()

    load = "highest while publishing, then reading" if loaded else "after the start"
    return Contender(_name("Go" if loaded else "server"), measure, {"measured": f"resident memory, {load}"})

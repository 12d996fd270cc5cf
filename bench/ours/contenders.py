"""Tidelog's contender for each case."""

from __future__ import annotations

from bench.harness.model import OURS, Contender, Sample
from bench.harness.processes import python, run_for_json
from bench.harness.stage import Stage
from bench.harness.work import CONSUMED_BYTES, WARM_CPU_SECONDS, sample_of, within_disk
from bench.measuring.machine import memory_mb, process_seconds
from bench.ours.broker import Broker, Endpoint
from bench.ours.cluster import Cluster
from bench.peers.jetstream import client as nats_client

CLIENT = "bench.ours.client"
BATCHES = "Arrow batches of up to 8,000 records, 8 in flight, acks=all, idempotent, no compression"
RECORDS = "send_nowait, linger 5 ms, batches of up to 1 MiB, acks=all, idempotent, no compression"


def _run(broker: Endpoint, work: str, stream: str, size: int, seconds: float, *more: object) -> Sample:
    return sample_of(
        run_for_json(
            python(
                CLIENT, work, "--address", broker.address, "--stream", stream, "--size", size,
                "--seconds", seconds, "--records-max", within_disk(size), *more,
            )
        )
    )  # fmt: skip


def produce(stage: Stage, *, fsync: bool, size: int, batches: bool, copies: int = 1) -> Contender:
    """Produces to a new stream in each measurement and deletes it."""

    def measure(seconds: float) -> Sample:
        broker, stream = stage.broker(copies), stage.stream_name()
        broker.create(stream, fsync=fsync)
        try:
            return _run(broker, "batch" if batches else "record", stream, size, seconds)
        finally:
            broker.delete(stream)

    how = BATCHES if batches else RECORDS
    return Contender(
        OURS, measure, {"client": f"tidelog, asyncio on uvloop: {how}", **_durability(fsync, copies)}
    )


def consume(stage: Stage, *, size: int, copies: int = 1) -> Contender:
    stream = stage.stream_name()

    def warm() -> None:
        broker = stage.broker(copies)
        broker.create(stream, fsync=False)
        fill = ("--no-warm", "--records-max", CONSUMED_BYTES // size)
        _run(broker, "batch", stream, size, 30, *fill)

    return Contender(
        OURS,
        lambda seconds: _run(stage.broker(copies), "consume", stream, size, seconds),
        {
            "client": "tidelog, asyncio on uvloop: reader.batches(), both CRCs checked, no copy",
            "stream_mb": CONSUMED_BYTES // 10**6,
        },
        warm,
        lambda: stage.broker(copies).delete(stream),
    )


def serial(stage: Stage, *, fsync: bool, copies: int = 1) -> Contender:
    """Sends over gRPC: a produce call that stays open, one record in flight."""
    stream = stage.stream_name()
    return Contender(
        OURS,
        lambda seconds: _run(stage.broker(copies), "serial", stream, 100, seconds),
        {
            "client": "tidelog, asyncio on uvloop: await producer.send(), one in flight",
            **_durability(fsync, copies),
        },
        lambda: stage.broker(copies).create(stream, fsync=fsync),
        lambda: stage.broker(copies).delete(stream),
    )


def over_nats(stage: Stage, work: str, *, fsync: bool, copies: int = 1) -> Contender:
    """An unmodified JetStream client publishes to a subject that our broker records."""
    stream = stage.stream_name()

    def warm() -> None:
        stage.broker(copies).create(stream, fsync=fsync, subject=f"{stream}.>")
        nats_client.run(work, stage.nats().url, f"{stream}.x", 0.2)

    return Contender(
        OURS,
        lambda seconds: nats_client.run(work, stage.nats().url, f"{stream}.x", seconds),
        {**nats_client.SETTINGS[work], **_durability(fsync, copies)},
        warm,
        lambda: stage.broker(copies).delete(stream),
    )


def end_to_end(stage: Stage, *, rate: int, copies: int) -> Contender:
    """From the moment a record is due to be sent until a reader has it, page cache."""
    stream = stage.stream_name()
    return Contender(
        OURS,
        lambda seconds: _run(stage.broker(copies), "e2e", stream, 100, seconds, "--rate", rate),
        {
            "client": "tidelog, asyncio on uvloop: send() from a clock, linger 0, 1 batch in flight; "
            "a reader in the same process",
            "per_second": rate,
            **_durability(False, copies),
        },
        lambda: stage.broker(copies).create(stream, fsync=False),
        lambda: stage.broker(copies).delete(stream),
    )


def cpu(stage: Stage, *, copies: int = 1) -> Contender:
    """The brokers' CPU while batches are produced, page cache, per million records."""

    def measure(seconds: float) -> Sample:
        broker, stream = stage.broker(copies), stage.stream_name()
        broker.create(stream, fsync=False)
        try:
            leader = broker.leader_of(stream).pid if isinstance(broker, Cluster) else broker.pid
            before = {pid: process_seconds(pid) for pid in broker.pids}
            found = _run(broker, "batch", stream, 100, seconds, "--no-warm")
            used = {pid: process_seconds(pid) - before[pid] for pid in broker.pids}
        finally:
            broker.delete(stream)
        records = found.facts["records"]
        assert isinstance(records, float)
        million = records / 1e6
        facts = {**found.facts, "leader_cpu_s": used[leader] / million}
        return Sample(sum(used.values()) / million, facts)

    return Contender(
        OURS,
        measure,
        {"client": BATCHES, **_durability(False, copies)},
        lambda: _discard(measure(WARM_CPU_SECONDS)),
    )


def memory(stage: Stage, *, loaded: bool) -> Contender:
    """The resident memory of a broker of its own: after the start, or the highest under load."""

    def measure(seconds: float) -> Sample:
        broker = Broker(stage.folder)
        try:
            broker.start()
            if not loaded:
                return Sample(memory_mb(broker.pid)[0])
            broker.create("load", fsync=True)
            _run(broker, "batch", "load", 100, seconds)
            _run(broker, "consume", "load", 100, seconds / 2, "--no-warm")
            return Sample(memory_mb(broker.pid)[1])
        finally:
            broker.stop()

    load = "highest while producing batches, then reading them" if loaded else "after the start"
    return Contender(OURS, measure, {"measured": f"resident memory, {load}"})


def _durability(fsync: bool, copies: int = 1) -> dict[str, object]:
    found: dict[str, object] = {"durability": "fsync before the answer" if fsync else "page cache"}
    return {**found, "copies": copies, "min_isr": 2} if copies > 1 else found


def _discard(_: object) -> None:
    """Drops the sample of a measurement that only warms up."""

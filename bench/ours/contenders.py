"""What our side does for each case."""

from __future__ import annotations

import os
from importlib.util import find_spec

from bench.machine import memory_mb, process_seconds
from bench.model import OURS, Contender, Missing, Sample
from bench.ours.broker import Broker
from bench.peers.jetstream import client as nats_client
from bench.processes import python, run, run_for_json
from bench.stage import Stage
from bench.work import (
    CONSUMED_BYTES,
    SPARK_PARTITIONS,
    SPARK_ROWS,
    WARM_CPU_SECONDS,
    sample_of,
    within_disk,
)

CLIENT = "bench.ours.client"
SPARK = "bench.ours.spark"
BATCHES = "Arrow batches of up to 8,000 records, 8 in flight, acks=all, idempotent, no compression"
RECORDS = "send_nowait, linger 5 ms, batches of up to 1 MiB, acks=all, idempotent, no compression"


def _run(broker: Broker, work: str, stream: str, size: int, seconds: float, *more: object) -> Sample:
    return sample_of(
        run_for_json(
            python(
                CLIENT, work, "--address", broker.address, "--stream", stream, "--size", size,
                "--seconds", seconds, "--records-max", within_disk(size), *more,
            )
        )
    )  # fmt: skip


def produce(stage: Stage, *, fsync: bool, size: int, batches: bool) -> Contender:
    """A new stream for each measurement, deleted after it."""

    def measure(seconds: float) -> Sample:
        broker, stream = stage.broker(), stage.stream_name()
        broker.create(stream, fsync=fsync)
        try:
            return _run(broker, "batch" if batches else "record", stream, size, seconds)
        finally:
            broker.delete(stream)

    how = BATCHES if batches else RECORDS
    return Contender(OURS, measure, {"client": f"tidelog, asyncio on uvloop: {how}", **_durability(fsync)})


def consume(stage: Stage, *, size: int) -> Contender:
    stream = stage.stream_name()

    def warm() -> None:
        broker = stage.broker()
        broker.create(stream, fsync=False)
        fill = ("--no-warm", "--records-max", CONSUMED_BYTES // size)
        _run(broker, "batch", stream, size, 30, *fill)

    return Contender(
        OURS,
        lambda seconds: _run(stage.broker(), "consume", stream, size, seconds),
        {
            "client": "tidelog, asyncio on uvloop: reader.batches(), both CRCs checked, no copy",
            "stream_mb": CONSUMED_BYTES // 10**6,
        },
        warm,
        lambda: stage.broker().delete(stream),
    )


def serial(stage: Stage, *, fsync: bool) -> Contender:
    """gRPC: a produce call that stays open, one record in flight."""
    stream = stage.stream_name()
    return Contender(
        OURS,
        lambda seconds: _run(stage.broker(), "serial", stream, 100, seconds),
        {"client": "tidelog, asyncio on uvloop: await producer.send(), one in flight", **_durability(fsync)},
        lambda: stage.broker().create(stream, fsync=fsync),
        lambda: stage.broker().delete(stream),
    )


def over_nats(stage: Stage, work: str, *, fsync: bool) -> Contender:
    """An unmodified JetStream client publishes to a subject that our broker records."""
    stream = stage.stream_name()

    def warm() -> None:
        stage.broker().create(stream, fsync=fsync, subject=f"{stream}.>")
        nats_client.run(work, stage.nats().url, f"{stream}.x", 0.2)

    return Contender(
        OURS,
        lambda seconds: nats_client.run(work, stage.nats().url, f"{stream}.x", seconds),
        {**nats_client.SETTINGS[work], **_durability(fsync)},
        warm,
        lambda: stage.broker().delete(stream),
    )


def cpu(stage: Stage) -> Contender:
    """The broker's CPU while batches are produced, page cache, per million records."""

    def measure(seconds: float) -> Sample:
        broker, stream = stage.broker(), stage.stream_name()
        broker.create(stream, fsync=False)
        try:
            before = process_seconds(broker.pid)
            found = _run(broker, "batch", stream, 100, seconds, "--no-warm")
            used = process_seconds(broker.pid) - before
        finally:
            broker.delete(stream)
        records = found.facts["records"]
        assert isinstance(records, float)
        return Sample(used / records * 1e6, found.facts)

    return Contender(
        OURS, measure, {"client": BATCHES, **_durability(False)}, lambda: _discard(measure(WARM_CPU_SECONDS))
    )


def memory(stage: Stage, *, loaded: bool) -> Contender:
    """A broker of its own: resident after the start, or at the highest while produced to and read."""

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


def spark(stage: Stage, *, work: str, size: int) -> Contender:
    """A stream of several partitions, read by a Spark session on this machine."""
    _need_spark()
    stream = stage.stream_name()

    def warm() -> None:
        broker = stage.broker()
        broker.create(stream, fsync=False, partitions=SPARK_PARTITIONS)
        run(
            python(
                "bench.ours.fill", "--address", broker.address, "--stream", stream, "--size", size,
                "--rows", SPARK_ROWS, "--partitions", SPARK_PARTITIONS,
            )
        )  # fmt: skip

    def measure(seconds: float) -> Sample:
        command = python(
            SPARK, work, "--address", stage.broker().address, "--stream", stream, "--rows", SPARK_ROWS,
            "--seconds", seconds, "--folder", stage.folder,
        )  # fmt: skip
        return sample_of(run_for_json(command))

    return Contender(
        OURS,
        measure,
        {
            "client": "Spark local[2], format('tidelog') to the noop sink; the first read does not count",
            "rows": SPARK_ROWS,
            "partitions": SPARK_PARTITIONS,
        },
        warm,
        lambda: stage.broker().delete(stream),
    )


def _need_spark() -> None:
    """Raises `Missing` where Spark cannot run."""
    if find_spec("pyspark") is None:
        raise Missing("the Python package pyspark is not installed")
    from tidelog_spark.java import JavaMissing, ensure_java

    # It chooses a Java for its own process; ours has other Java programs to start.
    before = dict(os.environ)
    try:
        ensure_java()
    except JavaMissing as lack:
        raise Missing(str(lack)) from None
    finally:
        os.environ.clear()
        os.environ.update(before)


def _durability(fsync: bool) -> dict[str, object]:
    return {"durability": "fsync before the answer" if fsync else "page cache"}


def _discard(_: object) -> None:
    """For a measurement made to warm up."""

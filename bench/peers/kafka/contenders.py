"""Kafka's contender for each case: its own performance tools, tuned, and its Python producers."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

from bench.harness.model import Contender, Missing, Sample
from bench.harness.processes import Failed, python, run, run_for_json
from bench.harness.stage import Stage
from bench.harness.work import sample_of, within_disk
from bench.measuring.machine import memory_mb, process_seconds
from bench.peers.kafka import client
from bench.peers.kafka.cluster import KafkaCluster
from bench.peers.kafka.server import MIN_ISR, Kafka, Topics, jars, java_command, version

NAME = f"kafka-{version()}"

TUNED = {
    "linger.ms": 10,
    "batch.size": 1 << 20,
    "buffer.memory": 64 << 20,
    "acks": "all",
    "compression.type": "none",
}
DEFAULTS = "producer: linger.ms 5, batch.size 16384, buffer.memory 32 MiB, acks all; broker: never flushes"

WARM_RECORDS = {100: 6_000_000, 1000: 1_000_000}
"""Warm-up records of ProducerPerformance by value size: its rate grows for some ten seconds here."""

RATE_GUESS = {100: 1_000_000, 1000: 250_000}
"""Records per second by value size; they give the number of records of the first measurement."""

_DONE = re.compile(r"(\d+) records sent, ([\d.]+) records/sec")
_STEADY = re.compile(r"(\d+) steady state records sent, ([\d.]+) records/sec")


def _topic(stage: Stage, *, fsync: bool, copies: int = 1) -> tuple[Kafka | KafkaCluster, str]:
    server, topic = stage.kafka(copies), stage.stream_name()
    server.create(topic, fsync=fsync)
    return server, topic


def _warm_records(size: int, *, fsync: bool, copies: int) -> int:
    """Fewer with three copies and with flushes, so that the warm-up takes about the same time."""
    return WARM_RECORDS[size] // (1 if copies == 1 else 3 if fsync else 2)


def _payloads(stage: Stage, size: int) -> Path:
    """A file of values: without one ProducerPerformance spends its time on random letters."""
    path = stage.folder / f"payloads-{size}"
    if not path.exists():
        path.write_text("\n".join(os.urandom(size).hex()[:size] for _ in range(1000)))
    return path


def producer_performance(
    stage: Stage, server: Topics, topic: str, size: int, records: int, warm_records: int
) -> Sample:
    """Runs ProducerPerformance; records per second without the warm-up records."""
    properties = [f"{name}={value}" for name, value in TUNED.items()]
    said = run(
        java_command(
            "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", server.address,
            "--topic", topic, "--num-records", records + warm_records, "--warmup-records", warm_records,
            "--payload-file", _payloads(stage, size), "--throughput", -1,
            "--command-property", *properties,
        )
    )  # fmt: skip
    found = _STEADY.search(said) if warm_records else _DONE.search(said)
    if found is None:
        raise Failed(f"ProducerPerformance printed no rate: {said[-500:]}")
    rate = float(found[2])
    return Sample(
        rate,
        {
            "records": float(records),
            "value_mb_per_s": rate * size / 1e6,
            "all_records": records + warm_records,
        },
    )


def produce(stage: Stage, *, fsync: bool, size: int, copies: int = 1) -> Contender:
    """Produces with ProducerPerformance, tuned, to a new topic in each measurement."""
    jars()
    rate = float(RATE_GUESS[size])

    def measure(seconds: float) -> Sample:
        nonlocal rate
        server, topic = _topic(stage, fsync=fsync, copies=copies)
        try:
            records = min(int(rate * seconds), within_disk(size))
            warm_records = _warm_records(size, fsync=fsync, copies=copies)
            found = producer_performance(stage, server, topic, size, records, warm_records)
        finally:
            server.delete(topic)
        rate = found.value
        return found

    return Contender(
        NAME, measure, {"client": "ProducerPerformance", **_settings(fsync=fsync, copies=copies)}
    )


def _settings(*, fsync: bool, copies: int = 1) -> dict[str, object]:
    replicas = {"copies": copies, "min_isr": MIN_ISR} if copies > 1 else {}
    return {
        **replicas,
        "tuned": ", ".join(f"{name}={value}" for name, value in TUNED.items()),
        "kafka_defaults": DEFAULTS,
        "durability": "flush.messages=1 (log.flush.interval.messages=1)" if fsync else "page cache",
    }


def python_producer(stage: Stage, work: str, *, fsync: bool, size: int, copies: int = 1) -> Contender:
    """Produces with aiokafka or confluent-kafka."""
    jars()
    module = {"aiokafka": "aiokafka", "confluent": "confluent_kafka"}[work]
    if importlib.util.find_spec(module) is None:
        raise Missing(f"the Python package {module} is not installed (pip install 'tidelog[bench]')")

    def measure(seconds: float) -> Sample:
        server, topic = _topic(stage, fsync=fsync, copies=copies)
        try:
            return sample_of(
                run_for_json(
                    python(
                        "bench.peers.kafka.client", work, "--address", server.address, "--topic", topic,
                        "--size", size, "--seconds", seconds,
                    )
                )
            )  # fmt: skip
        finally:
            server.delete(topic)

    name = "confluent-kafka" if work == "confluent" else work
    durability = _settings(fsync=fsync)["durability"]
    return Contender(f"{NAME} ({name})", measure, {**client.SETTINGS[work], "durability": durability})


def serial(stage: Stage, *, fsync: bool, copies: int = 1) -> Contender:
    jars()
    topic = stage.stream_name()
    return Contender(
        NAME,
        lambda seconds: sample_of(
            run_for_json(java_command("Load", "serial", stage.kafka(copies).address, topic, 100, seconds))
        ),
        {
            "client": "KafkaProducer: send().get(), linger.ms=0, acks=all, after 2 s of warm-up",
            "durability": _settings(fsync=fsync)["durability"],
        },
        lambda: stage.kafka(copies).create(topic, fsync=fsync),
        lambda: stage.kafka(copies).delete(topic),
    )


def end_to_end(stage: Stage, *, rate: int, copies: int) -> Contender:
    """Sends at a fixed rate and reads with an assigned consumer in the same JVM."""
    jars()
    topic = stage.stream_name()
    return Contender(
        NAME,
        lambda seconds: sample_of(
            run_for_json(java_command("Load", "e2e", stage.kafka(copies).address, topic, 100, seconds, rate))
        ),
        {
            "client": "KafkaProducer from a clock, linger.ms=0; KafkaConsumer; after 4 s of warm-up",
            "per_second": rate,
        },
        lambda: stage.kafka(copies).create(topic, fsync=False),
        lambda: stage.kafka(copies).delete(topic),
    )


def cpu(stage: Stage, *, copies: int = 1) -> Contender:
    """The CPU of the brokers per million records of the tuned ProducerPerformance."""
    jars()

    def measure(seconds: float) -> Sample:
        server, topic = _topic(stage, fsync=False, copies=copies)
        try:
            records = min(int(RATE_GUESS[100] * seconds), within_disk(100))
            before = sum(process_seconds(pid) for pid in server.pids)
            found = producer_performance(stage, server, topic, 100, records, 0)
            used = sum(process_seconds(pid) for pid in server.pids) - before
        finally:
            server.delete(topic)
        return Sample(used / records * 1e6, found.facts)

    def warm() -> None:
        for _ in range(2):
            measure(3.0)

    return Contender(
        NAME, measure, {"client": "ProducerPerformance", **_settings(fsync=False, copies=copies)}, warm
    )


def memory(stage: Stage, *, loaded: bool) -> Contender:
    jars()

    def measure(seconds: float) -> Sample:
        server = Kafka(stage.folder)
        try:
            server.start()
            if not loaded:
                return Sample(memory_mb(server.pid)[0])
            server.create("load", fsync=False)
            records = int(RATE_GUESS[100] * seconds)
            producer_performance(stage, server, "load", 100, records, 0)
            run_for_json(java_command("Load", "consume", server.address, "load", records, 0.1))
            return Sample(memory_mb(server.pid)[1])
        finally:
            server.stop()

    load = "highest while producing, then reading" if loaded else "after the start"
    return Contender(NAME, measure, {"measured": f"resident memory, {load}; heap 1 GiB"})

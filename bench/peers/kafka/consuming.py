"""Kafka's contenders that read a stored topic: its own tool, and a consumer with a warm JVM."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from bench.harness.model import Contender, Sample
from bench.harness.processes import run, run_for_json
from bench.harness.stage import Stage
from bench.harness.work import CONSUMED_BYTES, sample_of
from bench.peers.kafka.contenders import NAME, producer_performance
from bench.peers.kafka.server import jars, java_command

COLD_CONSUMED_BYTES = 2 * CONSUMED_BYTES
"""For a consumer that starts cold: the longer it reads, the less the start counts."""


def _filled(
    stage: Stage, records: int, size: int, copies: int
) -> tuple[Callable[[], str], Callable[[], None], Callable[[], None]]:
    """A topic to read: functions that give its name, fill it and delete it."""
    topic = stage.stream_name()

    def fill() -> None:
        server = stage.kafka(copies)
        server.create(topic, fsync=False)
        producer_performance(stage, server, topic, size, records, 0)

    return lambda: topic, fill, lambda: stage.kafka(copies).delete(topic)


def performance_tool(stage: Stage, *, size: int, copies: int = 1) -> Contender:
    """Kafka's own tool; its rate includes the cold start of fetching."""
    jars()
    records = COLD_CONSUMED_BYTES // size
    topic, fill, delete = _filled(stage, records, size, copies)

    def measure(_seconds: float) -> Sample:
        said = run(
            java_command(
                "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server",
                stage.kafka(copies).address, "--topic", topic(), "--num-records", records,
                "--group", f"{topic()}-{perf_counter():.6f}", "--hide-header",
            )
        )  # fmt: skip
        fields = said.strip().splitlines()[-1].split(",")
        # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
        rate = float(fields[9])
        return Sample(rate, {"records": float(fields[4]), "value_mb_per_s": rate * size / 1e6})

    return Contender(
        f"{NAME} (ConsumerPerformance)",
        measure,
        {
            "client": "ConsumerPerformance, its rate without the rebalance",
            "stream_mb": COLD_CONSUMED_BYTES // 10**6,
        },
        fill,
        delete,
    )


def warm_consumer(stage: Stage, *, size: int, copies: int = 1) -> Contender:
    """A consumer whose JVM has already read the topic for some seconds."""
    jars()
    records = CONSUMED_BYTES // size
    topic, fill, delete = _filled(stage, records, size, copies)
    return Contender(
        f"{NAME} (warm consumer)",
        lambda seconds: sample_of(
            run_for_json(
                java_command("Load", "consume", stage.kafka(copies).address, topic(), records, seconds)
            )
        ),
        {"client": "KafkaConsumer, assigned, after 2 s of warm-up", "stream_mb": CONSUMED_BYTES // 10**6},
        fill,
        delete,
    )

"""Latency of micro-batches of one record: from the moment before it is sent until its batch is committed.

The query follows a stream without a trigger, so it looks for records all the time. Records are sent with the
usual Python client of each log, one after the other, and the next one after the batch of the last one.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter, perf_counter_ns, sleep

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.harness.processes import Failed
from bench.measuring.latency import summary_ms
from bench.spark.cost import Cost
from bench.spark.request import Request
from tidelog import ProducerOptions, blocking

WARM_BATCHES = 30
BATCHES_MIN = 20
BATCH_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.001
PAUSE_SECONDS_MAX = 0.05
"""Between two records, at random: otherwise all records would come in the same moment of the query's loop."""

VALUE = bytes(100)
PHASES = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "triggerExecution")
"""Parts of a micro-batch that Spark reports, and the whole."""


@contextmanager
def tidelog_sender(address: str, stream: str) -> Iterator[Callable[[], None]]:
    options = ProducerOptions(linger_ms=0)
    with blocking.connect(address) as client, client.producer(stream, options=options) as producer:
        yield lambda: _done(producer.send(VALUE))


@contextmanager
def kafka_sender(address: str, topic: str) -> Iterator[Callable[[], None]]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "acks": "all"})

    def send() -> None:
        producer.produce(topic, VALUE)
        if producer.flush(BATCH_SECONDS_MAX):
            raise Failed("Kafka did not acknowledge a record")

    yield send


SENDERS = {"tidelog": tidelog_sender, "kafka": kafka_sender}


def latency(spark: SparkSession, request: Request, jvm: int) -> dict[str, float]:
    """The median of one-record micro-batches, in milliseconds, and how Spark spent it."""
    source, send = request.source, request.send
    rows = spark.readStream.format(source.name).options(**source.options).load()
    with (
        tempfile.TemporaryDirectory(prefix="checkpoint-", dir=request.folder) as folder,
        SENDERS[send["client"]](send["address"], send["stream"]) as sender,
    ):
        query = rows.writeStream.format("noop").option("checkpointLocation", folder).start()
        try:
            follower = Follower(query, sender)
            follower.run(WARM_BATCHES, 0.0)
            before = Cost.now(jvm, request.brokers)
            found = follower.run(BATCHES_MIN, request.seconds)
            cost = Cost.now(jvm, request.brokers).since(before)
        finally:
            query.stop()
    return {"value": found["p50_ms"], **found, **cost.per_batch(round(found["count"]))}


class Follower:
    """Sends records one by one and waits for the micro-batch of each."""

    def __init__(self, query: StreamingQuery, send: Callable[[], None]) -> None:
        self._query = query
        self._send = send
        self._random = random.Random(7)
        self._last = -1
        """The number of the last micro-batch with a record."""
        self._start()

    def _start(self) -> None:
        """Sends records until one is read: the query chooses its first offset some time after its start."""
        deadline = perf_counter() + BATCH_SECONDS_MAX
        while perf_counter() < deadline:
            self._send()
            sleep(0.5)
            if self._new_batch() is not None:
                break
        self._query.processAllAvailable()
        last = self._query.lastProgress
        if last is None:
            raise Failed(f"the query read no record within {BATCH_SECONDS_MAX:g} s")
        self._last = last.batchId

    def run(self, batches_min: int, seconds: float) -> dict[str, float]:
        """Latencies of at least so many micro-batches, for at least so many seconds."""
        latencies: list[int] = []
        acknowledged: list[int] = []
        phases: dict[str, list[float]] = {name: [] for name in PHASES}
        until = perf_counter() + seconds
        while len(latencies) < batches_min or perf_counter() < until:
            sleep(self._random.uniform(0, PAUSE_SECONDS_MAX))
            began = perf_counter_ns()
            self._send()
            acknowledged.append(perf_counter_ns() - began)
            durations = self._wait()
            latencies.append(perf_counter_ns() - began)
            for name in PHASES:
                phases[name].append(float(durations.get(name, 0)))
        return {
            **summary_ms(latencies),
            "ack_p50_ms": summary_ms(acknowledged)["p50_ms"],
            **{f"spark_{name}_ms": median(values) for name, values in phases.items()},
        }

    def _wait(self) -> dict[str, int]:
        """How Spark spent the micro-batch of the record that was sent last."""
        deadline = perf_counter() + BATCH_SECONDS_MAX
        while perf_counter() < deadline:
            found = self._new_batch()
            if found is not None:
                return found
            sleep(LOOK_SECONDS)
        raise Failed(f"a record was not read within {BATCH_SECONDS_MAX:g} s")

    def _new_batch(self) -> dict[str, int] | None:
        progress = self._query.lastProgress
        if progress is None or progress.batchId <= self._last or not progress.numInputRows:
            failure = self._query.exception()
            if failure is not None:
                raise failure
            return None
        self._last = progress.batchId
        return dict(progress.durationMs)


def _done(_receipt: object) -> None:
    """Drops the receipt of a record."""

"""Where a contender keeps its rows: a stream, a topic or a folder, and the options of its Spark format."""

from __future__ import annotations

import importlib
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import tidelog
from bench.harness.processes import Failed, python, run
from bench.harness.stage import Stage
from bench.harness.work import SPARK_PARTITIONS
from bench.ours.broker import Broker
from bench.peers.kafka.connector import TUNED_SINK, TUNED_SOURCE, connector_jars
from bench.peers.kafka.server import REQUEST_SECONDS_MAX, jars
from bench.spark.fill import FILES
from bench.spark.memory_source import FORMAT
from bench.spark.request import Format

SERVERS = "tidelog.bootstrap.servers"
FILL_SECONDS_MAX = 300.0
TRIGGERS = 5
"""Micro-batches of a stream that is read or written; each has the same number of rows."""


class Place(ABC):
    """Rows of one contender; `create` makes it empty."""

    kind = ""
    """As `bench.spark.fill` calls it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.name = stage.stream_name()

    @property
    def jars(self) -> str:
        """Further jars of the Spark session."""
        return ""

    @property
    def brokers(self) -> tuple[int, ...]:
        """The process ids of the brokers."""
        return ()

    @property
    @abstractmethod
    def target(self) -> str:
        """The address of the broker, or the folder."""

    @property
    @abstractmethod
    def source(self) -> Format:
        """Reads all rows in a batch query."""

    @abstractmethod
    def stream_source(self, rows: int) -> Format:
        """Reads all of `rows` from the start, in `TRIGGERS` micro-batches."""

    @property
    @abstractmethod
    def sink(self) -> Format:
        """Appends rows."""

    @abstractmethod
    def create(self) -> None: ...

    @abstractmethod
    def delete(self) -> None: ...

    @abstractmethod
    def stored(self) -> int:
        """The number of rows that are there."""

    def fill(self, rows: int, size: int, *, subjects: bool) -> None:
        """Stores the rows in a new place."""
        self.create()
        more = ("--subjects",) if subjects else ()
        run(
            python(
                "bench.spark.fill", self.kind, "--target", self.target, "--stream", self.name,
                "--partitions", SPARK_PARTITIONS, "--rows", rows, "--size", size, *more,
            ),
            seconds_max=FILL_SECONDS_MAX,
        )  # fmt: skip


class TidelogPlace(Place):
    """A stream of our broker, page cache."""

    kind = "tidelog"

    @property
    def _broker(self) -> Broker:
        broker = self._stage.broker()
        assert isinstance(broker, Broker)
        return broker

    @property
    def brokers(self) -> tuple[int, ...]:
        return tuple(self._broker.pids)

    @property
    def target(self) -> str:
        return self._broker.address

    @property
    def source(self) -> Format:
        return Format("tidelog", {SERVERS: self.target, "subscribe": self.name})

    def stream_source(self, rows: int) -> Format:
        limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(_per_trigger(rows))}
        return Format("tidelog", {**self.source.options, **limits})

    @property
    def sink(self) -> Format:
        return Format("tidelog", {SERVERS: self.target, "stream": self.name})

    def create(self) -> None:
        self._broker.create(self.name, fsync=False, partitions=SPARK_PARTITIONS)

    def delete(self) -> None:
        self._broker.delete(self.name)

    def stored(self) -> int:
        async def count(client: tidelog.Client) -> int:
            return sum(end - start for start, end in (await client.offsets(self.name)).values())

        return self._broker.ask(count)


class KafkaPlace(Place):
    """A topic of a Kafka broker, page cache; the options of the connector are tuned, or its defaults."""

    kind = "kafka"

    def __init__(self, stage: Stage, *, tuned: bool = True) -> None:
        """Raises `Missing`."""
        super().__init__(stage)
        jars()
        connector_jars()
        self._source_options = TUNED_SOURCE if tuned else {}

    @property
    def jars(self) -> str:
        return connector_jars()

    @property
    def brokers(self) -> tuple[int, ...]:
        return tuple(self._stage.kafka().pids)

    @property
    def target(self) -> str:
        return self._stage.kafka().address

    @property
    def source(self) -> Format:
        options = {"kafka.bootstrap.servers": self.target, "subscribe": self.name, **self._source_options}
        return Format("kafka", options)

    def stream_source(self, rows: int) -> Format:
        limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(_per_trigger(rows))}
        return Format("kafka", {**self.source.options, **limits})

    @property
    def sink(self) -> Format:
        return Format("kafka", {"kafka.bootstrap.servers": self.target, "topic": self.name, **TUNED_SINK})

    def create(self) -> None:
        self._stage.kafka().create(self.name, fsync=False, partitions=SPARK_PARTITIONS)

    def delete(self) -> None:
        self._stage.kafka().delete(self.name)

    def stored(self) -> int:
        kafka: Any = importlib.import_module("confluent_kafka")
        consumer = kafka.Consumer({"bootstrap.servers": self.target, "group.id": "count"})
        try:
            marks = [
                consumer.get_watermark_offsets(
                    kafka.TopicPartition(self.name, partition), timeout=REQUEST_SECONDS_MAX
                )
                for partition in range(SPARK_PARTITIONS)
            ]
        finally:
            consumer.close()
        return sum(high - low for low, high in marks)


class ParquetPlace(Place):
    """A folder of Parquet files, written without a broker and without compression."""

    kind = "parquet"

    @property
    def target(self) -> str:
        return str(self._stage.folder / self.name)

    @property
    def source(self) -> Format:
        return Format("parquet", {"path": self.target})

    def stream_source(self, rows: int) -> Format:
        limit = {"maxFilesPerTrigger": str(FILES // TRIGGERS)}
        return Format("parquet", {"path": self.target, **limit}, schema="value binary")

    @property
    def sink(self) -> Format:
        return Format("parquet", {"path": self.target, "compression": "none"})

    def create(self) -> None:
        """Spark, or `fill`, makes the folder."""

    def delete(self) -> None:
        shutil.rmtree(self.target, ignore_errors=True)

    def stored(self) -> int:
        return sum(pq.read_metadata(file).num_rows for file in Path(self.target).glob("*.parquet"))


class MemoryPlace(Place):
    """No place: each task makes its rows (`memory_source`)."""

    kind = "memory"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._options: dict[str, str] = {}

    @property
    def target(self) -> str:
        return ""

    @property
    def source(self) -> Format:
        return Format(FORMAT, self._options)

    def stream_source(self, rows: int) -> Format:
        return Format(FORMAT, {**self._options, "rowsPerTrigger": str(_per_trigger(rows))})

    @property
    def sink(self) -> Format:
        raise Failed("nothing is written to memory")

    def create(self) -> None: ...

    def delete(self) -> None: ...

    def stored(self) -> int:
        return int(self._options["rows"])

    def fill(self, rows: int, size: int, *, subjects: bool) -> None:
        self._options = {"rows": str(rows), "size": str(size)}


def _per_trigger(rows: int) -> int:
    return -(-rows // TRIGGERS)

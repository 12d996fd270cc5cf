"""The contenders of the `spark` cases: Tidelog with and without pruning, Kafka's connector, Parquet files,
rows from memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from time import monotonic
from typing import TypeAlias

from bench.harness.model import OURS, Contender, Missing, Sample
from bench.harness.processes import Failed
from bench.harness.stage import Stage
from bench.harness.work import SPARK_PARTITIONS, sample_of
from bench.peers.kafka import contenders as kafka
from bench.peers.kafka.connector import TUNED_SINK, TUNED_SOURCE, versions
from bench.spark.client import Session
from bench.spark.places import TRIGGERS, KafkaPlace, MemoryPlace, ParquetPlace, Place, TidelogPlace
from bench.spark.request import MASTER, Format, Request
from bench.spark.rows import selected

UNPRUNED = f"{OURS} (without the option)"
KAFKA = kafka.NAME
PARQUET = "parquet"
MEMORY = "memory"
"""The limit: a Python data source whose tasks have the rows in memory."""

WARM_RUNS = 2
"""Runs of the work that do not count: a new JVM gets faster from run to run."""

MakePlace: TypeAlias = Callable[[Stage], Place]

PLACES: Mapping[str, MakePlace] = {
    OURS: TidelogPlace,
    UNPRUNED: TidelogPlace,
    KAFKA: KafkaPlace,
    PARQUET: ParquetPlace,
    MEMORY: MemoryPlace,
}

SPARK = f"Spark {MASTER}, the settings of tidelog_spark.local_session"
CLIENTS = {
    OURS: "format('tidelog')",
    UNPRUNED: "format('tidelog'), Spark selects the rows and the columns",
    KAFKA: f"format('kafka'), {versions()}",
    PARQUET: "format('parquet'), files without compression",
    MEMORY: "a Python data source that sends the same batches from memory",
}
OPTIONS: Mapping[str, Mapping[str, object]] = {
    KAFKA: {"source": dict(TUNED_SOURCE), "sink": dict(TUNED_SINK)}
}


@dataclass(frozen=True, slots=True)
class Selection:
    """What a read takes of the rows with subjects, said in Spark, and to our source by options."""

    select: tuple[str, ...] = ()
    where: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


IDLE_SECONDS_MAX = 30.0
"""Spark ends Python processes that had no work for a minute. After half of this time a session works once
before it is measured."""


class _Sessions:
    """The session of a contender: started by `warm`, used by `measure`, ended by `close`."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._closing = ExitStack()
        self._session: Session | None = None
        self._worked = 0.0

    def measured(self, work: Callable[[], Sample]) -> Sample:
        """The figures of `work`, in a session that has just worked."""
        if monotonic() - self._worked > IDLE_SECONDS_MAX:
            work()
        found = work()
        self._worked = monotonic()
        return found

    def start(self, jars: str) -> Session:
        self._session = Session(self._stage.folder, jars)
        self._closing.callback(self._session.close)
        return self._session

    @property
    def session(self) -> Session:
        assert self._session is not None, "the session was started to warm it up"
        return self._session

    def at_end(self, work: Callable[[], None]) -> None:
        self._closing.callback(work)

    def close(self) -> None:
        self._closing.close()


def read(
    stage: Stage, *, name: str, size: int, streaming: bool = False, selection: Selection | None = None
) -> Contender:
    """Reads all rows into the noop sink; with a selection the rows have keys and subjects."""
    need_spark()
    place = PLACES[name](stage)
    rows, sessions = stage.effort.spark_rows(size), _Sessions(stage)
    chosen = selection or Selection()

    def source() -> Format:
        found = place.stream_source(rows) if streaming else place.source
        return replace(found, options={**found.options, **chosen.options}) if name == OURS else found

    def request(work: str, seconds: float) -> Request:
        return Request(
            work, source(), rows, chosen.select, chosen.where, seconds=seconds,
            folder=str(stage.folder), brokers=place.brokers,
        )  # fmt: skip

    work = "stream" if streaming else "batch"

    def warm() -> None:
        sessions.at_end(place.delete)
        place.fill(rows, size, subjects=selection is not None)
        session = sessions.start(place.jars)
        if not streaming:
            session.ask(replace(request("count", 0), rows=selected(rows) if chosen.where else rows))
        for _ in range(WARM_RUNS):
            session.ask(request(work, 0))

    def once(seconds: float) -> Sample:
        return sample_of({**sessions.session.ask(request(work, seconds)), **sessions.session.started})

    def measure(seconds: float) -> Sample:
        return sessions.measured(lambda: once(seconds))

    return Contender(name, measure, _settings(name, rows, streaming), warm, sessions.close)


def write(stage: Stage, *, name: str, size: int, streaming: bool = False) -> Contender:
    """Writes the rows of Parquet files, the same for all contenders, to a new place in each measurement."""
    need_spark()
    files, first = ParquetPlace(stage), PLACES[name](stage)
    rows, sessions = stage.effort.spark_rows(size), _Sessions(stage)

    def once() -> Sample:
        place = PLACES[name](stage)
        place.create()
        try:
            source = files.stream_source(rows) if streaming else files.source
            work = "stream" if streaming else "batch"
            request = Request(
                work, source, rows, sink=place.sink, folder=str(stage.folder), brokers=place.brokers
            )
            found = sessions.session.ask(request)
            stored = place.stored()
        finally:
            place.delete()
        if stored != rows:
            raise Failed(f"{stored} rows are stored, {rows} were written")
        return sample_of({**found, **sessions.session.started})

    def warm() -> None:
        sessions.at_end(files.delete)
        files.fill(rows, size, subjects=False)
        sessions.start(first.jars)
        for _ in range(WARM_RUNS):
            once()

    return Contender(
        name, lambda _: sessions.measured(once), _settings(name, rows, streaming), warm, sessions.close
    )


def latency(stage: Stage, *, name: str, tuned: bool = True) -> Contender:
    """One-record micro-batches of a query that follows a stream. `tuned` is for Kafka's connector."""
    need_spark()
    place = KafkaPlace(stage, tuned=tuned) if name == KAFKA else PLACES[name](stage)
    sessions = _Sessions(stage)

    def warm() -> None:
        sessions.at_end(place.delete)
        place.create()
        sessions.start(place.jars)
        measure(0)

    def measure(seconds: float) -> Sample:
        request = Request(
            "latency", place.source, seconds=seconds, folder=str(stage.folder), brokers=place.brokers,
            send={"client": place.kind, "address": place.target, "stream": place.name},
        )  # fmt: skip
        return sample_of({**sessions.session.ask(request), **sessions.session.started})

    settings: dict[str, object] = {"client": f"{SPARK}, {CLIENTS[name]}", "partitions": SPARK_PARTITIONS}
    if name == KAFKA:
        settings |= {"source": dict(TUNED_SOURCE) if tuned else "the connector's defaults"}
    shown = name if tuned else f"{name} (defaults)"
    return Contender(shown, measure, settings, warm, sessions.close)


def _settings(name: str, rows: int, streaming: bool) -> dict[str, object]:
    found = {
        "client": f"{SPARK}, {CLIENTS[name]}",
        "rows": rows,
        "partitions": SPARK_PARTITIONS,
        "warm_runs": WARM_RUNS,
        **OPTIONS.get(name, {}),
    }
    return {**found, "micro_batches": TRIGGERS} if streaming else found


def need_spark() -> None:
    """Raises `Missing` where Spark cannot run."""
    if find_spec("pyspark") is None:
        raise Missing("the Python package pyspark is not installed")
    from tidelog_spark.java import JavaMissing, ensure_java

    # It sets the Java of this process in the environment; other Java programs are started here, too.
    before = dict(os.environ)
    try:
        ensure_java()
    except JavaMissing as lack:
        raise Missing(str(lack)) from None
    finally:
        os.environ.clear()
        os.environ.update(before)

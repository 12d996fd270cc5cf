"""The ingest job in a session: streams become a lake or a table that other programs read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from spark.samples import offsets, send, timed
from support.trio import Trio
from tidelog import blocking
from tidelog.errors import OffsetOutOfRange
from tidelog_spark.jobs.config import Job
from tidelog_spark.jobs.dead_letters import DeadLettersLost, DeadLetterStream
from tidelog_spark.jobs.ingest import Attempt
from tidelog_spark.jobs.loading import from_document
from tidelog_spark.jobs.moments import passes, tidelog_class
from tidelog_spark.jobs.reporting import Report
from tidelog_spark.jobs.stopping import Stop
from tidelog_spark.lake.journal import LakeConflict
from tidelog_spark.lake.parquet import ParquetLake

pytestmark = pytest.mark.timeout(300)

Run = Callable[..., Report]


@pytest.fixture
def run(spark: SparkSession, brokers: Trio, tmp_path: Path) -> Run:
    """Runs a job to its end in the session; raises what a batch raised, or else Spark's error."""

    def ingest(
        name: str,
        sink: dict[str, Any],
        checkpoint: str = "checkpoint",
        more: Mapping[str, Any] | None = None,
        **options: str,
    ) -> Report:
        job = from_document(
            Job,
            {
                "servers": brokers.address,
                "source": {"streams": [name], "options": options},
                "sink": sink,
                "checkpoint": str(tmp_path / checkpoint),
                **(more or {}),
            },
        )
        report = Report(tmp_path / "report.json")
        attempt = Attempt(spark, job, report, Stop())
        try:
            attempt.run()
        except Exception as error:
            raise attempt.failure or error from None
        return report

    return ingest


def test_each_record_is_in_the_folder_of_its_hour_for_spark_and_for_any_reader(
    log: blocking.Client, stream: Callable[..., str], run: Run, spark: SparkSession, tmp_path: Path
) -> None:
    name = stream()
    with log.producer(name) as producer:
        producer.send_batch(timed(4, minutes_apart=40))
    lake = tmp_path / "lake"
    sink = {"parquet": {"path": str(lake), "partitionBy": {"time": "hour"}}}
    first = run(name, sink, maxOffsetsPerTrigger="3")
    send(log, name, 2)
    second = run(name, sink)
    assert [(first.rows, first.batches), (second.rows, second.batches)] == [(4, 2), (2, 1)]
    assert [first.lag, second.lag] == [0, 0]
    assert json.loads((tmp_path / "report.json").read_text())["offsets"] == {name: {"0": 6}}
    folders = {str(path.parent.relative_to(lake)) for path in lake.glob("date=2026-03-*/*/*.parquet")}
    assert folders == {"date=2026-03-01/hour=22", "date=2026-03-01/hour=23", "date=2026-03-02/hour=00"}
    assert offsets(spark.read.parquet(str(lake)), name) == list(range(6))
    anybody = ds.dataset(str(lake), partitioning="hive").to_table()
    assert sorted(anybody["offset"].to_pylist()) == list(range(6))
    assert anybody.schema.field("value").type == "binary"


def test_a_table_has_each_record_once_and_needs_no_server(
    log: blocking.Client, stream: Callable[..., str], run: Run, tmp_path: Path
) -> None:
    name = stream(2)
    for partition in range(2):
        send(log, name, 200, partition=partition)
    warehouse = tmp_path / "warehouse"
    sink = {
        "iceberg": {
            "table": "shop.orders",
            "catalog": {"warehouse": str(warehouse)},
            "partitionBy": {"time": "day", "columns": ["partition"]},
            "compactSmallFiles": True,
            "expireSnapshotsOlderThan": "7d",
        }
    }
    report = run(name, sink, maxOffsetsPerTrigger="50")
    assert (report.rows, report.batches) == (400, 8)
    assert run(name, sink).rows == 0
    catalog = load_catalog("tidelog", type="sql", uri=f"sqlite:///{warehouse}/catalog.db")
    table = catalog.load_table("shop.orders")
    rows = table.scan().to_arrow().sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert rows["offset"].to_pylist() == list(range(200)) * 2
    assert rows["value"].to_pylist() == [f"value-{number}".encode() for number in range(200)] * 2
    assert table.scan(row_filter="partition = 1").to_arrow().num_rows == 200
    summaries = [snapshot.summary for snapshot in table.snapshots() if snapshot.summary]
    batches = [summary["tidelog.batch-id"] for summary in summaries if not summary.get("tidelog.merge-id")]
    assert batches == [str(number) for number in range(8)]
    assert len(list(table.scan().plan_files())) == 2, "the small files of each partition are merged"


@pytest.mark.long
def test_a_new_checkpoint_on_a_used_folder_is_refused_before_anything_is_written(
    log: blocking.Client, stream: Callable[..., str], run: Run, tmp_path: Path
) -> None:
    name = stream()
    send(log, name, 10)
    sink = {"parquet": {"path": str(tmp_path / "lake")}}
    run(name, sink)
    with pytest.raises(LakeConflict, match="another checkpoint"):
        run(name, sink, checkpoint="new")
    assert ds.dataset(str(tmp_path / "lake")).count_rows() == 10


def test_lost_records_end_the_job_with_an_error_that_is_not_tried_again(
    log: blocking.Client, stream: Callable[..., str], run: Run, tmp_path: Path
) -> None:
    name = stream()
    send(log, name, 10)
    sink = {"parquet": {"path": str(tmp_path / "lake")}}
    run(name, sink)
    send(log, name, 90)
    log.delete_records(name, 0, 60)
    with pytest.raises(Exception, match="begins at offset 60") as failure:
        run(name, sink)
    assert tidelog_class(failure.value) is OffsetOutOfRange


VALUE = {"format": "json", "schema": "id bigint, timestamp string", "badRecords": "deadLetter"}


def send_orders(log: blocking.Client, stream: str) -> None:
    """Two good records, a tombstone between them, and two bad records at the offsets 2 and 4."""
    with log.producer(stream) as producer:
        for number, value in enumerate([b'{"id": 0}', None, b"{", b'{"id": 3, "timestamp": "t"}', b"[]"]):
            producer.send(value, key=b"%d" % number)


@pytest.mark.long
def test_a_record_that_cannot_be_decoded_ends_the_job_or_becomes_a_dead_letter(
    log: blocking.Client, stream: Callable[..., str], run: Run, tmp_path: Path
) -> None:
    name = stream()
    send_orders(log, name)
    lake = {"parquet": {"path": str(tmp_path / "lake"), "partitionBy": {"time": "day"}}}
    with pytest.raises(Exception, match=f"{name}/0 at offset 2 cannot be decoded") as failure:
        run(name, lake, more={"value": VALUE | {"badRecords": "fail"}})
    assert not passes(failure.value)
    assert tidelog_class(failure.value) is None
    report = run(name, lake, more={"value": VALUE, "deadLetter": {"path": str(tmp_path / "dead")}})
    assert (report.rows, report.counts["deadLetters"]) == (3, 2)
    found = ds.dataset(str(tmp_path / "lake"), partitioning="hive").to_table().sort_by("offset")
    assert found.select(["id", "timestamp", "key", "offset"]).to_pylist() == [
        {"id": 0, "timestamp": None, "key": b"0", "offset": 0},
        {"id": None, "timestamp": None, "key": b"1", "offset": 1},
        {"id": 3, "timestamp": "t", "key": b"3", "offset": 3},
    ]
    assert {"value", "_bad_record"}.isdisjoint(found.column_names)
    assert "record_timestamp" in found.column_names
    dead = ds.dataset(str(tmp_path / "dead"), partitioning="hive").to_table().sort_by("offset").to_pylist()
    assert [(row["stream"], row["offset"], row["key"], row["value"]) for row in dead] == [
        (name, 2, b"2", b"{"),
        (name, 4, b"4", b"[]"),
    ]
    assert all(row["reason"] for row in dead)


def test_bad_records_go_to_a_stream_once_although_a_batch_runs_again(
    log: blocking.Client,
    stream: Callable[..., str],
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, dead = stream(), stream(2)
    send_orders(log, name)
    lake = {"parquet": {"path": str(tmp_path / "lake")}}
    more = {"value": VALUE, "deadLetter": {"stream": dead}}

    def crash(*_: object) -> None:
        raise ConnectionResetError("before the batch is decided")

    with monkeypatch.context() as broken:
        broken.setattr(ParquetLake, "decide", crash)
        with pytest.raises(ConnectionResetError):
            run(name, lake, more=more)
    assert len(list(log.reader(dead, follow=False))) == 2
    report = run(name, lake, more=more)
    assert (report.rows, report.counts["deadLetters"]) == (3, 2)
    found = {record.key: record for record in log.reader(dead, follow=False)}
    assert len(list(log.reader(dead, follow=False))) == 2
    assert {key: record.value for key, record in found.items()} == {b"2": b"{", b"4": b"[]"}
    headers = dict(found[b"4"].headers)
    assert headers["dead-letter-stream"] == name.encode()
    assert headers["dead-letter-partition"] == b"0"
    assert headers["dead-letter-offset"] == b"4"
    assert headers["dead-letter-reason"]
    written = {record.offset: record.timestamp_us for record in log.reader(name, follow=False)}
    assert found[b"4"].timestamp_us == written[4]


@pytest.mark.long
def test_bad_records_that_are_lost_before_they_are_sent_do_not_count_as_dead_letters(
    log: blocking.Client,
    stream: Callable[..., str],
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, dead = stream(), stream()
    send_orders(log, name)
    lake = {"parquet": {"path": str(tmp_path / "lake")}}
    more = {"value": VALUE, "deadLetter": {"stream": dead}, "failOnDataLoss": False}
    original = DeadLetterStream.send

    def send_after_retention(letters: DeadLetterStream, *arguments: Any) -> None:
        log.delete_records(name, 0, 3)
        original(letters, *arguments)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(DeadLetterStream, "send", send_after_retention)
        with pytest.raises(DeadLettersLost, match=f"2 bad records, and 1 .* stream {dead}") as failure:
            run(name, lake, more=more)
    assert passes(failure.value)
    assert not list((tmp_path / "lake").rglob("*.parquet"))
    report = run(name, lake, more=more)
    assert (report.rows, report.counts["deadLetters"]) == (1, 1)
    assert [record.key for record in log.reader(dead, follow=False)] == [b"4"]

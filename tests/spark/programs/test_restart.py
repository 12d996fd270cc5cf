"""The job is killed with all its processes; run again, it continues without a gap or a repeat."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyiceberg.catalog import load_catalog

from spark.programs.running import kill_as_soon_as, running_job
from spark.samples import send
from support.trio import Trio
from tidelog import blocking

JOB = "ingest.py"
RECORDS = 6_000
LIMIT = 2_000
WAIT_SECONDS_MAX = 240.0

SINKS = {
    "parquet": "sink.parquet={path: LAKE, partitionBy: {time: hour, columns: [partition]}}",
    "iceberg": "sink.iceberg={table: shop.orders, catalog: {warehouse: LAKE}, partitionBy: {time: day}}",
}


def _settings(kind: str, stream: str, brokers: Trio, folder: Path, *more: str) -> list[str]:
    return [
        f"servers={brokers.address}", f"source.streams=[{stream}]", f"checkpoint={folder}/checkpoint",
        f'source.options.maxOffsetsPerTrigger="{LIMIT}"', SINKS[kind].replace("LAKE", f"{folder}/lake"),
        *more,
    ]  # fmt: skip


def _rows(kind: str, folder: Path) -> pa.Table:
    """What a reader finds that knows nothing of the job."""
    columns = ["partition", "offset", "value"]
    if kind == "parquet":
        return ds.dataset(str(folder / "lake"), partitioning="hive").to_table(columns)
    catalog = load_catalog("tidelog", type="sql", uri=f"sqlite:///{folder}/lake/catalog.db")
    return catalog.load_table("shop.orders").scan(selected_fields=tuple(columns)).to_arrow()


POINTS: dict[str, Callable[[Path], bool]] = {
    "planned by Spark": lambda folder: (folder / "checkpoint/offsets/1").exists(),
    "staged": lambda folder: (
        any(folder.glob("lake/_tidelog/*/staged/1-*/*")) or any(folder.glob("lake/shop/orders/data/*/1/*/*"))
    ),
    "decided": lambda folder: (
        any(folder.glob("lake/_tidelog/*/plan-1.json"))
        or len(list(folder.glob("lake/shop/orders/metadata/*.metadata.json"))) > 2
    ),
    "reported": lambda folder: _batches(folder) > 1,
}


def _batches(folder: Path) -> int:
    file = folder / "report.json"
    return int(json.loads(file.read_text())["batches"]) if file.exists() else 0


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", SINKS)
def test_a_job_that_is_killed_continues_without_a_gap_or_a_repeat(
    kind: str,
    point: str,
    log: blocking.Client,
    stream: Callable[..., str],
    brokers: Trio,
    tmp_path: Path,
) -> None:
    name = stream(2)
    for partition in range(2):
        send(log, name, RECORDS // 2, partition=partition, batch_records=500)
    settings = _settings(kind, name, brokers, tmp_path)
    with running_job(JOB, settings, tmp_path) as running:
        kill_as_soon_as(lambda: POINTS[point](tmp_path), running, tmp_path, WAIT_SECONDS_MAX)
    with running_job(JOB, settings, tmp_path) as running:
        assert running.wait(WAIT_SECONDS_MAX) == 0, (tmp_path / "job.log").read_text()
    rows = _rows(kind, tmp_path).to_pylist()
    found = sorted((row["partition"], row["offset"]) for row in rows)
    assert found == [(partition, offset) for partition in range(2) for offset in range(RECORDS // 2)]
    assert all(row["value"] == f"value-{row['offset']}".encode() for row in rows)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_job_that_is_told_to_end_says_so_and_continues_later(
    number: signal.Signals,
    code: int,
    log: blocking.Client,
    stream: Callable[..., str],
    brokers: Trio,
    tmp_path: Path,
) -> None:
    name = stream(2)
    send(log, name, RECORDS, batch_records=500)
    settings = _settings("parquet", name, brokers, tmp_path)
    with running_job(JOB, [*settings, "trigger.interval=1s"], tmp_path) as running:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while _batches(tmp_path) < 1:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        running.send_signal(number)
        assert running.wait(WAIT_SECONDS_MAX) == code, (tmp_path / "job.log").read_text()
    with running_job(JOB, settings, tmp_path) as running:
        assert running.wait(WAIT_SECONDS_MAX) == 0, (tmp_path / "job.log").read_text()
    assert sorted(_rows("parquet", tmp_path)["offset"].to_pylist()) == list(range(RECORDS))

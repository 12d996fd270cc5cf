"""Upkeep that fails is told and tried again later; the batches go on."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lake.samples import BY, QUERY, SCHEMA, expected, runner
from lake.test_batches import visible
from tidelog_spark.lake import compaction, table_compaction
from tidelog_spark.lake.batches import Batches, Target
from tidelog_spark.lake.iceberg import IcebergTable, TableName, Upkeep, catalog_properties
from tidelog_spark.lake.journal import Journal
from tidelog_spark.lake.parquet import ParquetLake
from tidelog_spark.lake.stores import LocalFolder, ObjectStore

SMALL_FILES = 2


@pytest.fixture(autouse=True)
def few_small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SMALL_FILES_MIN", SMALL_FILES)
    monkeypatch.setattr(table_compaction, "SMALL_FILES_MIN", SMALL_FILES)


def driver(target: Target) -> Batches:
    started = Batches(target, without_bad=True)
    started.open(SCHEMA)
    return started


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def table(folder: Path, upkeep: Upkeep, later: timedelta) -> IcebergTable:
    properties = catalog_properties("sql", None, str(folder), {})
    name = TableName("shop.orders", properties)
    return IcebergTable(name, ObjectStore(), BY, QUERY, upkeep, now=lambda: datetime.now(UTC) + later)


def lake(folder: Path) -> ParquetLake:
    return ParquetLake(LocalFolder(str(folder), folder), BY, QUERY, compact=True)


def test_a_file_that_cannot_be_merged_stops_neither_batches_nor_other_folders(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    started = driver(lake(tmp_path))
    started.write(0, runner(0))
    folders = sorted({path.parent for path in tmp_path.rglob("*.parquet")})
    broken = folders[0] / "foreign.parquet"
    broken.write_bytes(b"no Parquet")
    for batch in (1, 2):
        assert started.write(batch, runner(batch)).counts["rows"] == 9
    said = warnings(caplog)
    assert len(said) == 2
    assert all("The merge of small files in date=2026-03-01/hour=22" in sentence for sentence in said)
    assert all("Parquet magic bytes not found" in sentence for sentence in said)
    assert [len(list(folder.glob("*.parquet"))) == 1 for folder in folders] == [False, *[True] * 3]
    broken.unlink()
    started.write(3, runner(3))
    assert [len(list(folder.glob("*.parquet"))) for folder in folders] == [1] * 4
    assert visible(tmp_path) == expected(4, bad=False)


def test_a_table_whose_old_file_is_lost_still_takes_batches_and_expires(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    upkeep = Upkeep(compact=True, expire_older_than=timedelta(days=7))
    driver(table(tmp_path, Upkeep(), timedelta())).write(0, runner(0))
    lost = next(tmp_path.rglob("data/**/*.parquet"))
    content = lost.read_bytes()
    lost.unlink()
    target = table(tmp_path, upkeep, timedelta(days=14))
    started = driver(target)
    for batch in (1, 2):
        assert started.write(batch, runner(batch)).counts["rows"] == 9
    said = warnings(caplog)
    assert len(said) == 2
    assert all(
        "The merge of small files of the table shop.orders" in sentence and lost.name in sentence
        for sentence in said
    )
    assert len(target.table.refresh().snapshots()) == 1, "the expiry does not wait for the merge"
    lost.write_bytes(content)
    started.write(3, runner(3))
    assert len(warnings(caplog)) == 2
    assert len(list(target.table.refresh().scan().plan_files())) == 4
    found = target.table.scan().to_arrow()["offset"].to_pylist()
    assert sorted(found) == expected(4, bad=False)


def test_a_note_that_cannot_be_read_stops_only_the_expiry(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = table(tmp_path, Upkeep(expire_older_than=timedelta(days=7)), timedelta(days=14))
    started = driver(target)
    assert target.folder.create(f"data/{QUERY}/expiring/1.json", b"{")
    started.write(0, runner(0))
    (sentence,) = warnings(caplog)
    assert sentence.startswith("The expiry of old snapshots of the table shop.orders failed: ")


def test_an_error_in_completing_a_batch_still_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no space left")

    started = driver(lake(tmp_path))
    monkeypatch.setattr(Journal, "complete", refuse)
    with pytest.raises(OSError, match="no space left"):
        started.write(0, runner(0))

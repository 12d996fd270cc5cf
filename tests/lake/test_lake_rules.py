"""What a Parquet lake refuses, so that no row of it is lost, hidden or in the way of later batches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake.samples import BY, QUERY, SCHEMA, expected, rows_of, runner
from lake.test_batches import visible
from tidelog.errors import InvalidRequest
from tidelog_spark.lake import compaction
from tidelog_spark.lake.batches import Batches, Order, Run, stage
from tidelog_spark.lake.folders import Partitioning, Time
from tidelog_spark.lake.parquet import ParquetLake
from tidelog_spark.lake.stores import BucketFolder, Folder, LocalFolder, ObjectStore

BY_DAY = Partitioning(Time.DAY, ("region",))
NOTE = f"_tidelog/{QUERY}/partitioning"


def lake(folder: Path, by: Partitioning, *, compact: bool = False) -> ParquetLake:
    return ParquetLake(LocalFolder(str(folder), folder), by, QUERY, compact=compact)


def driver(folder: Path, by: Partitioning, *, compact: bool = False) -> Batches:
    """A driver that has just started."""
    started = Batches(lake(folder, by, compact=compact), without_bad=True)
    started.open(SCHEMA)
    return started


@pytest.mark.parametrize(
    "by",
    [BY_DAY, Partitioning(Time.HOUR), Partitioning(Time.NONE, ("region",)), Partitioning()],
    ids=["day", "without-region", "without-time", "none"],
)
def test_a_lake_with_files_refuses_another_partitioning(by: Partitioning, tmp_path: Path) -> None:
    driver(tmp_path, BY).write(0, runner(0))
    with pytest.raises(InvalidRequest, match=r"partitioned by hour, region, and partitionBy .* new folder"):
        driver(tmp_path, by)
    driver(tmp_path, BY).write(1, runner(1))
    assert visible(tmp_path) == expected(2, bad=False)


def test_a_lake_without_a_batch_takes_another_partitioning(tmp_path: Path) -> None:
    driver(tmp_path, BY)
    driver(tmp_path, BY_DAY).write(0, runner(0))
    with pytest.raises(InvalidRequest, match="partitioned by day, region"):
        driver(tmp_path, BY)


def test_a_lake_of_an_earlier_version_gets_the_note_at_its_next_run(tmp_path: Path) -> None:
    driver(tmp_path, BY).write(0, runner(0))
    (tmp_path / NOTE).unlink()
    driver(tmp_path, BY).write(1, runner(1))
    assert visible(tmp_path) == expected(2, bad=False)
    with pytest.raises(InvalidRequest, match="partitioned by hour, region"):
        driver(tmp_path, BY_DAY)


def test_a_lake_whose_partitioning_an_earlier_version_changed_loses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "SMALL_FILES_MIN", 2)
    by_region_and_hour = Partitioning(Time.NONE, ("region", "offset"))
    driver(tmp_path, by_region_and_hour).write(0, runner(0))
    (tmp_path / NOTE).unlink()
    by_region = Partitioning(Time.NONE, ("region",))
    started = driver(tmp_path, by_region, compact=True)
    for batch in range(1, 6):
        started.write(batch, runner(batch))
    files = [path for path in tmp_path.rglob("*.parquet") if "offset=" in str(path)]
    assert sum(pq.read_metadata(path).num_rows for path in files) == len(expected(1, bad=False))


@pytest.mark.parametrize("kind", ["folder", "file", "link", "folder of this name"])
def test_a_folder_with_anything_but_parquet_files_is_not_merged(kind: str, tmp_path: Path) -> None:
    home = tmp_path / "date=1"
    home.mkdir()
    for number in range(compaction.SMALL_FILES_MIN):
        pq.write_table(pa.table({"n": [number]}), home / f"{number}.parquet")
    stranger = home / {"folder": "hour=07", "file": "README"}.get(kind, "other.parquet")
    if kind == "file":
        stranger.write_text("by people")
    elif kind == "link":
        pq.write_table(pa.table({"n": [99]}), tmp_path / "elsewhere")
        os.symlink(tmp_path / "elsewhere", stranger)
    else:
        stranger.mkdir()
    before = sorted(home.iterdir())
    assert compaction.compact(tmp_path, ["date=1"]) == 0
    assert sorted(home.iterdir()) == before


def runner_of(region: str) -> Run:
    """The rows of the first batch, all of one region."""

    def run(order: Order) -> Iterable[Mapping[str, Any]]:
        rows = rows_of(0)
        rows = rows.set_column(2, SCHEMA.field("region"), pa.array([region] * rows.num_rows))
        return [row for described in stage([rows], order) for row in described.to_pylist()]

    return run


LONG = "ä" * 125
"""With the name of the column 257 bytes."""


def test_a_value_that_is_too_long_for_a_folder_is_refused_and_decides_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"name of 257 bytes.* takes 255") as refused:
        driver(tmp_path, BY).write(0, runner_of(LONG))
    assert f"region={LONG[:40]}…" in str(refused.value)
    assert LONG[:41] not in str(refused.value)
    assert lake(tmp_path, BY).decided(0) is None
    driver(tmp_path, Partitioning(Time.HOUR)).write(0, runner_of(LONG))
    assert visible(tmp_path) == expected(1, bad=False)


def test_a_value_may_have_as_many_bytes_as_a_folder_takes(tmp_path: Path) -> None:
    driver(tmp_path, BY).write(0, runner_of(LONG[1:]))
    assert visible(tmp_path) == expected(1, bad=False)


@pytest.mark.parametrize(
    ("folder", "path", "reason"),
    [
        (LocalFolder("", Path("/lake")), f"a/{'b' * 255}/c", None),
        (LocalFolder("", Path("/lake")), f"a/{'b' * 256}/c", "a name of 256 bytes"),
        (LocalFolder("", Path("/lake")), "/".join(["b" * 200] * 21), "a path of 4226 bytes"),
        (BucketFolder("", "bucket/lake", ObjectStore()), "b" * 1019, None),
        (BucketFolder("", "bucket/lake", ObjectStore()), "b" * 1020, "a key of 1025 bytes"),
        (BucketFolder("", "bucket", ObjectStore()), "b" * 1024, None),
        (BucketFolder("", "bucket", ObjectStore()), "b" * 1025, "a key of 1025 bytes"),
    ],
)
def test_each_store_knows_how_long_its_paths_may_be(folder: Folder, path: str, reason: str | None) -> None:
    found = folder.too_long(path)
    assert found is None if reason is None else found is not None and found.startswith(reason)


@pytest.mark.parametrize(
    ("time", "field", "folder"),
    [(Time.DAY, "date", "date"), (Time.HOUR, "Date", "date"), (Time.HOUR, "HOUR", "hour")],
)
@pytest.mark.parametrize("partitioned", [False, True])
def test_a_column_with_the_name_of_a_folder_of_the_time_is_refused(
    time: Time, field: str, folder: str, partitioned: bool, tmp_path: Path
) -> None:
    by = Partitioning(time, (field,) if partitioned else ())
    with pytest.raises(InvalidRequest, match=f"the column {field} .* the folders {folder}=.*Leave the field"):
        lake(tmp_path, by).open(SCHEMA.append(pa.field(field, pa.string())))


@pytest.mark.parametrize("by", [Partitioning(Time.NONE, ("date",)), Partitioning()])
def test_without_folders_of_that_name_a_column_may_be_called_date(by: Partitioning, tmp_path: Path) -> None:
    shape = lake(tmp_path, by).open(SCHEMA.append(pa.field("date", pa.string())))
    assert ("date" in shape.schema.names) == (not by)


def test_a_lake_by_day_may_have_a_column_hour(tmp_path: Path) -> None:
    shape = lake(tmp_path, BY_DAY).open(SCHEMA.append(pa.field("hour", pa.int32())))
    assert "hour" in shape.schema.names


def test_a_run_that_ends_while_it_notes_new_columns_leaves_the_earlier_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    @contextmanager
    def write_half(folder: LocalFolder, path: str) -> Iterator[Any]:
        with (folder.root / path).open("wb") as file:
            yield file
            file.truncate(file.tell() // 2)
        raise Crash

    driver(tmp_path, BY).write(0, runner(0))
    more = SCHEMA.append(pa.field("more", pa.string()))
    with monkeypatch.context() as broken:
        broken.setattr(LocalFolder, "write", write_half)
        with pytest.raises(Crash):
            lake(tmp_path, BY).open(more)
    with pytest.raises(InvalidRequest, match="have the column offset as int64"):
        lake(tmp_path, BY).open(SCHEMA.set(0, pa.field("offset", pa.string())))
    assert "more" in lake(tmp_path, BY).open(more).schema.names

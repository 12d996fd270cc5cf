"""What a target refuses, how folders are called, how files are cut, and how small files are merged."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tidelog.errors import InvalidRequest
from tidelog_spark.lake import compaction, writing
from tidelog_spark.lake.folders import Partitioning, Time, folder_of, split
from tidelog_spark.lake.iceberg import IcebergTable, TableName, catalog_properties
from tidelog_spark.lake.parquet import ParquetLake
from tidelog_spark.lake.stores import LocalFolder, ObjectStore, split_url
from tidelog_spark.lake.writing import RowWriter, Shape

ROWS = pa.record_batch(
    {
        "timestamp": pa.array(
            [datetime(1969, 12, 31, 23, 59, tzinfo=UTC), datetime(2026, 3, 1, 7, 0, tzinfo=UTC)] * 2,
            pa.timestamp("us", "UTC"),
        ),
        "region": ["eu", "eu", None, 'a/b "c"'],
        "n": pa.array([0, 1, 2, 3], pa.int32()),
    }
)


def test_folders_have_hives_names_and_days_are_those_of_utc() -> None:
    by = Partitioning(Time.HOUR, ("region",))
    found = {folder_of(key, by): rows["n"].to_pylist() for key, rows in split(ROWS, by)}
    assert found == {
        "date=1969-12-31/hour=23/region=eu": [0],
        "date=2026-03-01/hour=07/region=eu": [1],
        "date=1969-12-31/hour=23/region=__HIVE_DEFAULT_PARTITION__": [2],
        "date=2026-03-01/hour=07/region=a%2Fb %22c%22": [3],
    }


def test_rows_of_one_folder_keep_their_order() -> None:
    numbers = pa.record_batch({"k": [n % 3 for n in range(300)], "n": list(range(300))})
    for key, rows in split(numbers, Partitioning(Time.NONE, ("k",))):
        assert rows["n"].to_pylist() == [n for n in range(300) if n % 3 == key[0]]


@pytest.mark.parametrize(
    ("by", "sentence"),
    [
        (Partitioning(Time.NONE, ("nothing",)), "no column 'nothing'"),
        (Partitioning(Time.NONE, ("timestamp",)), "the column timestamp is timestamp"),
    ],
)
def test_columns_that_cannot_name_folders_are_refused(by: Partitioning, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        by.check(ROWS.schema)


def test_rows_without_a_timestamp_cannot_have_folders_by_time() -> None:
    with pytest.raises(InvalidRequest, match=r"partitionBy\.time must be none"):
        Partitioning(Time.DAY).check(pa.schema({"n": pa.int64()}))


@pytest.mark.parametrize("url", ["", "http://x/y", "s3://", "hdfs://name/lake"])
def test_a_path_of_an_unknown_kind_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        split_url(url)


def test_a_long_task_fills_row_groups_and_files_up_to_their_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "BUFFER_BYTES_MAX", 2_000)
    monkeypatch.setattr(writing, "FILE_BYTES_MAX", 3_000)
    monkeypatch.setattr(writing, "FILES_OPEN_MAX", 2)
    batches = [
        pa.record_batch({"k": [n % 3 for n in range(100)], "n": list(range(100 * b, 100 * b + 100))})
        for b in range(30)
    ]
    shape = Shape(batches[0].schema, Partitioning(Time.NONE, ("k",)), ".parquet")
    with RowWriter(LocalFolder("", tmp_path), "out", shape) as writer:
        files = [file for batch in batches for file in writer.add(batch)] + list(writer.finish())
    assert len(files) > 6
    assert sum(file.rows for file in files) == 3_000
    assert [(tmp_path / file.path).stat().st_size for file in files] == [file.size for file in files]
    rows = ds.dataset([str(tmp_path / file.path) for file in files]).to_table()
    assert sorted(rows["n"].to_pylist()) == list(range(3_000))


def _lake(folder: Path) -> ParquetLake:
    return ParquetLake(LocalFolder(str(folder), folder), Partitioning(), "q")


def _table(folder: Path) -> IcebergTable:
    name = TableName("a.b", catalog_properties("sql", None, str(folder), {}))
    return IcebergTable(name, ObjectStore(), Partitioning(), "q")


@pytest.mark.parametrize("target", [_lake, _table])
def test_columns_may_be_added_but_no_column_changes_its_type(
    target: Callable[[Path], ParquetLake | IcebergTable], tmp_path: Path
) -> None:
    target(tmp_path).open(pa.schema({"a": pa.int64()}))
    grown = target(tmp_path).open(pa.schema({"a": pa.int64(), "b": pa.string()}))
    assert grown.schema.names == ["a", "b"]
    with pytest.raises(InvalidRequest, match="a"):
        target(tmp_path).open(pa.schema({"a": pa.string(), "b": pa.string()}))


def test_a_table_with_another_partitioning_is_refused(tmp_path: Path) -> None:
    _table(tmp_path).open(ROWS.schema)
    name = TableName("a.b", catalog_properties("sql", None, str(tmp_path), {}))
    with pytest.raises(InvalidRequest, match=r"partitioned by nothing, .* day\(timestamp\)"):
        IcebergTable(name, ObjectStore(), Partitioning(Time.DAY), "q").open(ROWS.schema)


FILES = 9


def _small_files(lake: Path) -> None:
    (lake / "date=1").mkdir(parents=True)
    for number in range(FILES):
        columns = {"n": [number * 2, number * 2 + 1]} | ({"late": ["x", "y"]} if number > 3 else {})
        pq.write_table(pa.table(columns), lake / f"date=1/{number}.parquet")


def _numbers(folder: Path) -> list[int]:
    files = sorted(str(path) for path in folder.glob("*.parquet"))
    return sorted(ds.dataset(files).to_table(["n"])["n"].to_pylist())


def test_small_files_become_one_with_all_rows_and_all_columns(tmp_path: Path) -> None:
    _small_files(tmp_path)
    assert compaction.compact(tmp_path, ["date=1"]) == FILES
    (merged,) = (tmp_path / "date=1").iterdir()
    rows = pq.read_table(merged)
    assert rows["n"].to_pylist() == list(range(2 * FILES))
    assert rows["late"].null_count == 8
    assert not (tmp_path / compaction.WORK).exists()


def test_large_files_and_folders_with_few_small_files_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _small_files(tmp_path)
    monkeypatch.setattr(compaction, "SMALL_FILES_MIN", FILES + 1)
    assert compaction.compact(tmp_path, ["date=1"]) == 0
    monkeypatch.setattr(compaction, "SMALL_FILES_MIN", 2)
    monkeypatch.setattr(compaction, "SMALL_BYTES", (tmp_path / "date=1/4.parquet").stat().st_size)
    # The first four lack a column and are smaller.
    assert compaction.compact(tmp_path, ["date=1"]) == 4
    assert len(list((tmp_path / "date=1").iterdir())) == FILES - 4 + 1
    assert _numbers(tmp_path / "date=1") == list(range(2 * FILES))


@pytest.mark.parametrize("step", ["link", "_write_merged", "exchange", "after"])
def test_a_reader_finds_each_row_once_wherever_a_merge_ends(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _small_files(tmp_path)

    class Crash(BaseException):
        pass

    def crash(*_: object) -> None:
        raise Crash

    if step == "after":
        original = compaction.exchange

        def exchange_and_crash(one: Path, other: Path) -> None:
            original(one, other)
            raise Crash

        monkeypatch.setattr(compaction, "exchange", exchange_and_crash)
    elif step == "link":
        monkeypatch.setattr(compaction, "SMALL_BYTES", (tmp_path / "date=1/4.parquet").stat().st_size)
        monkeypatch.setattr(compaction, "SMALL_FILES_MIN", 2)
        monkeypatch.setattr("os.link", crash)
    else:
        monkeypatch.setattr(compaction, step, crash)
    with pytest.raises(Crash):
        compaction.compact(tmp_path, ["date=1"])
    assert _numbers(tmp_path / "date=1") == list(range(2 * FILES))
    monkeypatch.undo()
    compaction.check(tmp_path)
    assert not (tmp_path / compaction.WORK).exists()
    compaction.compact(tmp_path, ["date=1"])
    assert _numbers(tmp_path / "date=1") == list(range(2 * FILES))


def test_a_file_system_that_cannot_exchange_folders_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(compaction, "exchange", refuse)
    with pytest.raises(InvalidRequest, match="cannot exchange two folders"):
        compaction.check(tmp_path)

"""A batch counts once, wherever it is interrupted: every write of the driver is a crash point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from lake.samples import BATCH_ROWS, BY, QUERY, SCHEMA, expected, rows_of, runner
from tidelog_spark.lake import stores
from tidelog_spark.lake.batches import Batches, Order, Target, stage
from tidelog_spark.lake.folders import Partitioning, Time
from tidelog_spark.lake.iceberg import IcebergTable, TableName, catalog_properties
from tidelog_spark.lake.journal import LakeConflict
from tidelog_spark.lake.parquet import DeadLetters, ParquetLake
from tidelog_spark.lake.stores import LocalFolder, ObjectStore
from tidelog_spark.payload import BAD_RECORD


class _Crash(BaseException):
    """The process ends here. Not an `Exception`: nothing may catch it."""


@dataclass
class Kind:
    """A target to test, and how any reader sees it."""

    target: Callable[[Path], Target]
    read: Callable[[Path], list[int]]


def _lake(folder: Path) -> ParquetLake:
    return ParquetLake(LocalFolder(str(folder / "lake"), folder / "lake"), BY, QUERY, compact=True)


def visible(folder: Path) -> list[int]:
    """The offsets in the files that a reader finds who only lists names."""
    hidden = [path for path in folder.rglob("*.parquet") if "_tidelog" in str(path.relative_to(folder))]
    assert not hidden, "a reader of **/*.parquet would find these"
    files = [str(path) for path in folder.rglob("*.parquet")]
    return sorted(ds.dataset(files).to_table(["offset"])["offset"].to_pylist()) if files else []


def _table(folder: Path) -> IcebergTable:
    properties = catalog_properties("sql", None, str(folder / "warehouse"), {})
    return IcebergTable(TableName("shop.orders", properties), ObjectStore(), BY, QUERY)


def _scan(folder: Path) -> list[int]:
    table = _table(folder)
    table.open(SCHEMA.remove(3))
    return sorted(table.table.scan().to_arrow()["offset"].to_pylist())


KINDS = {"parquet": Kind(_lake, lambda folder: visible(folder / "lake")), "iceberg": Kind(_table, _scan)}


def batches_of(kind: Kind, folder: Path) -> Batches:
    """A driver that has just started."""
    dead = DeadLetters(LocalFolder("dead", folder / "dead"), Partitioning(Time.DAY), QUERY)
    started = Batches(kind.target(folder), dead)
    started.open(SCHEMA)
    return started


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def test_good_rows_and_dead_letters_are_each_written_once(kind: Kind, tmp_path: Path) -> None:
    driver = batches_of(kind, tmp_path)
    outcomes = [driver.write(batch, runner(batch)) for batch in range(3)]
    assert kind.read(tmp_path) == expected(3, bad=False)
    assert visible(tmp_path / "dead") == expected(3, bad=True)
    assert [outcome.counts["rows"] for outcome in outcomes] == [9, 9, 9]
    assert [outcome.counts["deadLetters"] for outcome in outcomes] == [3, 3, 3]


def test_bad_records_for_a_stream_are_counted_and_sent_before_the_batch_counts(tmp_path: Path) -> None:
    target = _lake(tmp_path)
    driver = Batches(target, without_bad=True)
    driver.open(SCHEMA)
    sent: list[tuple[int, bool]] = []
    outcome = driver.write(0, runner(0), lambda bad: sent.append((bad, target.decided(0) is None)))
    again = driver.write(0, runner(0), lambda bad: sent.append((bad, False)))
    assert sent == [(3, True)]
    assert (outcome.counts["rows"], outcome.counts["deadLetters"]) == (9, 3)
    assert again.counts == outcome.counts
    assert visible(tmp_path / "lake") == expected(1, bad=False)


def test_a_batch_that_runs_again_writes_nothing_and_counts_the_same(kind: Kind, tmp_path: Path) -> None:
    first = batches_of(kind, tmp_path).write(0, runner(0))

    def refuse(order: Order) -> Iterable[Mapping[str, Any]]:
        raise AssertionError("the tasks must not run again")

    second = batches_of(kind, tmp_path).write(0, refuse)
    assert (second.again, second.counts) == (True, first.counts)
    assert kind.read(tmp_path) == expected(1, bad=False)


def test_a_checkpoint_that_was_set_back_is_refused(kind: Kind, tmp_path: Path) -> None:
    driver = batches_of(kind, tmp_path)
    for batch in range(2):
        driver.write(batch, runner(batch))
    with pytest.raises(LakeConflict, match="batch 1 of this query"):
        batches_of(kind, tmp_path).write(0, runner(0))


CHANGES = ("write", "create", "move", "remove")


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Callable[[], bool]]:
    """Ends the process before its n-th change of a folder, and tells whether it came to that."""

    def arm(change: int) -> Callable[[], bool]:
        left = change

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def changed(self: LocalFolder, *arguments: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0:
                    raise _Crash
                return original(self, *arguments)

            return changed

        originals = {name: getattr(stores.LocalFolder, name) for name in CHANGES}
        for name, original in originals.items():
            monkeypatch.setattr(stores.LocalFolder, name, wrap(original))

        def disarm() -> bool:
            for name, original in originals.items():
                monkeypatch.setattr(stores.LocalFolder, name, original)
            return left <= 0

        return disarm

    return arm


@pytest.mark.parametrize(
    "kind",
    # A table takes seconds, because each of its commits loads the catalog.
    ["parquet", pytest.param("iceberg", marks=pytest.mark.long)],
    indirect=True,
)
def test_each_record_is_there_once_whichever_change_was_the_last(
    kind: Kind, tmp_path: Path, crash_at: Callable[[int], Callable[[], bool]]
) -> None:
    crashes = 0
    for change in range(1, 200):
        folder = tmp_path / str(change)
        batches_of(kind, folder).write(0, runner(0))
        driver = batches_of(kind, folder)
        disarm = crash_at(change)
        with suppress(_Crash):
            driver.write(1, runner(1))
        crashed = disarm()
        seen = kind.read(folder)
        assert len(seen) == len(set(seen)), f"twice after a crash at change {change}"
        assert set(expected(1, bad=False)) <= set(seen)
        batches_of(kind, folder).write(1, runner(1))
        assert kind.read(folder) == expected(2, bad=False), f"after a crash at change {change}"
        assert visible(folder / "dead") == expected(2, bad=True), f"after a crash at change {change}"
        crashes += crashed
        if not crashed:
            break
    assert crashes > 10, "the batch has fewer changes than its files"


def test_of_two_drivers_with_the_same_batch_only_one_counts(kind: Kind, tmp_path: Path) -> None:
    late = batches_of(kind, tmp_path)

    def overtaken(order: Order) -> Iterable[Mapping[str, Any]]:
        found = list(runner(0)(order))
        batches_of(kind, tmp_path).write(0, runner(0))
        return found

    late.write(0, overtaken)
    batches_of(kind, tmp_path).write(1, runner(1))
    assert kind.read(tmp_path) == expected(2, bad=False)
    assert visible(tmp_path / "dead") == expected(2, bad=True)


def test_a_driver_that_is_a_batch_behind_cannot_add_its_files(kind: Kind, tmp_path: Path) -> None:
    late = batches_of(kind, tmp_path)

    def overtaken(order: Order) -> Iterable[Mapping[str, Any]]:
        found = list(runner(0)(order))
        other = batches_of(kind, tmp_path)
        for batch in range(2):
            other.write(batch, runner(batch))
        return found

    with pytest.raises(LakeConflict):
        late.write(0, overtaken)
    assert kind.read(tmp_path) == expected(2, bad=False)


def test_another_query_may_commit_to_the_table_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    kind = KINDS["iceberg"]
    driver = batches_of(kind, tmp_path)
    driver.write(0, runner(0))
    properties = catalog_properties("sql", None, str(tmp_path / "warehouse"), {})
    other = Batches(IcebergTable(TableName("shop.orders", properties), ObjectStore(), BY, "other"))
    other.open(SCHEMA.remove(3))

    def without_errors(order: Order) -> Iterable[Mapping[str, Any]]:
        for described in stage([rows_of(5).drop_columns([BAD_RECORD])], order):
            yield from described.to_pylist()

    def meanwhile(order: Order) -> Iterable[Mapping[str, Any]]:
        found = list(runner(1)(order))
        other.write(0, without_errors)
        return found

    driver.write(1, meanwhile)
    alone = list(range(5 * BATCH_ROWS, 6 * BATCH_ROWS))
    assert kind.read(tmp_path) == [*expected(2, bad=False), *alone]


def test_a_folder_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    batches_of(KINDS["parquet"], tmp_path).write(0, runner(0))
    folder = LocalFolder("lake", tmp_path / "lake")
    with pytest.raises(LakeConflict, match=f"another checkpoint .query {QUERY}"):
        ParquetLake(folder, BY, "another").open(SCHEMA)


def test_a_folder_of_sparks_file_sink_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake/_spark_metadata").mkdir(parents=True)
    (tmp_path / "lake/_spark_metadata/0").write_text("v1")
    with pytest.raises(LakeConflict, match="Spark's file sink"):
        _lake(tmp_path).open(SCHEMA)

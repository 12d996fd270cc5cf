"""A table after its batches: small files are merged, old snapshots expire, and no row is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from lake.samples import BY, QUERY, SCHEMA, expected, rows_of, runner
from tidelog_spark.lake import stores, table_compaction, table_expiry
from tidelog_spark.lake.batches import Batches, Order, stage
from tidelog_spark.lake.compaction import SMALL_FILES_MIN
from tidelog_spark.lake.folders import Partitioning, Time
from tidelog_spark.lake.iceberg import IcebergTable, TableName, Upkeep, catalog_properties
from tidelog_spark.lake.journal import LakeConflict
from tidelog_spark.lake.stores import LocalFolder, ObjectStore
from tidelog_spark.lake.table_compaction import Merges
from tidelog_spark.lake.upkeep import keep_up

MERGING = Upkeep(compact=True)
WEEK = timedelta(days=7)
EXPIRING = Upkeep(compact=True, expire_older_than=WEEK)
BATCHES = 8
"""After so many batches each of the four partitions has enough small files."""


class _Crash(BaseException):
    """The process ends here. Not an `Exception`: nothing may catch it."""


def table_in(
    folder: Path,
    upkeep: Upkeep,
    *,
    query: str = QUERY,
    by: Partitioning = BY,
    later: timedelta = timedelta(),
) -> IcebergTable:
    properties = catalog_properties("sql", None, str(folder / "warehouse"), {})
    name = TableName("shop.orders", properties)
    return IcebergTable(name, ObjectStore(), by, query, upkeep, now=lambda: datetime.now(UTC) + later)


def driver(target: IcebergTable) -> Batches:
    """A driver that has just started."""
    started = Batches(target, without_bad=True)
    started.open(SCHEMA)
    return started


def opened(folder: Path) -> Table:
    target = table_in(folder, Upkeep())
    target.open(SCHEMA.remove(3))
    return target.table


def offsets(folder: Path) -> list[int]:
    """As any reader finds them."""
    return sorted(opened(folder).scan().to_arrow()["offset"].to_pylist())


def file_count(folder: Path) -> int:
    return len(list(opened(folder).scan().plan_files()))


def reached(table: Table) -> set[Path]:
    """All files that a snapshot of the table reaches."""
    found = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            found |= {
                entry.data_file.file_path
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            }
    return {Path(path.removeprefix("file://")) for path in found}


def stored(table: Table) -> set[Path]:
    """All files of the table, without its metadata."""
    home = Path(table.location().removeprefix("file://"))
    return {path for path in home.rglob("*") if path.is_file() and not path.name.endswith(".metadata.json")}


def write(target: IcebergTable, batches: Iterable[int]) -> Batches:
    started = driver(target)
    for batch in batches:
        started.write(batch, runner(batch))
    return started


def test_small_files_become_one_file_of_each_partition(tmp_path: Path) -> None:
    write(table_in(tmp_path, Upkeep()), range(BATCHES))
    before = file_count(tmp_path)
    write(table_in(tmp_path, MERGING), [BATCHES - 1])
    after = file_count(tmp_path)
    assert (before, after) == (5 * BATCHES, 4)
    assert offsets(tmp_path) == expected(BATCHES, bad=False)
    table = opened(tmp_path)
    for region in ("region is null", "region = 'a/b=c'"):
        for hours in ("timestamp < '2026-03-01T23:00:00+00:00'", "timestamp >= '2026-03-01T23:00:00+00:00'"):
            rows = table.scan(row_filter=f"{region} and {hours}").to_arrow()
            assert rows.num_rows > 0
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["total-records"] == str(len(expected(BATCHES, bad=False)))
    assert snapshot.summary["total-data-files"] == str(after)


@pytest.mark.parametrize(
    ("by", "files"), [(BY, 4), (Partitioning(Time.DAY, ("region",)), 2), (Partitioning(), 1)]
)
def test_a_run_looks_at_the_partitions_of_its_batches(
    by: Partitioning, files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    original = table_compaction._small_files

    def small_files(table: Table, keys: Any, by: Partitioning) -> Any:
        asked.append(keys)
        return original(table, keys, by)

    monkeypatch.setattr(table_compaction, "_small_files", small_files)
    write(table_in(tmp_path, MERGING, by=by), range(BATCHES))
    assert asked[0] is None
    assert [len(keys) for keys in asked[1:]] == [files] * (BATCHES - 1)
    table = table_in(tmp_path, Upkeep(), by=by)
    table.open(SCHEMA.remove(3))
    assert len(list(table.table.scan().plan_files())) == files
    assert sorted(table.table.scan().to_arrow()["offset"].to_pylist()) == expected(BATCHES, bad=False)


def test_batches_go_on_between_merges_and_none_counts_twice(tmp_path: Path) -> None:
    for batch in range(2 * BATCHES):
        target = table_in(tmp_path, MERGING)
        write(target, [batch, batch])
    assert offsets(tmp_path) == expected(2 * BATCHES, bad=False)
    assert file_count(tmp_path) < 3 * SMALL_FILES_MIN
    with pytest.raises(LakeConflict, match="was set back"):
        write(table_in(tmp_path, MERGING), [0])


def test_large_files_and_partitions_with_few_small_files_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(table_in(tmp_path, Upkeep()), range(BATCHES))
    before = file_count(tmp_path)
    monkeypatch.setattr(table_compaction, "SMALL_BYTES", 10)
    write(table_in(tmp_path, MERGING), [BATCHES - 1])
    assert file_count(tmp_path) == before
    monkeypatch.undo()
    monkeypatch.setattr(table_compaction, "SMALL_FILES_MIN", 100)
    write(table_in(tmp_path, MERGING), [BATCHES - 1])
    assert file_count(tmp_path) == before


def test_partitions_beyond_the_limit_of_a_commit_wait_for_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_compaction, "PARTITIONS_MAX", 1)
    write(table_in(tmp_path, Upkeep()), range(BATCHES))
    before = file_count(tmp_path)
    target = table_in(tmp_path, MERGING)
    write(target, [BATCHES - 1])
    between = file_count(tmp_path)
    keep_up(target.upkeep())
    assert before > between > file_count(tmp_path)
    assert offsets(tmp_path) == expected(BATCHES, bad=False)


@pytest.mark.parametrize("by", [Partitioning(), Partitioning(Time.DAY)])
def test_files_from_before_a_new_column_are_merged_with_later_ones(by: Partitioning, tmp_path: Path) -> None:
    first = Batches(table_in(tmp_path, Upkeep(), by=by), without_bad=True)
    first.open(SCHEMA)
    for batch in range(BATCHES - 1):
        first.write(batch, runner(batch))
    grown = SCHEMA.insert(0, pa.field("more", pa.string()))

    def run(order: Order) -> Iterable[Mapping[str, Any]]:
        rows = rows_of(BATCHES - 1)
        more = pa.array([f"more-{number}" for number in range(rows.num_rows)])
        wide = pa.RecordBatch.from_arrays([more, *rows.columns], schema=grown)
        for piece in (wide.slice(0, 5), wide.slice(5)):
            for described in stage([piece], order):
                yield from described.to_pylist()

    second = Batches(table_in(tmp_path, MERGING, by=by), without_bad=True)
    second.open(grown)
    second.write(BATCHES - 1, run)
    target = table_in(tmp_path, Upkeep(), by=by)
    target.open(SCHEMA.remove(3))
    assert len(list(target.table.scan().plan_files())) == 1
    rows = target.table.scan().to_arrow().sort_by("offset")
    assert rows["offset"].to_pylist() == expected(BATCHES, bad=False)
    assert rows["more"].null_count == len(expected(BATCHES - 1, bad=False))


def test_a_commit_of_another_writer_puts_a_merge_off_until_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(table_in(tmp_path, Upkeep()), range(BATCHES))
    original = Merges._commit
    counts: list[int] = []

    def overtaken(merges: Merges, *arguments: Any) -> None:
        # Rows of the files that are being merged: they must not come back.
        opened(tmp_path).delete("region is null")
        counts.append(file_count(tmp_path))
        original(merges, *arguments)

    target = table_in(tmp_path, MERGING)
    started = driver(target)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Merges, "_commit", overtaken)
        started.write(BATCHES - 1, runner(BATCHES - 1))
    left = [offset for offset in expected(BATCHES, bad=False) if offset % 3 != 2]
    assert [file_count(tmp_path)] == counts
    assert offsets(tmp_path) == left
    started.write(BATCHES, runner(BATCHES))
    assert file_count(tmp_path) < counts[0]
    assert offsets(tmp_path) == [
        *left,
        *expected(BATCHES + 1, bad=False)[len(expected(BATCHES, bad=False)) :],
    ]
    assert stored(opened(tmp_path)) == reached(opened(tmp_path))


@pytest.mark.parametrize("batches", [[BATCHES - 1], [BATCHES - 1, BATCHES]], ids=["looks", "commits"])
def test_the_files_of_a_driver_that_is_believed_dead_stay_while_it_could_commit(
    batches: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(table_in(tmp_path, Upkeep()), range(BATCHES))
    original = Merges._commit

    def overtaken(merges: Merges, *arguments: Any) -> None:
        with monkeypatch.context() as other:
            # The other driver removes what is left of merges, and does not merge.
            other.setattr(table_compaction, "SMALL_FILES_MIN", 1_000)
            write(table_in(tmp_path, MERGING), batches)
        original(merges, *arguments)

    monkeypatch.setattr(Merges, "_commit", overtaken)
    write(table_in(tmp_path, MERGING), [BATCHES - 1])
    assert offsets(tmp_path) == expected(batches[-1] + 1, bad=False)
    assert reached(opened(tmp_path)) <= stored(opened(tmp_path))
    assert (file_count(tmp_path) == 4) == (len(batches) == 1), "only a commit puts the merge off"


CHANGES = ("write", "create", "remove")


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Callable[[], bool]]:
    """Ends the process before the n-th change by its upkeep, and tells whether it came to that."""

    def arm(change: int) -> Callable[[], bool]:
        left = change

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def changed(*arguments: Any, **named: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0:
                    raise _Crash
                return original(*arguments, **named)

            return changed

        places: list[tuple[Any, str]] = [
            *((stores.LocalFolder, name) for name in CHANGES),
            (Table, "_do_commit"),
            (table_expiry, "_remove"),
        ]
        originals = [(place, name, getattr(place, name)) for place, name in places]
        for place, name, original in originals:
            monkeypatch.setattr(place, name, wrap(original))

        def disarm() -> bool:
            for place, name, original in originals:
                monkeypatch.setattr(place, name, original)
            return left <= 0

        return disarm

    return arm


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("upkeep", [MERGING, EXPIRING], ids=["merging", "expiring"])
def test_no_row_is_lost_whichever_change_of_the_upkeep_was_the_last(
    upkeep: Upkeep, tmp_path: Path, crash_at: Callable[[int], Callable[[], bool]]
) -> None:
    later = WEEK + WEEK
    for change in range(1, 200):
        folder = tmp_path / str(change)
        write(table_in(folder, Upkeep()), range(BATCHES))
        if upkeep is EXPIRING:
            write(table_in(folder, MERGING), [BATCHES - 1])
        started = driver(table_in(folder, upkeep, later=later))
        disarm = crash_at(change)
        with suppress(_Crash):
            started.write(BATCHES - 1, runner(BATCHES - 1))
        crashed = disarm()
        assert offsets(folder) == expected(BATCHES, bad=False), f"after a crash at change {change}"
        write(table_in(folder, upkeep, later=later), range(BATCHES - 1, 2 * BATCHES))
        assert offsets(folder) == expected(2 * BATCHES, bad=False), f"after a crash at change {change}"
        table = opened(folder)
        home = LocalFolder("", Path(table.location().removeprefix("file://")))
        for notes in ("merging", "expiring"):
            assert home.names(f"data/{QUERY}/{notes}") == []
        data = {path for path in stored(table) if "/data/" in str(path)}
        assert data <= reached(table), f"after a crash at change {change}"
        assert reached(table) <= stored(table)
        if not crashed:
            break
    assert change > 5, "the upkeep makes fewer changes than its steps"


def test_old_snapshots_expire_with_their_files_and_batches_still_count_once(tmp_path: Path) -> None:
    write(table_in(tmp_path, Upkeep()), range(BATCHES))
    write(table_in(tmp_path, MERGING), [BATCHES - 1])
    table = opened(tmp_path)
    tagged = table.snapshots()[0].snapshot_id
    table.manage_snapshots().create_tag(tagged, "first").commit()
    before = stored(table)
    assert len(table.snapshots()) == BATCHES + 1
    write(table_in(tmp_path, EXPIRING, later=WEEK / 2), [BATCHES - 1])
    assert len(opened(tmp_path).snapshots()) == BATCHES + 1, "no snapshot is old enough"
    write(table_in(tmp_path, EXPIRING, later=WEEK + timedelta(hours=1)), [BATCHES - 1])
    assert len(opened(tmp_path).snapshots()) == BATCHES + 1, "they wait for a lump"
    write(table_in(tmp_path, EXPIRING, later=2 * WEEK), [BATCHES - 1])
    table = opened(tmp_path)
    assert len(table.snapshots()) == 2
    assert stored(table) == reached(table) < before
    assert offsets(tmp_path) == expected(BATCHES, bad=False)
    first = table.scan(snapshot_id=tagged).to_arrow()["offset"].to_pylist()
    assert sorted(first) == expected(1, bad=False)
    with pytest.raises(LakeConflict, match="was set back"):
        write(table_in(tmp_path, EXPIRING), [0])
    write(table_in(tmp_path, EXPIRING, later=2 * WEEK), [BATCHES - 1, BATCHES])
    assert offsets(tmp_path) == expected(BATCHES + 1, bad=False)

"""The lake in a real object store; skipped if `tools/s3/binaries.sh build` has not built one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from lake.samples import BY, QUERY, SCHEMA, expected, runner
from support.s3_server import BUCKET, S3Server, program
from tidelog_spark.lake.batches import Batches, Target
from tidelog_spark.lake.folders import Partitioning
from tidelog_spark.lake.iceberg import IcebergTable, TableName, catalog_properties
from tidelog_spark.lake.parquet import DeadLetters, ParquetLake
from tidelog_spark.lake.stores import BucketFolder, ObjectStore, folder_at


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    minio = program()
    if minio is None:
        pytest.skip("MinIO is not built; run: tools/s3/binaries.sh build")
    with S3Server(tmp_path_factory.mktemp("s3"), minio) as running:
        yield running


@pytest.fixture(autouse=True)
def credentials(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)


def driver(server: S3Server, prefix: str, catalog: Path | None) -> Batches:
    """A driver that has just started, of a lake or (with a catalog) of a table."""
    store = ObjectStore(server.endpoint, "us-east-1")
    url = f"s3a://{BUCKET}/{prefix}"
    target: Target = ParquetLake(folder_at(f"{url}/lake", store), BY, QUERY)
    if catalog is not None:
        properties = catalog_properties("sql", f"sqlite:///{catalog}", f"{url}/warehouse", {})
        target = IcebergTable(TableName("shop.orders", properties), store, BY, QUERY)
    dead = DeadLetters(folder_at(f"{url}/dead", store), Partitioning(), QUERY)
    started = Batches(target, dead)
    started.open(SCHEMA)
    return started


def objects(server: S3Server, folder: str) -> list[int]:
    """The offsets in the objects that a reader finds, who skips hidden names."""
    found = ds.dataset(f"{BUCKET}/{folder}", filesystem=server.files(), format="parquet")
    return sorted(found.to_table(["offset"])["offset"].to_pylist())


def test_a_lake_in_a_bucket_has_each_record_once(server: S3Server) -> None:
    for batch in (0, 1, 1):
        driver(server, "lake-1", None).write(batch, runner(batch))
    assert objects(server, "lake-1/lake") == expected(2, bad=False)
    assert objects(server, "lake-1/dead") == expected(2, bad=True)


def test_a_table_in_a_bucket_has_each_record_once(server: S3Server, tmp_path: Path) -> None:
    for batch in (0, 1, 1):
        driver(server, "table-1", tmp_path / "catalog.db").write(batch, runner(batch))
    properties = catalog_properties(
        "sql", f"sqlite:///{tmp_path / 'catalog.db'}", f"s3://{BUCKET}/table-1/warehouse", {}
    )
    store = ObjectStore(server.endpoint, "us-east-1")
    table = IcebergTable(TableName("shop.orders", properties), store, BY, "reader")
    table.open(SCHEMA.remove(3))
    assert sorted(table.table.scan().to_arrow()["offset"].to_pylist()) == expected(2, bad=False)
    assert objects(server, "table-1/dead") == expected(2, bad=True)


@pytest.mark.long
def test_each_record_is_in_the_bucket_once_whichever_change_was_the_last(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    left = 0

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def changed(self: BucketFolder, *arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise Crash
            return original(self, *arguments)

        return changed

    for name in ("write", "create", "move", "remove"):
        monkeypatch.setattr(BucketFolder, name, wrap(getattr(BucketFolder, name)))
    crashes = 0
    for change in range(1, 200):
        started = driver(server, f"crash-{change}", None)
        left = change
        with suppress(Crash):
            started.write(0, runner(0))
        crashed, left = left <= 0, 0
        again = driver(server, f"crash-{change}", None)
        for batch in range(2):
            again.write(batch, runner(batch))
        assert objects(server, f"crash-{change}/lake") == expected(2, bad=False), f"change {change}"
        assert objects(server, f"crash-{change}/dead") == expected(2, bad=True), f"change {change}"
        crashes += crashed
        if not crashed:
            break
    assert crashes > 10

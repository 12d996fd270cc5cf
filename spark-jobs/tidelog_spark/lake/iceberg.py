"""An Iceberg table as the target of a query. One commit decides a batch.

The commit adds the files of the batch, and it sets the property ``tidelog.<query>`` of the table to the
number of the batch, in one step: either both are in the table or none. A batch that runs again reads the
property first. The property, unlike a snapshot, is never expired. The summary of the snapshot has the
query and the batch too, for people.

Tasks write the files; only the driver speaks with the catalog. Files of attempts that were not committed
are in a folder of their batch, which the driver removes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
    ValidationException,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform

from tidelog.errors import InvalidRequest
from tidelog_spark.lake.folders import Key, Partitioning, Time
from tidelog_spark.lake.journal import Decision, LakeConflict
from tidelog_spark.lake.stores import Folder, ObjectStore, folder_at, split_url
from tidelog_spark.lake.table_compaction import Merges
from tidelog_spark.lake.table_expiry import Expiry
from tidelog_spark.lake.table_files import PROPERTY, SUFFIX, data_files, home_of
from tidelog_spark.lake.upkeep import Step
from tidelog_spark.lake.writing import Shape, Written

CATALOG_NAME: Final = "tidelog"
"""SQL catalogs store it with their tables, and variables with secrets have it in their names."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What a job does for its table after a batch."""

    compact: bool = False
    """Merge small files."""
    expire_older_than: timedelta | None = None
    """Expire snapshots of this age; None: none."""


@dataclass(frozen=True, slots=True)
class TableName:
    """Where a table is."""

    name: str
    """namespace.table"""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Those of PyIceberg's catalog: type, uri, warehouse, …"""


def catalog_properties(
    type_: str, uri: str | None, warehouse: str | None, more: Mapping[str, str]
) -> dict[str, str]:
    """The properties of PyIceberg's catalog; an SQL catalog is a SQLite file in its warehouse by default."""
    found = {"type": type_, **more}
    if warehouse is not None:
        kind, path = split_url(warehouse)
        found["warehouse"] = Path(path).absolute().as_uri() if kind == "file" else f"s3://{path}"
        if uri is None and type_ == "sql":
            Path(path).mkdir(parents=True, exist_ok=True)
            uri = f"sqlite:///{Path(path).absolute() / 'catalog.db'}"
    if uri is not None:
        found["uri"] = uri
    return found


class IcebergTable:
    """The commits of one query to a table, which is created if it does not exist."""

    def __init__(
        self,
        table: TableName,
        store: ObjectStore,
        by: Partitioning,
        query: str,
        upkeep: Upkeep | None = None,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._name = table.name
        self._catalog = load_catalog(CATALOG_NAME, **(_store_properties(store) | dict(table.properties)))
        self._store = store
        self._by = by
        self._query = query
        self._upkeep = upkeep or Upkeep()
        self._now = now
        self._table: Table | None = None
        self._touched: set[Key] | None = None
        """Partitions that may have small files to merge; None: any partition."""

    def __repr__(self) -> str:
        return f"<IcebergTable {self._name}>"

    @property
    def table(self) -> Table:
        assert self._table is not None, "open() comes first"
        return self._table

    @property
    def folder(self) -> Folder:
        """Where the tasks write."""
        return folder_at(self.table.location(), self._store)

    def open(self, schema: pa.Schema) -> Shape:
        """How rows become files of the table. Raises `InvalidRequest` if the table has other columns."""
        self._by.check(schema)
        self._table = _load_or_create(self._catalog, self._name, _optional(schema), self._by)
        _check_required(self.table, schema)
        _add_columns(self.table, schema)
        _check_spec(self.table, self._by)
        arrow = schema_to_pyarrow(self.table.schema())
        kept = [arrow.field(name) for name in schema.names]
        return Shape(pa.schema(kept), self._by, SUFFIX)

    def staging(self, batch: int, attempt: str) -> str:
        return f"{self._home(batch)}/{attempt}"

    def decided(self, batch: int) -> Decision | None:
        """The attempt at the batch that the table has; raises `LakeConflict` if it has a later batch."""
        known = _committed(self.table.refresh(), self._query)
        if known is None or known[0] < batch:
            return None
        if known[0] > batch:
            raise LakeConflict(
                f"{self._name} has batch {known[0]} of this query, but its checkpoint is at batch {batch}: "
                f"the checkpoint was set back. Restore the checkpoint that belongs to the table, or write to "
                f"a new table with a new checkpoint"
            )
        return known[1]

    def decide(self, batch: int, decision: Decision, files: Sequence[Written]) -> Decision:
        """Commits the files, unless another run has committed the batch; answers what the table has."""
        content = {"batch": batch, "attempt": decision.attempt, "counts": dict(decision.counts)}
        summary = {"tidelog.query-id": self._query, "tidelog.batch-id": str(batch)}
        transaction = _OncePerBatch(self.table, self._query, batch)
        try:
            with transaction:
                transaction.set_properties({PROPERTY + self._query: json.dumps(content)})
                with transaction.update_snapshot(snapshot_properties=summary).fast_append() as append:
                    for data_file in data_files(self.table, files):
                        append.append_data_file(data_file)
            if self._touched is not None:
                self._touched |= {file.key for file in files}
        except _AlreadyCommitted:
            pass
        known = self.decided(batch)
        assert known is not None, "the table has the batch"
        return known

    def complete(self, batch: int) -> None:
        """Removes the files of attempts at the batch that can no longer be committed."""
        known = self.decided(batch)
        for attempt in self.folder.names(self._home(batch)):
            if known is not None and attempt != known.attempt:
                self.folder.remove(f"{self._home(batch)}/{attempt}")

    def upkeep(self) -> Iterator[Step]:
        """Merges small files, and expires old snapshots."""
        if self._upkeep.compact:
            yield Step(f"The merge of small files of the table {self._name}", self._merge)
        if self._upkeep.expire_older_than is not None:
            expiry = Expiry(self.folder, self._query, self._upkeep.expire_older_than)
            yield Step(
                f"The expiry of old snapshots of the table {self._name}",
                lambda: expiry.expire(self.table.refresh(), self._now()),
            )

    def _merge(self) -> None:
        # The first batch of a run looks at all partitions: an earlier run may have ended too early.
        merges = Merges(self.folder, self._query, self._by)
        self._touched = merges.merge(self.table.refresh(), self._touched)

    def _home(self, batch: int) -> str:
        return f"{home_of(self._query)}/{batch}"


class _AlreadyCommitted(ValidationException):
    """Another run of the query has committed the batch; PyIceberg removes what this commit has written."""


class _OncePerBatch(Transaction):
    """A transaction that looks at the table again before it repeats a commit that met another writer's.

    PyIceberg repeats such a commit on top of the other one. If the other writer was another run of this
    query with the same batch, the rows would be in the table twice.
    """

    def __init__(self, table: Table, query: str, batch: int) -> None:
        super().__init__(table, autocommit=False)
        self._query, self._batch = query, batch

    def _rebuild_snapshot_updates(self) -> None:
        known = _committed(self._table, self._query)
        if known is not None and known[0] >= self._batch:
            raise _AlreadyCommitted
        super()._rebuild_snapshot_updates()


def _committed(table: Table, query: str) -> tuple[int, Decision] | None:
    """The last batch of the query in the table."""
    text = table.properties.get(PROPERTY + query)
    if text is None:
        return None
    document = json.loads(text)
    return document["batch"], Decision(document["attempt"], document["counts"])


def _store_properties(store: ObjectStore) -> dict[str, str]:
    found = {"s3.endpoint": store.endpoint, "s3.region": store.region}
    return {name: value for name, value in found.items() if value is not None}


def _load_or_create(catalog: Catalog, name: str, schema: pa.Schema, by: Partitioning) -> Table:
    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        pass
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(name.rpartition(".")[0])
    with (
        suppress(TableAlreadyExistsError),
        catalog.create_table_transaction(name, schema=schema) as creation,
        creation.update_spec() as spec,
    ):
        if by.time is not Time.NONE:
            transform: Any = HourTransform() if by.time is Time.HOUR else DayTransform()
            spec.add_field(by.time_column, transform, f"{by.time_column}_{by.time.value}")
        for column in by.columns:
            spec.add_field(column, IdentityTransform(), column)
    return catalog.load_table(name)


def _optional(schema: pa.Schema, required: Collection[str] = ()) -> pa.Schema:
    """The schema with optional columns, so that a later run can leave each of them out.

    Columns that the table requires already stay as they are in `schema`.
    """
    return pa.schema([field if field.name in required else field.with_nullable(True) for field in schema])


def _required(table: Table) -> list[str]:
    """The columns that other writers, or an earlier version of the job, have made required."""
    return [field.name for field in table.schema().fields if field.required]


def _check_required(table: Table, schema: pa.Schema) -> None:
    """Raises `InvalidRequest` if rows of this schema lack a column that the table requires."""
    missing = [name for name in _required(table) if name not in schema.names]
    if missing:
        raise InvalidRequest(
            f"the table {'.'.join(table.name())} requires the column {', '.join(missing)}, and the rows of "
            f"the job have none, so readers of the table would fail. Add it with source.options.columns or "
            f"value.schema, or make the column optional in the table"
        )


def _add_columns(table: Table, schema: pa.Schema) -> None:
    """Adds the columns that the table lacks; raises `InvalidRequest` if a column has another type."""
    try:
        with table.update_schema() as update:
            update.union_by_name(_optional(schema, _required(table)))
    except (ValueError, ValidationError) as error:
        raise InvalidRequest(
            f"the table {'.'.join(table.name())} has other columns than the rows: {error}"
        ) from None


def _check_spec(table: Table, by: Partitioning) -> None:
    wanted = [(by.time_column, by.time.value)] if by.time is not Time.NONE else []
    wanted += [(column, "identity") for column in by.columns]
    found = _fields(table.spec(), table.schema())
    if found != wanted:
        raise InvalidRequest(
            f"the table {'.'.join(table.name())} is partitioned by {_words(found)}, and partitionBy of "
            f"the job says {_words(wanted)}; give the job the table's partitioning"
        )


def _fields(spec: PartitionSpec, schema: Schema) -> list[tuple[str, str]]:
    return [(schema.find_column_name(part.source_id) or "?", str(part.transform)) for part in spec.fields]


def _words(fields: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{transform}({name})" for name, transform in fields) or "nothing"

"""Merges the small files of an Iceberg table, by one commit: a reader sees the old files or the new ones.

The commit is made for one snapshot of the table. If another writer commits first, nothing is merged, and the
next batch tries again: the other writer may have deleted rows of the files. So a merge never brings back a
row, and never loses one. Files to which a delete file of another engine belongs are left alone. The old files
stay for the earlier snapshots; `table_expiry` removes them.

    data/<query>/merged/<id>/…      the files of a merge
    data/<query>/merging/<id>.json  the merge may be in progress, and the snapshot for which it is made

The note is written first and removed last. A later run finds the note of a merge that did not end. The commit
has set a property of the table to the id of the merge, so the run knows whether the merge counts. If not, and
the table has another snapshot by now, the merge can never be committed, also not by a driver that is
believed dead, and its files are removed.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Final

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    IsNull,
    LessThan,
    Or,
    Reference,
)
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.table import FileScanTask, Table, Transaction

from tidelog_spark.lake.compaction import SMALL_BYTES, SMALL_FILES_MIN
from tidelog_spark.lake.folders import Key, Partitioning, Time
from tidelog_spark.lake.stores import Folder
from tidelog_spark.lake.table_files import PROPERTY, SUFFIX, data_files, home_of
from tidelog_spark.lake.writing import RowWriter, Shape, Written

PARTITIONS_MAX: Final = 64
"""Partitions that one commit merges; the others wait for the next batch."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Merges:
    """The merges of one query in a table."""

    folder: Folder
    """Of the table."""
    query: str
    by: Partitioning

    def merge(self, table: Table, keys: Collection[Key] | None) -> set[Key]:
        """Merges the small files of these partitions, of all partitions with None, where there are enough.

        `table` was read just now. Answers the partitions that are left for the next time.
        """
        self._clean(table)
        snapshot = table.current_snapshot()
        if snapshot is None:
            return set()
        groups = _small_files(table, keys, self.by)
        chosen = dict(list(groups.items())[:PARTITIONS_MAX])
        left = set(groups) - set(chosen)
        if not chosen:
            return left
        merge = uuid.uuid4().hex
        self.folder.create(self._note(merge), json.dumps({"snapshot": snapshot.snapshot_id}).encode())
        written = self._write(table, merge, chosen)
        try:
            self._commit(table, merge, chosen, written)
        except (CommitFailedException, ValidationException) as error:
            # Both say that the commit is not there.
            log.info("the merge of small files waits for the next batch: %s", error)
            self.folder.remove(self._files(merge))
            left |= set(chosen)
        self.folder.remove(self._note(merge))
        return left

    def _write(self, table: Table, merge: str, groups: Mapping[Key, Sequence[FileScanTask]]) -> list[Written]:
        written: list[Written] = []
        schema = pa.schema(list(schema_to_pyarrow(table.schema())))
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        with RowWriter(self.folder, self._files(merge), Shape(schema, self.by, SUFFIX)) as writer:
            for key, files in groups.items():
                merged: list[Written] = []
                for file in files:
                    for rows in scan.to_record_batches([file]):
                        merged += writer.add(rows)
                merged += writer.finish()
                rows_before = sum(file.file.record_count for file in files)
                assert sum(file.rows for file in merged) == rows_before, "a merge keeps all rows"
                assert all(file.key == key for file in merged), "a merge keeps the partition"
                written += merged
        return written

    def _commit(
        self,
        table: Table,
        merge: str,
        groups: Mapping[Key, Sequence[FileScanTask]],
        written: Sequence[Written],
    ) -> None:
        summary = {"tidelog.query-id": self.query, "tidelog.merge-id": merge}
        transaction = _Once(table, autocommit=False)
        with transaction:
            transaction.set_properties({self._property: merge})
            with transaction.update_snapshot(snapshot_properties=summary).overwrite() as overwrite:
                for data_file in data_files(table, written):
                    overwrite.append_data_file(data_file)
                for files in groups.values():
                    for file in files:
                        overwrite.delete_data_file(file.file)
        log.info("merged %d small files", sum(len(files) for files in groups.values()))

    def _clean(self, table: Table) -> None:
        """Removes what merges have left that did not end."""
        current = table.current_snapshot()
        for name in self.folder.names(f"{home_of(self.query)}/merging"):
            merge = name.removesuffix(".json")
            note = json.loads(self.folder.read(self._note(merge)) or b"{}")
            if table.properties.get(self._property) != merge:
                if current is not None and current.snapshot_id == note.get("snapshot"):
                    # Another driver could still commit it.
                    continue
                self.folder.remove(self._files(merge))
            self.folder.remove(self._note(merge))

    @property
    def _property(self) -> str:
        return f"{PROPERTY}{self.query}.merged"

    def _note(self, merge: str) -> str:
        return f"{home_of(self.query)}/merging/{merge}.json"

    def _files(self, merge: str) -> str:
        return f"{home_of(self.query)}/merged/{merge}"


class _Overtaken(ValidationException):
    """Another writer has committed to the table; PyIceberg removes what this commit has written."""


class _Once(Transaction):
    """A transaction that is not repeated on top of another writer's commit."""

    def _rebuild_snapshot_updates(self) -> None:
        raise _Overtaken("another writer has committed to the table")


def _small_files(
    table: Table, keys: Collection[Key] | None, by: Partitioning
) -> dict[Key, list[FileScanTask]]:
    """The files to merge, by partition."""
    rows: BooleanExpression = AlwaysTrue()
    if keys is not None and by and len(keys) <= PARTITIONS_MAX:
        if not keys:
            return {}
        rows = reduce(Or, (_rows_of(key, by) for key in keys))
    spec = table.spec().spec_id
    found: dict[Key, list[FileScanTask]] = {}
    for file in table.scan(row_filter=rows).plan_files():
        values = file.file.partition
        key = tuple(values[place] for place in range(len(values)))
        if (
            file.file.spec_id == spec
            and file.file.file_format is FileFormat.PARQUET
            and not file.delete_files
            and file.file.file_size_in_bytes < SMALL_BYTES
            and (keys is None or key in keys)
        ):
            found.setdefault(key, []).append(file)
    return {
        key: sorted(files, key=lambda file: file.file.file_path)
        for key, files in sorted(found.items(), key=lambda item: repr(item[0]))
        if len(files) >= SMALL_FILES_MIN
    }


def _rows_of(key: Key, by: Partitioning) -> BooleanExpression:
    """The rows of a partition."""
    values = list(key)
    parts: list[BooleanExpression] = []
    if by.time is not Time.NONE:
        length = timedelta(hours=1) if by.time is Time.HOUR else timedelta(days=1)
        start = datetime(1970, 1, 1, tzinfo=UTC) + length * values.pop(0)
        time = Reference(by.time_column)
        parts.append(GreaterThanOrEqual(term=time, value=start.isoformat()))
        parts.append(LessThan(term=time, value=(start + length).isoformat()))
    for name, value in zip(by.columns, values, strict=True):
        column = Reference(name)
        parts.append(IsNull(term=column) if value is None else EqualTo(term=column, value=value))
    return reduce(And, parts)

"""The work of a task: its rows as Parquet files that no reader sees yet.

Every attempt of a task writes files of its own, so attempts that run at the same time, or after a crash,
never touch the file of another attempt. The driver counts only the files that the successful attempt
reports. Memory is bounded: rows wait in buffers of `BUFFER_BYTES_MAX` in all until they fill a row group.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog_spark.lake.folders import Key, Partitioning, split
from tidelog_spark.lake.stores import Folder

BUFFER_BYTES_MAX: Final = 128 << 20
"""Rows of one task that wait in memory for their row group, of all its files together."""

FILE_BYTES_MAX: Final = 512 << 20
"""A file that has this many bytes is finished, and the next one begun."""

FILES_OPEN_MAX: Final = 64
"""The most files that one task has open. Beyond it the file with the most rows is finished."""

COMPRESSION: Final = "zstd"


@dataclass(frozen=True, slots=True)
class Shape:
    """How rows become files."""

    schema: pa.Schema
    """The columns of the files; those of an Iceberg table have field ids in their metadata."""
    by: Partitioning
    suffix: str
    """What the names of the files end with."""


@dataclass(frozen=True, slots=True)
class Written:
    """A finished file."""

    path: str
    """Relative to the folder of the writer."""
    key: Key
    rows: int
    size: int
    """Bytes."""
    footer: bytes
    """Parquet's metadata of the file, as a Parquet file without rows."""


class RowWriter:
    """Writes rows to new files in a folder; a context manager, which ends the files of a failed attempt.

    `add` and `finish` yield the files that are complete and durable.
    """

    def __init__(self, folder: Folder, path: str, shape: Shape) -> None:
        self._folder, self._path, self._shape = folder, path, shape
        self._files: dict[Key, _File] = {}

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, *_: object) -> None:
        while self._files:
            self._files.popitem()[1].abandon()

    def add(self, batch: pa.RecordBatch) -> Iterator[Written]:
        for key, rows in split(batch, self._shape.by):
            if key not in self._files:
                name = f"{self._path}/{uuid.uuid4().hex}{self._shape.suffix}"
                self._files[key] = _File(self._folder, name, self._shape.schema)
            self._files[key].add(rows)
            yield from self._make_room()

    def finish(self) -> Iterator[Written]:
        for key in list(self._files):
            yield self._files.pop(key).finish(key)

    def _make_room(self) -> Iterator[Written]:
        """Writes row groups and finishes files until the limits hold."""
        files = self._files
        while sum(file.waiting_bytes for file in files.values()) > BUFFER_BYTES_MAX:
            key = max(files, key=lambda key: files[key].waiting_bytes)
            files[key].write_group()
            if files[key].size >= FILE_BYTES_MAX:
                yield files.pop(key).finish(key)
        if len(files) > FILES_OPEN_MAX:
            key = max(files, key=lambda key: files[key].rows)
            yield files.pop(key).finish(key)


class _File:
    """A file being written, and the rows that wait for its next row group."""

    def __init__(self, folder: Folder, path: str, schema: pa.Schema) -> None:
        self._schema = schema
        self._path = path
        self._footers: list[pq.FileMetaData] = []
        self._waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        self.rows = 0
        self._stack = ExitStack()
        self._file = self._stack.enter_context(folder.write(path))
        self._writer = self._stack.enter_context(
            pq.ParquetWriter(
                self._file,
                self._schema,
                compression=COMPRESSION,
                store_schema=False,
                metadata_collector=self._footers,
            )
        )

    @property
    def size(self) -> int:
        return int(self._file.tell())

    def add(self, rows: pa.RecordBatch) -> None:
        columns = [rows.column(column.name).cast(column.type) for column in self._schema]
        self._waiting.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self.waiting_bytes += self._waiting[-1].nbytes
        self.rows += rows.num_rows

    def write_group(self) -> None:
        rows = pa.Table.from_batches(self._waiting, self._schema)
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._waiting, self.waiting_bytes = [], 0

    def finish(self, key: Key) -> Written:
        with self._stack:
            if self._waiting:
                self.write_group()
            self._writer.close()
            size = self.size
        footer = BytesIO()
        self._footers[0].write_metadata_file(footer)
        return Written(self._path, key, self.rows, size, footer.getvalue())

    def abandon(self) -> None:
        """Ends a file of a failed attempt, which nothing counts."""
        self._stack.close()

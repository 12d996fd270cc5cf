"""Cuts the rows of a task into record batches that depend on the rows alone (S3).

In which pieces the rows arrive does not matter, so every attempt of a task cuts the same batches, and
their checksums show whether two attempts have the same rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import BatchTooLarge
from tidelog.records.limits import BATCH_OVERHEAD_BYTES

ROWS_MAX: Final = 8_192
"""Rows of one record batch of a sink."""

BYTES_MAX: Final = 512 << 10
"""The bytes after which a record batch is cut. One row more is never added, but a single row may be
larger."""

FIXED_BYTES: Final = 13
"""The bytes of a row besides its contents: an offset and a timestamp, and its validity."""

COLUMN_BYTES: Final = 5
HEADER_BYTES: Final = 9


class Cutter:
    """The rows of one partition that are not cut yet."""

    def __init__(self, batch_bytes_max: int, rows_max: int = ROWS_MAX) -> None:
        """`batch_bytes_max`: of the stream; no batch becomes larger, and none has more than `rows_max`
        rows."""
        self._rows_max = rows_max
        self._limit = batch_bytes_max - BATCH_OVERHEAD_BYTES
        self._bytes_max = min(BYTES_MAX, self._limit)
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        """An upper bound."""

    def __repr__(self) -> str:
        return f"<Cutter rows={self._rows} bytes={self._bytes}>"

    def push(self, columns: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Adds rows; returns the batches that are complete now. All calls must have the same schema."""
        if columns.num_rows:
            self._waiting.append(columns)
            self._rows += columns.num_rows
            self._bytes += pc.sum(row_bytes(columns)).as_py()
        # More rows cannot change a batch that another row has followed.
        while self._rows > self._rows_max or (self._bytes > self._bytes_max and self._rows > 1):
            yield self._cut()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """The rest of the rows, as batches."""
        while self._rows:
            yield self._cut()

    def _cut(self) -> pa.RecordBatch:
        whole = self._waiting[0] if len(self._waiting) == 1 else pa.concat_batches(self._waiting)
        ends = pc.cumulative_sum(row_bytes(whole))
        rows = min(_rows_within(ends, self._bytes_max), self._rows_max, whole.num_rows)
        size = ends[rows - 1].as_py()
        if size > self._limit:
            raise BatchTooLarge(
                f"a row of {size} bytes does not fit into a batch of at most {self._limit} bytes of rows "
                f"(batch_bytes_max of the stream)"
            )
        rest = whole.slice(rows)
        self._waiting = [rest] if rest.num_rows else []
        self._rows -= rows
        self._bytes -= size
        return canonical(whole.slice(0, rows))


def canonical(columns: pa.RecordBatch) -> pa.RecordBatch:
    """A copy whose encoding depends on its values alone, not on the buffers that it was a slice of.

    Arrow encodes a slice with whatever bits lie behind its end in a byte of a bitmap; joining arrays makes
    new bitmaps.
    """
    return pa.concat_batches([columns, columns.slice(0, 0)])


class _Ends:
    """The cumulated sizes as a sequence, without a Python object for each row."""

    def __init__(self, ends: pa.Array) -> None:
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> int:
        return int(self._ends[index].as_py())


def _rows_within(ends: pa.Array, size: int) -> int:
    """How many rows fit into `size` bytes; at least one."""
    return max(1, bisect_right(_Ends(ends), size))


def row_bytes(columns: pa.RecordBatch) -> pa.Array:
    """An upper bound of what each row adds to an encoded batch. Bytes, int64."""
    total = pa.repeat(pa.scalar(FIXED_BYTES, pa.int64()), columns.num_rows)
    for name in columns.schema.names:
        column = columns.column(name)
        match name:
            case "timestamp":
                continue
            case "headers":
                size = _header_bytes(column)
            case _:
                size = pc.fill_null(pc.binary_length(column), 0)
        total = pc.add(total, pc.add(pc.cast(size, pa.int64()), COLUMN_BYTES))
    return total


def _header_bytes(headers: pa.ListArray) -> pa.Array:
    counts = pc.list_value_length(headers)
    items = headers.flatten()
    names = pc.binary_length(items.field("key"))
    values = pc.fill_null(pc.binary_length(items.field("value")), 0)
    of_items = pc.cumulative_sum(pc.add(pc.cast(pc.add(names, values), pa.int64()), HEADER_BYTES))
    before = pa.concat_arrays([pa.array([0], pa.int64()), of_items])
    ends = pc.cumulative_sum(pc.cast(counts, pa.int64()))
    return pc.subtract(before.take(ends), before.take(pc.subtract(ends, pc.cast(counts, pa.int64()))))

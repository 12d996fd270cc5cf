"""From the rows of a task to the columns of records, and the partition of each row (S3).

Everything here depends on the rows alone, never on the pieces in which Spark hands them over: an attempt that
repeats a task must give the same records. Pure, and per batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, StructType

from tidelog.errors import InvalidRequest

KEYLESS_ROWS: Final = 8_192
"""So many rows without a key go to one partition, and the next rows to the next partition."""

_TYPES: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "subject": ("string",),
    "timestamp": ("timestamp",),
    "partition": ("int",),
}
"""The columns of a row that is written, and their types in Spark."""


def check_sink_schema(schema: StructType) -> None:
    """Raises `InvalidRequest` unless the rows can be written as records."""
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        if field.name not in _TYPES or names.count(field.name) > 1:
            raise InvalidRequest(
                f"the rows have a column {field.name!r}; a record has {', '.join(_TYPES)}, each at most "
                f"once. Select these columns, for example: to_json(struct(*)) as value"
            )
        if not _fits(field.dataType, field.name):
            raise InvalidRequest(
                f"the column {field.name} is {field.dataType.simpleString()}; it must be "
                f"{' or '.join(_TYPES[field.name])}"
            )
    if "value" not in names:
        raise InvalidRequest("the rows have no column 'value'; it becomes the value of the records")


def _fits(kind: DataType, name: str) -> bool:
    # Without nullability: nulls are replaced or refused row by row.
    return kind.simpleString() in _TYPES[name]


class RowSplitter:
    """Assigns the rows of one attempt to partitions, in the order in which they come."""

    def __init__(self, task: int, partitions: int, time_us: int) -> None:
        """`time_us`: the timestamp of rows without a timestamp, the same in every attempt. µs."""
        self._task = task
        self._partitions = partitions
        self._time_us = time_us
        self._keyless = 0
        """Rows without a key so far."""

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The columns of records for each partition.

        Raises `InvalidRequest` for a partition that the stream does not have.
        """
        if not rows.num_rows:
            return
        given = rows.schema.names
        columns = self._columns(rows)
        if "partition" not in given and "key" not in given:
            yield from self._in_turn(columns)
            return
        of_row = self._of_row(rows)
        for partition in sorted(pc.unique(of_row).to_pylist()):
            yield partition, columns.filter(pc.equal(of_row, partition))

    def _columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        names = [name for name in rows.schema.names if name != "partition"]
        arrays = {name: rows.column(name) for name in names}
        if "timestamp" in arrays:
            stamps = arrays["timestamp"].cast(pa.timestamp("us", "UTC"))
            arrays["timestamp"] = pc.fill_null(stamps, pa.scalar(self._time_us, stamps.type))
        if "headers" in arrays and arrays["headers"].null_count:
            headers = arrays["headers"]
            arrays["headers"] = pc.coalesce(headers, pa.scalar([], headers.type))
        return pa.record_batch(list(arrays.values()), names=names)

    def _in_turn(self, columns: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        at = 0
        while at < columns.num_rows:
            room = KEYLESS_ROWS - self._keyless % KEYLESS_ROWS
            part = columns.slice(at, room)
            yield self._turn(self._keyless), part
            at += part.num_rows
            self._keyless += part.num_rows

    def _turn(self, keyless: int) -> int:
        return (self._task + keyless // KEYLESS_ROWS) % self._partitions

    def _of_row(self, rows: pa.RecordBatch) -> pa.Array:
        """The partition of each row: the given one, else by key, else in turn."""
        names = rows.schema.names
        nothing = pa.nulls(rows.num_rows, pa.int32())
        found = rows.column("partition").cast(pa.int32()) if "partition" in names else nothing
        self._check_given(found)
        if found.null_count and "key" in names:
            found = pc.coalesce(found, self._by_key(rows.column("key")))
        if found.null_count:
            found = pc.coalesce(found, self._by_turn(pc.is_null(found)))
        return found

    def _check_given(self, given: pa.Array) -> None:
        span = pc.min_max(given)
        for number in (span["min"].as_py(), span["max"].as_py()):
            if number is not None and not 0 <= number < self._partitions:
                raise InvalidRequest(
                    f"a row has partition {number}; the stream has partitions 0 to {self._partitions - 1}"
                )

    def _by_key(self, keys: pa.Array) -> pa.Array:
        encoded = keys.cast(pa.binary()).dictionary_encode()
        of_key = pa.array(_partitions_of(encoded.dictionary.to_pylist(), self._partitions), pa.int32())
        return of_key.take(encoded.indices)

    def _by_turn(self, keyless: pa.Array) -> pa.Array:
        """The partitions of the rows for which `keyless` is true, by their number among those rows."""
        numbers = pc.add(pc.cumulative_sum(pc.cast(keyless, pa.int64())), self._keyless - 1)
        self._keyless = numbers[-1].as_py() + 1
        turns = pc.add(pc.divide(numbers, KEYLESS_ROWS), self._task)
        whole = pc.multiply(pc.divide(turns, self._partitions), self._partitions)
        return pc.cast(pc.subtract(turns, whole), pa.int32())


def _partitions_of(keys: Sequence[bytes], partitions: int) -> list[int]:
    """As `tidelog` producers choose them: CRC-32C(key) mod n."""
    return [google_crc32c.value(key) % partitions for key in keys]

"""How `consume` writes records: as text, JSON, Arrow or Parquet."""

from __future__ import annotations

import json
from itertools import islice
from types import TracebackType
from typing import Any, BinaryIO, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

import tidelog
from tidelog.cli.records.record_json import to_json
from tidelog.cli.values import show_time_us
from tidelog.records.schema import field_of

ROW_GROUP_ROWS = 100_000
"""About how many records a Parquet row group holds."""

SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        *(field_of(name) for name in ("key", "value", "headers", "subject", "timestamp")),
    ]
)
"""The columns of Arrow and Parquet output, whichever of them a batch has."""


class RecordOutput(Protocol):
    """Writes records in order. The end of the `with` block completes the output."""

    def write(self, batch: tidelog.FetchedBatch, count: int) -> int:
        """Writes the first `count` records of a batch; returns about how many bytes that were."""

    def flush(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class _Output:
    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink

    def flush(self) -> None:
        self._sink.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._sink.flush()


class TextOutput(_Output):
    """One value a line; with `details`, place, time, subject and key come before the value."""

    def __init__(self, sink: BinaryIO, *, details: bool) -> None:
        super().__init__(sink)
        self._details = details

    def write(self, batch: tidelog.FetchedBatch, count: int) -> int:
        lines = []
        for record in islice(batch.records(), count):
            if self._details:
                key = "" if record.key is None else f" key={record.key.decode(errors='backslashreplace')}"
                subject = f" {record.subject}" if record.subject is not None else ""
                place = f"{record.stream}/{record.partition}@{record.offset}"
                lines.append(f"{place} {show_time_us(record.timestamp_us)}{subject}{key}\t".encode())
            lines.append(b"" if record.value is None else record.value)
            lines.append(b"\n")
        data = b"".join(lines)
        self._sink.write(data)
        return len(data)


class JsonOutput(_Output):
    """One object a line."""

    def write(self, batch: tidelog.FetchedBatch, count: int) -> int:
        lines = [json.dumps(to_json(record), ensure_ascii=False) for record in islice(batch.records(), count)]
        data = "".join(f"{line}\n" for line in lines).encode()
        self._sink.write(data)
        return len(data)


class ArrowOutput(_Output):
    """An Arrow IPC stream; each batch of the log is one Arrow batch."""

    def __init__(self, sink: BinaryIO) -> None:
        super().__init__(sink)
        self._writer = pa.ipc.new_stream(sink, SCHEMA)

    def write(self, batch: tidelog.FetchedBatch, count: int) -> int:
        columns = full_columns(batch, count)
        self._writer.write_batch(columns)
        return int(columns.nbytes)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._writer.close()
        self._sink.flush()


class ParquetOutput(_Output):
    """A Parquet file; it is readable only after it is closed."""

    def __init__(self, sink: BinaryIO) -> None:
        super().__init__(sink)
        self._writer = pq.ParquetWriter(sink, SCHEMA, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, batch: tidelog.FetchedBatch, count: int) -> int:
        columns = full_columns(batch, count)
        self._waiting.append(columns)
        self._rows += columns.num_rows
        if self._rows >= ROW_GROUP_ROWS:
            self._write_group()
        return int(columns.nbytes)

    def flush(self) -> None:
        """Does nothing: row groups are written when they are full."""

    def _write_group(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, SCHEMA))
            self._waiting, self._rows = [], 0

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._write_group()
        self._writer.close()
        self._sink.flush()


def full_columns(batch: tidelog.FetchedBatch, count: int) -> pa.RecordBatch:
    """The first `count` rows of a batch, with all columns of `SCHEMA`."""
    columns = batch.with_offsets().slice(0, count)
    rows = columns.num_rows
    arrays: list[Any] = [pa.repeat(pa.scalar(batch.partition, pa.int32()), rows)]
    for field in SCHEMA:
        if field.name in columns.schema.names:
            arrays.append(columns.column(field.name))
        elif field.name == "headers":
            arrays.append(pa.array([[]] * rows, field.type))
        elif field.name != "partition":
            arrays.append(pa.nulls(rows, field.type))
    return pa.record_batch(arrays, schema=SCHEMA)

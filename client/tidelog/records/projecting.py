"""Applies a projection to stored batches: which records match, and their columns as an Arrow message.

It decodes as little as it can. A batch that lacks the column of a filter is not decoded at all. Of another
batch only the columns of the filter are decoded first. If no record matches, that is all; if all match, the
buffers of the wanted columns are moved as they are. Nothing is done per record in Python.

Neighbours: `slicing` moves buffers, `subject_filter` matches subjects, `projected` frames the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.records.codec import decode_body
from tidelog.records.layout import BatchHeader, Compression
from tidelog.records.message import Message, read_message
from tidelog.records.projected import column_attributes, projected_schema
from tidelog.records.schema import COLUMNS_ORDER, Columns, schema_of_attributes
from tidelog.records.slicing import (
    assemble,
    column_of,
    decoded_column_bytes,
    number_column,
    read_columns,
    write_message,
)
from tidelog.records.subject_filter import SubjectFilter

COMPRESSED_BYTES_MIN: Final = 4 << 10
"""Less is sent as it is, although the stored batch is compressed."""

BATCH_WORK_BYTES: Final = 32 << 10
"""A batch is as much work as decoding so many bytes, however small it is."""

_DECODED_COPIES: Final = 2
"""Of what is decoded: as it was, and filtered."""

_CHOSEN_COPIES: Final = 3
"""Of what is left then: as columns, as a message, and in an answer."""

_ROW_BYTES: Final = 32
"""Beside the columns, for each record: offsets, matches, and their copies."""

_DELTA: Final = "offset_delta"


class Projected(NamedTuple):
    """The records of one stored batch that match."""

    attributes: int
    record_count: int
    parts: list[bytes | memoryview]
    """The Arrow message."""


class BytesNeeded(NamedTuple):
    """The batch was not projected, because that takes more memory than the caller allows."""

    bytes: int


class Projector:
    """One projection, applied to many batches. It may be used by one thread at a time."""

    def __init__(self, columns: Sequence[str], subjects: Sequence[str], keys: Sequence[bytes]) -> None:
        """As the fields of `tidelog.model.Projection`, which checks them."""
        self._wanted = tuple(name for name in COLUMNS_ORDER if not columns or name in columns)
        self._subjects = SubjectFilter(subjects) if subjects else None
        self._keys = pa.array(keys, pa.binary()) if keys else None
        self._filtered = tuple(name for name, on in (("key", keys), ("subject", subjects)) if on)
        self.work_bytes = 0
        """A measure of the work so far: what was decoded, and `BATCH_WORK_BYTES` for each batch."""
        self._needed = (Columns.KEY if keys else 0) | (Columns.SUBJECT if subjects else 0)

    def project(
        self, header: BatchHeader, body: pa.Buffer, begin: int, end: int, bytes_max: int
    ) -> Projected | BytesNeeded | None:
        """The records of a stored batch from offset `begin` up to `end` that match; None: there are none.

        `bytes_max` bounds the memory that it may take beside `body`, the batch without its header. Raises
        `CorruptBatch`.
        """
        self.work_bytes += BATCH_WORK_BYTES
        if header.columns & self._needed != self._needed:
            return None
        batch = _Stored(header, body)
        rows = batch.rows(begin, end)
        if not rows:
            return None
        mask: pa.BooleanArray | None = None
        count = len(rows)
        if self._filtered:
            needed = batch.bytes_for(self._filtered)
            if needed > bytes_max:
                return BytesNeeded(needed)
            self.work_bytes += needed
            mask = self._matches(batch.columns(self._filtered).slice(rows.start, len(rows)))
            count = mask.true_count
            if not count:
                return None
        names = tuple(name for name in self._wanted if name in batch.schema.names)
        attributes = column_attributes(names)
        if count == header.record_count:
            parts = batch.moved(names)
            return Projected(attributes | header.compression, count, parts)
        needed = batch.bytes_for(names)
        if needed > bytes_max:
            return BytesNeeded(needed)
        self.work_bytes += needed
        chosen = batch.chosen(names, rows, None if count == len(rows) else mask)
        needed = _CHOSEN_COPIES * chosen.nbytes
        if needed > bytes_max:
            return BytesNeeded(needed)
        small = chosen.nbytes < COMPRESSED_BYTES_MIN
        compression = int(Compression.NONE) if small else header.compression
        message = write_message(chosen, compression)
        return Projected(attributes | compression, count, [memoryview(message)])

    def _matches(self, columns: pa.RecordBatch) -> pa.BooleanArray:
        found: pa.BooleanArray | None = None
        if self._keys is not None:
            found = pc.is_in(columns.column("key"), value_set=self._keys)
        if self._subjects is not None:
            matched = self._subjects.matches(columns.column("subject"))
            found = matched if found is None else pc.and_(found, matched)
        assert found is not None, "there is a filter"
        return found


class _Stored:
    """A stored batch, of which some columns are needed."""

    def __init__(self, header: BatchHeader, body: pa.Buffer) -> None:
        self._header = header
        self._body = body
        self._view = memoryview(body)
        self._message: Message = read_message(self._view)
        self.schema: pa.Schema = schema_of_attributes(header.attributes)

    def bytes_for(self, names: Sequence[str]) -> int:
        """About the most memory that filtering some columns takes."""
        size = decoded_column_bytes(self._message, self._view, self.schema, names)
        return _DECODED_COPIES * size + _ROW_BYTES * self._header.record_count

    def columns(self, names: Sequence[str]) -> pa.RecordBatch:
        """Some columns, decoded: in the order of the schema."""
        if self._header.compression == Compression.NONE:
            return decode_body(self._body, self._header).select(list(names))
        return read_columns(self._message, self._view, self.schema, names)

    def rows(self, begin: int, end: int) -> range:
        """The rows with offsets from `begin` up to `end`."""
        header = self._header
        first, last = begin - header.base_offset, end - header.base_offset
        if header.compacted:
            deltas = self._deltas().cast(pa.int64())
            return range(_count_below(deltas, first), _count_below(deltas, last))
        return range(max(first, 0), min(last, header.record_count))

    def _deltas(self) -> pa.Array:
        return self.columns((_DELTA,)).column(0)

    def _offsets(self) -> pa.Array:
        base = self._header.base_offset
        if self._header.compacted:
            return pc.add(self._deltas().cast(pa.int64()), base)
        return pa.arange(base, base + self._header.record_count)

    def moved(self, names: tuple[str, ...]) -> list[bytes | memoryview]:
        """All rows of some columns and their offsets, as a message of the same compression."""
        columns = [column_of(self._message, self._view, self.schema, name) for name in names]
        compression = self._header.compression
        columns.append(number_column(self._offsets(), compressed=bool(compression)))
        return assemble(projected_schema(names), compression, self._header.record_count, columns)

    def chosen(self, names: tuple[str, ...], rows: range, mask: pa.BooleanArray | None) -> pa.RecordBatch:
        """Those of some rows that `mask` has; None: all of these rows."""
        arrays = [*(self.columns(names).columns if names else ()), self._offsets()]
        batch = pa.RecordBatch.from_arrays(arrays, schema=projected_schema(names))
        batch = batch.slice(rows.start, len(rows))
        if mask is None:
            # A slice that begins at row 0 would be written with the bytes of all rows.
            return batch.take(pa.arange(0, len(rows)))
        return batch.filter(mask)


def _count_below(deltas: pa.Array, bound: int) -> int:
    return int(pc.sum(pc.less(deltas, bound)).as_py() or 0)

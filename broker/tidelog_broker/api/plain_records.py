"""Writes record batches as plain records for clients without Arrow: answers in pieces, as bytes.

The records are written in protobuf's form by hand: an object for each of them, and one for each of their
headers, would take many times the memory of the batch. Only one batch is decoded at a time, and of that
only some rows are Python objects at a time. All of it runs in the decoding threads, except for
`PlainChunk` itself, which reads only the metadata of the batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.records import BatchHeader, allocated_bytes, decode_body
from tidelog_broker.api.chunk_batches import batch_bodies
from tidelog_broker.api.protobuf_writing import bytes_tag, number_tag, varint
from tidelog_broker.api.verbatim import EncodedAnswer
from tidelog_proto import common_pb2, log_pb2

SLICE_ROWS: Final = 256
"""Records turned into Python objects at a time, …"""

SLICE_BYTES: Final = 16 << 10
"""… and about so many bytes of them, if they are more than one."""

SLICE_HEADERS: Final = 1024
"""Headers of one record turned into Python objects at a time."""

_OFFSET = number_tag(log_pb2.FetchedRecord.OFFSET_FIELD_NUMBER)
_EPOCH = number_tag(log_pb2.FetchedRecord.LEADER_EPOCH_FIELD_NUMBER)
_APPEND_TIME = number_tag(log_pb2.FetchedRecord.APPEND_TIME_US_FIELD_NUMBER)
_RECORD = bytes_tag(log_pb2.FetchedRecord.RECORD_FIELD_NUMBER)
_KEY = bytes_tag(common_pb2.Record.KEY_FIELD_NUMBER)
_VALUE = bytes_tag(common_pb2.Record.VALUE_FIELD_NUMBER)
_HEADERS = bytes_tag(common_pb2.Record.HEADERS_FIELD_NUMBER)
_SUBJECT = bytes_tag(common_pb2.Record.SUBJECT_FIELD_NUMBER)
_TIMESTAMP = number_tag(common_pb2.Record.TIMESTAMP_US_FIELD_NUMBER)
_HEADER_NAME = bytes_tag(common_pb2.Header.NAME_FIELD_NUMBER)
_HEADER_VALUE = bytes_tag(common_pb2.Header.VALUE_FIELD_NUMBER)
_IN_ANSWER = bytes_tag(log_pb2.FetchedRecords.RECORDS_FIELD_NUMBER)

Parts = list[bytes | memoryview]


class Piece(NamedTuple):
    """An answer that can be sent, and where its records end."""

    answer: EncodedAnswer
    next_offset: int
    leader_epoch: int
    """Of the last record."""


class LargeRecord(NamedTuple):
    """Instead of a piece: the next record alone is larger than a piece may be."""

    bytes: int
    """What its answer takes, about."""


class PlainChunk:
    """The records of some whole batches from one offset up to another, taken out piece by piece."""

    def __init__(
        self, parts: Sequence[bytes | memoryview], begin: int, end: int | None, *, bytes_max: int
    ) -> None:
        """`parts` as a `Chunk` has them. It ends before a batch that needs more than `bytes_max` with the
        chunk it came in, but for the first. Raises `CorruptBatch`.
        """
        self.bytes = chunk_bytes = sum(map(len, parts))
        """What the chunk takes, with the batch decoded that takes most."""
        self.stopped_at: int | None = None
        """The offset of the batch before which it ends; None: it has the whole chunk."""
        wanted: list[tuple[BatchHeader, pa.Buffer]] = []
        for header, body in batch_bodies(parts):
            if header.next_offset <= begin or (end is not None and header.base_offset >= end):
                continue
            needed = chunk_bytes + allocated_bytes(body, header)
            if wanted and needed > bytes_max:
                self.stopped_at = header.base_offset
                break
            self.bytes = max(self.bytes, needed)
            wanted.append((header, body))
        self._batches = iter(wanted)
        self._begin = begin
        self._end = end
        self._open: _Rows | None = None

    def piece(self, facts: bytes, bytes_max: int) -> Piece | LargeRecord | None:
        """The next records, about `bytes_max` of them, behind the serialized `facts` of a FetchResponse.

        None: there are no more. A record that alone is larger comes only if it is the first
        and `bytes_max` has room for what `LargeRecord` says.
        """
        parts: Parts = []
        size, last = 0, None
        while (rows := self._rows()) is not None:
            count, there = rows.slice_size(bytes_max)
            if size + there > bytes_max:
                if not parts:
                    return LargeRecord(there)
                break
            size += rows.take(count, parts)
            last = rows.header, rows.last_offset
        if last is None:
            return None
        header, offset = last
        position = log_pb2.Position(offset=offset + 1, leader_epoch=header.leader_epoch)
        following = log_pb2.FetchResponse(next=position).SerializeToString()
        answer = EncodedAnswer(facts + following, log_pb2.FetchResponse.RECORDS_FIELD_NUMBER, parts)
        return Piece(answer, offset + 1, header.leader_epoch)

    def drop(self) -> None:
        """Lets all of it go, decoded or not."""
        self._open, self._batches = None, iter(())

    def _rows(self) -> _Rows | None:
        while self._open is None or not self._open.left:
            # Before the next one is decoded: they are never in memory together.
            self._open = None
            found = next(self._batches, None)
            if found is None:
                return None
            header, body = found
            self._open = _Rows(header, decode_body(body, header), self._begin, self._end)
        return self._open


class _Rows:
    """The wanted rows of one decoded batch."""

    def __init__(self, header: BatchHeader, columns: pa.RecordBatch, begin: int, end: int | None) -> None:
        self.header = header
        self._deltas: pa.Array | None = columns.column("offset_delta") if header.compacted else None
        self._at = self._row_of(begin, columns.num_rows)
        self._stop = columns.num_rows if end is None else self._row_of(end, columns.num_rows)
        self._columns = columns
        self.last_offset = 0
        """Of the record that was taken last."""

    def _row_of(self, offset: int, count: int) -> int:
        """The first row at or above an offset."""
        delta = offset - self.header.base_offset
        if self._deltas is None or delta <= 0:
            return min(max(delta, 0), count)
        found = pc.index(pc.greater_equal(self._deltas, delta), True).as_py()
        return count if found < 0 else int(found)

    @property
    def left(self) -> bool:
        return self._at < self._stop

    def slice_size(self, bytes_max: int) -> tuple[int, int]:
        """How many rows should be taken next, at least one, and about how many bytes they are."""
        bytes_max = min(bytes_max, SLICE_BYTES)
        count = min(SLICE_ROWS, self._stop - self._at)
        while (size := int(self._columns.slice(self._at, count).nbytes)) > bytes_max and count > 1:
            count = max(1, count // 2)
        return count, size

    def take(self, count: int, parts: Parts) -> int:
        """Appends the next `count` records to `parts`; their bytes."""
        rows = self._columns.slice(self._at, count)
        base = self.header.base_offset
        if self._deltas is None:
            offsets: Sequence[int] = range(base + self._at, base + self._at + count)
        else:
            offsets = [base + delta for delta in self._deltas.slice(self._at, count).to_pylist()]
        self._at += count
        self.last_offset = offsets[-1]
        # Numbers that are 0 are left out, as protobuf has it.
        epoch, time = self.header.leader_epoch, self.header.append_time_us
        shared = _EPOCH + varint(epoch) if epoch else b""
        shared += _APPEND_TIME + varint(time) if time else b""
        shared += _RECORD
        size = 0
        for offset, record in zip(offsets, _records(rows), strict=True):
            length = sum(map(len, record))
            head = (_OFFSET + varint(offset) if offset else b"") + shared + varint(length)
            prefix = _IN_ANSWER + varint(len(head) + length) + head
            parts.append(prefix)
            parts += record
            size += len(prefix) + length
        return size


def _records(rows: pa.RecordBatch) -> Iterator[Parts]:
    """Some rows as the bytes of `Record` messages, each in parts."""
    names = rows.schema.names
    columns = [
        (tag, _contents(rows.column(name)))
        for tag, name in ((_KEY, "key"), (_VALUE, "value"), (_SUBJECT, "subject"))
        if name in names
    ]
    counts: Sequence[int] = ()
    entries: Iterator[bytes] = iter(())
    if "headers" in names:
        counts = rows.column("headers").value_lengths().to_pylist()
        entries = _headers(rows.column("headers").flatten())
    times = rows.column("timestamp").cast("int64").to_pylist()
    for row, time in enumerate(times):
        record: Parts = []
        for tag, contents in columns:
            content = contents[row]
            if content is not None:
                record += (tag + varint(len(content)), content)
        if counts:
            # Joined some at a time: a part for each would take many times its bytes.
            for start in range(0, counts[row], SLICE_HEADERS):
                record.append(b"".join(islice(entries, min(SLICE_HEADERS, counts[row] - start))))
        record.append(_TIMESTAMP + varint(time))
        yield record


def _contents(column: pa.Array) -> Sequence[bytes | memoryview | None]:
    if len(column) > 1:
        return column.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
    # A view: a large value is copied once, into its answer.
    content = column[0].as_buffer()
    return [None if content is None else memoryview(content) if content.size else b""]


def _headers(items: pa.StructArray) -> Iterator[bytes]:
    """Headers, each as a field of its `Record`."""
    names, values = items.field("key"), items.field("value")
    for start in range(0, len(items), SLICE_HEADERS):
        pairs = zip(
            names.slice(start, SLICE_HEADERS).cast(pa.binary()).to_pylist(),
            values.slice(start, SLICE_HEADERS).to_pylist(),
            strict=True,
        )
        for name, value in pairs:
            entry = _HEADER_NAME + varint(len(name)) + name if name else b""
            if value is not None:
                entry += _HEADER_VALUE + varint(len(value)) + value
            yield _HEADERS + varint(len(entry)) + entry

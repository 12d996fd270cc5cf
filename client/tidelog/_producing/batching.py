"""From records to batches: the open batch that takes records, and the sealed batch that is sent.

`OpenBatch` consists of plain lists, because a producer that takes a million records a second can afford
only a handful of list appends for each; Arrow arrays are built once per batch. The counted bytes are an
upper bound of the encoded size, so a full batch never exceeds the stream's `batch_bytes_max`.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Final, TypedDict, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from tidelog._producing.buffer_budget import Budget
from tidelog.errors import BatchTooLarge, TidelogError
from tidelog.model import Headers, Receipt
from tidelog.records import NO_PRODUCER_ID, Columns, Compression, encode_batch, schema_of
from tidelog.records.checksum import crc32c
from tidelog.records.plain import encode_plain, is_plain
from tidelog.records.schema import HEADERS, TIMESTAMP

T = TypeVar("T")

RECORD_BYTES: Final = 13
"""The bytes of a record besides its value: a 4-byte offset, an 8-byte timestamp, a validity bit."""

COLUMN_BYTES: Final = 5
"""The bytes of a key, list of headers or subject besides its content: an offset and a validity bit."""

HEADER_BYTES_EACH: Final = 9
"""The bytes of a header besides its name and value: two offsets and a validity bit."""

GRANT_BYTES: Final = 64 << 10
"""Open batches take buffer memory in steps of this size."""

ARROW_DIVIDES_FROM: Final = 200
"""For fewer timestamps than this, a call into Arrow costs more than dividing in Python."""

_SEQUENCE = struct.Struct("<QIH")
_SEQUENCE_AT = 48
_CRC_AT = 32
_CRC = struct.Struct("<I")


class OpenBatch:
    """The records of one partition that will be sent together.

    `room` is the part of the granted buffer memory that is left. The producer's fast path compares with
    it, and uses `reserve` when it is used up.
    """

    __slots__ = (
        "add_timestamp",
        "add_value",
        "futures",
        "granted",
        "headers",
        "keys",
        "room",
        "subjects",
        "timestamps_ns",
        "values",
    )

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.timestamps_ns: list[int] = []
        self.add_value = self.values.append
        self.add_timestamp = self.timestamps_ns.append
        # The optional columns may be shorter than `values`; missing entries are null.
        self.keys: list[bytes | None] = []
        self.headers: list[Headers] = []
        self.subjects: list[str | None] = []
        self.futures: list[tuple[int, asyncio.Future[Receipt]]] = []
        """The futures of records that a caller waits for, with the index of the record."""
        self.granted = 0
        self.room = 0
        """`granted` minus the bytes used; negative if nothing was granted."""

    def __repr__(self) -> str:
        return f"<OpenBatch records={len(self.values)} bytes={self.used}/{self.granted}>"

    @property
    def used(self) -> int:
        """An upper bound of the encoded size, without `BATCH_OVERHEAD_BYTES`. Bytes."""
        return self.granted - self.room

    def reserve(self, size: int, budget: Budget, size_max: int) -> bool:
        """Makes room for `size` bytes: takes `GRANT_BYTES` if possible, else only what is needed."""
        need = size - self.room
        if need <= 0:
            return True
        for grant in (min(max(need, GRANT_BYTES), max(need, size_max - self.used)), need):
            if budget.take(grant):
                self.granted += grant
                self.room += grant
                return True
        return False

    def append(
        self,
        value: bytes | None,
        timestamp_ns: int,
        key: bytes | None,
        headers: Headers,
        subject: str | None,
        size: int,
    ) -> int:
        """Adds a record, for which room was reserved, and returns its index."""
        index = len(self.values)
        self.room -= size
        self.values.append(value)
        self.timestamps_ns.append(timestamp_ns)
        if key is not None:
            _pad(self.keys, index, None)
            self.keys.append(key)
        if headers:
            _pad(self.headers, index, ())
            self.headers.append(headers)
        if subject is not None:
            _pad(self.subjects, index, None)
            self.subjects.append(subject)
        return index

    def columns(self) -> pa.RecordBatch:
        """The records as Arrow columns."""
        count = len(self.values)
        present = Columns.NONE
        arrays = []
        if self.keys:
            present |= Columns.KEY
            _pad(self.keys, count, None)
            arrays.append(pa.array(self.keys, pa.binary()))
        arrays.append(pa.array(self.values, pa.binary()))
        if self.headers:
            present |= Columns.HEADERS
            _pad(self.headers, count, ())
            arrays.append(_headers_array(self.headers))
        if self.subjects:
            present |= Columns.SUBJECT
            _pad(self.subjects, count, None)
            arrays.append(pa.array(self.subjects, pa.utf8()))
        arrays.append(_timestamps(self.timestamps_ns))
        return pa.record_batch(arrays, schema=schema_of(present))


def _timestamps(timestamps_ns: list[int]) -> pa.Array:
    if len(timestamps_ns) < ARROW_DIVIDES_FROM:
        return pa.array([timestamp_ns // 1000 for timestamp_ns in timestamps_ns], TIMESTAMP)
    return pc.divide(pa.array(timestamps_ns, pa.int64()), 1000).view(TIMESTAMP)


def _pad(column: list[T], length: int, filler: T) -> None:
    missing = length - len(column)
    if missing:
        column.extend([filler] * missing)


def _headers_array(rows: Sequence[Headers]) -> pa.Array:
    flat = [header for row in rows for header in row]
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + len(row))
    names = pa.array([name for name, _ in flat], pa.utf8())
    values = pa.array([value for _, value in flat], pa.binary())
    structs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structs, type=HEADERS)


def record_size(
    value: bytes | None, key: bytes | None, headers: Headers, subject: str | None, position: int
) -> int:
    """Upper bound of what a record at `position` adds to its batch. Bytes.

    A column's first entry also pays for the nulls of all records before it.
    """
    size = RECORD_BYTES + (len(value) if value is not None else 0)
    if key is not None:
        size += len(key) + COLUMN_BYTES * (position + 1)
    if headers:
        size += COLUMN_BYTES * (position + 1)
        for name, content in headers:
            size += len(name) * 4 + HEADER_BYTES_EACH + (len(content) if content is not None else 0)
    if subject is not None:
        size += len(subject) * 4 + COLUMN_BYTES * (position + 1)
    return size


class Batch:
    """A sealed batch for one partition, until it is acknowledged or has failed."""

    __slots__ = (
        "base_sequence",
        "count",
        "data",
        "deadline",
        "doubt",
        "expected_offset",
        "failure",
        "future",
        "futures",
        "held_bytes",
        "last_error",
        "number",
        "partition",
    )

    def __init__(self, data: bytes, count: int, *, number: int, partition: int, deadline: float) -> None:
        self.data = data
        """The encoded batch."""
        self.count = count
        self.number = number
        """Grows with each batch of the producer."""
        self.partition = partition
        self.deadline = deadline
        """The time on the loop's clock at which the batch fails."""
        self.base_sequence = 0
        self.expected_offset: int | None = None
        self.held_bytes = len(data)
        """Bytes that it holds of the producer's budget."""
        self.future: asyncio.Future[Receipt] | None = None
        """The future of a caller that waits for the whole batch."""
        self.futures: list[tuple[int, asyncio.Future[Receipt]]] = []
        """The futures of callers that wait for single records, with the index of the record."""
        self.doubt: TidelogError | None = None
        """The indefinite error of an earlier attempt: the batch may be in the log."""
        self.last_error: TidelogError | None = None
        self.failure: TidelogError | None = None
        """The error that was reported. After it, the batch is kept only for its sequences."""

    def __repr__(self) -> str:
        size = f"records={self.count} bytes={len(self.data)}"
        return f"<Batch {self.number} partition={self.partition} {size}{' doubtful' if self.doubt else ''}>"

    @property
    def unwatched(self) -> int:
        """The number of records that no caller waits for."""
        return 0 if self.future is not None else self.count - len(self.futures)

    def brand(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Writes producer id, epoch and sequence into the header, and updates the body CRC."""
        self.base_sequence = base_sequence
        if _SEQUENCE.unpack_from(self.data, _SEQUENCE_AT) == (producer_id, base_sequence, producer_epoch):
            return
        data = bytearray(self.data)
        _SEQUENCE.pack_into(data, _SEQUENCE_AT, producer_id, base_sequence, producer_epoch)
        _CRC.pack_into(data, _CRC_AT, crc32c(memoryview(data)[_CRC_AT + _CRC.size :]))
        self.data = bytes(data)


def encode(
    records: OpenBatch | pa.RecordBatch,
    compression: Compression,
    size_max: int,
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = 0,
    base_sequence: int = 0,
) -> bytes:
    """Encodes one batch; raises `BatchTooLarge` above `size_max`, the stream's `batch_bytes_max`."""
    fields: _ProducerFields = {
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "base_sequence": base_sequence,
    }
    if isinstance(records, OpenBatch):
        count = len(records.values)
        plain = not records.headers and is_plain(records.values, records.keys, records.subjects)
        if compression is Compression.NONE and plain:
            data = _encode_plain(records, fields)
        else:
            data = encode_batch(records.columns(), compression=compression, **fields)
    else:
        count = records.num_rows
        data = encode_batch(records, compression=compression, **fields)
    if len(data) > size_max:
        raise BatchTooLarge(
            f"{count} records make a batch of {len(data)} bytes; the stream takes at most "
            f"{size_max} (batch_bytes_max)"
        )
    return data


class _ProducerFields(TypedDict):
    producer_id: int
    producer_epoch: int
    base_sequence: int


def _encode_plain(batch: OpenBatch, fields: _ProducerFields) -> bytes:
    return encode_plain(
        cast(list[bytes], batch.values),
        [timestamp_ns // 1000 for timestamp_ns in batch.timestamps_ns],
        keys=cast(list[bytes], batch.keys) or None,
        subjects=[cast(str, subject).encode() for subject in batch.subjects] or None,
        **fields,
    )

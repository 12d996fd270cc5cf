"""The projected batch: columns of the records that match, as a broker sends them (docs/storage-format.md).

A 48-byte header, and an Arrow message behind it unless no record matched. It says which offsets it is about,
so that a reader knows that it missed nothing, and one checksum binds all of it to the partition. It is made
for one answer and never stored. Neighbours: `projecting` makes its content, `layout` is the stored batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple

import pyarrow as pa

from tidelog.errors import CorruptBatch, DataCorrupt
from tidelog.records.checksum import crc32c
from tidelog.records.layout import ALIGNMENT, COMPRESSION_MASK, Compression
from tidelog.records.schema import COLUMNS_ORDER, field_of
from tidelog.records.slicing import schema_message

PROJECTED_HEADER_BYTES: Final = 48
PROJECTED_MAGIC: Final = b"TLP1"
PROJECTED_VERSION: Final = 1

OFFSET_FIELD: Final = pa.field("offset", pa.int64(), nullable=False)

COLUMN_BITS: Final = {
    "key": 1 << 2,
    "headers": 1 << 3,
    "subject": 1 << 4,
    "value": 1 << 5,
    "timestamp": 1 << 6,
}
"""In the attributes; the first three as in a stored batch."""

_KNOWN_ATTRIBUTES: Final = COMPRESSION_MASK | sum(COLUMN_BITS.values())
_HEADER = struct.Struct("<4sIqqIIHHIq")
_BEFORE_CRC = struct.Struct("<4sIqqI")
_BEHIND_CRC = struct.Struct("<HHIq")
_CRC = struct.Struct("<I")
_CRC_PLACE = struct.Struct("<16sI")
_CRC_AT: Final = _BEFORE_CRC.size
_COPY_BYTES_MAX: Final = 128 << 10
"""Compressed batches up to this size are copied once to be opened without threads."""

assert _HEADER.size == PROJECTED_HEADER_BYTES == _CRC_AT + _CRC.size + _BEHIND_CRC.size

Parts = Sequence[bytes | memoryview | pa.Buffer]


class ProjectedHeader(NamedTuple):
    """The fields of the header, in their order."""

    magic: bytes
    length: int
    """Bytes of the whole projected batch, header included."""
    start_offset: int
    """The first offset that it is about."""
    append_time_us: int
    """Of the stored batch of its records; 0 if it has none."""
    leader_epoch: int
    """Of the last record below `next_offset`, sent or not."""
    crc: int
    attributes: int
    version: int
    record_count: int
    """0: no record matched, and nothing is behind the header."""
    next_offset: int
    """The offset behind those that it is about."""

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK


@cache
def projected_schema(names: tuple[str, ...]) -> pa.Schema:
    """The Arrow schema of some columns, which must be in the order of a stored batch, and the offset."""
    return pa.schema([*map(field_of, names), OFFSET_FIELD])


def column_attributes(names: Sequence[str]) -> int:
    """The attributes that stand for some columns."""
    return sum(COLUMN_BITS[name] for name in names)


@cache
def _schema_of_attributes(attributes: int) -> pa.Schema:
    return projected_schema(tuple(name for name in COLUMNS_ORDER if attributes & COLUMN_BITS[name]))


def pack_projected(
    stream_id: bytes,
    partition: int,
    parts: Parts,
    *,
    start_offset: int,
    next_offset: int,
    leader_epoch: int,
    append_time_us: int = 0,
    attributes: int = 0,
    record_count: int = 0,
) -> bytes:
    """The header in front of the `parts` of an Arrow message."""
    length = PROJECTED_HEADER_BYTES + sum(map(len, parts))
    assert length % ALIGNMENT == 0, f"an Arrow message has a multiple of {ALIGNMENT} bytes"
    head = _BEFORE_CRC.pack(PROJECTED_MAGIC, length, start_offset, append_time_us, leader_epoch)
    tail = _BEHIND_CRC.pack(attributes, PROJECTED_VERSION, record_count, next_offset)
    crc = crc32c(_CRC_PLACE.pack(stream_id, partition) + head + tail)
    for part in parts:
        crc = crc32c(part, crc)
    return b"".join((head, _CRC.pack(crc), tail))


def split_projected(
    data: bytes | memoryview | pa.Buffer, stream_id: bytes, partition: int
) -> Iterator[tuple[ProjectedHeader, pa.Buffer]]:
    """The projected batches in `data`: the checked header of each, and its Arrow message as a view.

    Raises `CorruptBatch` for bytes that are no projected batches, and `DataCorrupt` if a checksum does not
    hold for this partition.
    """
    buffer = pa.py_buffer(data)
    at, size = 0, len(data)
    while at < size:
        if size - at < PROJECTED_HEADER_BYTES:
            raise CorruptBatch(
                f"{size - at} bytes are left over, but the header of a projected batch has "
                f"{PROJECTED_HEADER_BYTES}"
            )
        header = ProjectedHeader._make(_HEADER.unpack_from(buffer, at))
        _check_framing(header, size - at)
        batch = buffer.slice(at, header.length)
        _verify(header, batch, stream_id, partition)
        yield header, batch.slice(PROJECTED_HEADER_BYTES)
        at += header.length


def _check_framing(header: ProjectedHeader, available: int) -> None:
    if header.magic != PROJECTED_MAGIC:
        raise CorruptBatch(
            f"a projected batch starts with {PROJECTED_MAGIC!r}, these bytes start with {header.magic!r}"
        )
    if not PROJECTED_HEADER_BYTES <= header.length <= available or header.length % ALIGNMENT:
        raise CorruptBatch(
            f"a projected batch of {header.length} bytes, where {available} bytes are: its length must be a "
            f"multiple of {ALIGNMENT} from {PROJECTED_HEADER_BYTES} up"
        )


def _verify(header: ProjectedHeader, batch: pa.Buffer, stream_id: bytes, partition: int) -> None:
    head = batch.slice(0, _CRC_AT).to_pybytes()
    found = crc32c(batch.slice(_CRC_AT + _CRC.size), crc32c(_CRC_PLACE.pack(stream_id, partition) + head))
    if found != header.crc:
        raise DataCorrupt(
            f"the projected batch at offset {header.start_offset} has CRC {found:08x}, but its header says "
            f"{header.crc:08x}",
            offset=header.start_offset,
        )
    if header.version != PROJECTED_VERSION or header.attributes & ~_KNOWN_ATTRIBUTES:
        raise CorruptBatch(
            f"the projected batch has version {header.version} and attributes {header.attributes:#06x}; this "
            f"client knows version {PROJECTED_VERSION}"
        )
    if header.next_offset <= header.start_offset:
        raise CorruptBatch(
            f"the projected batch is about the offsets from {header.start_offset} to {header.next_offset}"
        )


def decode_projected(header: ProjectedHeader, body: pa.Buffer) -> pa.RecordBatch:
    """The columns of a projected batch with records, the last of them ``offset``. Raises `CorruptBatch`."""
    schema = _schema_of_attributes(header.attributes & ~COMPRESSION_MASK)
    try:
        if header.compression != Compression.NONE and body.size <= _COPY_BYTES_MAX:
            stream = b"".join((schema_message(schema), body))
            options = pa.ipc.IpcReadOptions(use_threads=False)
            columns = pa.ipc.open_stream(stream, options=options).read_next_batch()
        else:
            columns = pa.ipc.read_record_batch(body, schema)
    except (pa.ArrowException, OSError, EOFError, StopIteration) as error:
        raise CorruptBatch(f"Arrow cannot read the projected batch: {error}") from None
    if columns.num_rows != header.record_count:
        raise CorruptBatch(
            f"the projected batch has {columns.num_rows} rows, but its header says {header.record_count}"
        )
    return columns

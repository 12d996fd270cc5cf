"""Reads the metadata of an Arrow IPC message without trusting any byte of it.

pyarrow opens a message that has trailing bytes, extra columns or a forged length prefix
in front of compressed data. A broker must refuse those *before* it lets pyarrow
allocate anything, so this module reads the flatbuffer itself: the few fields that
`Message.fbs` of the Arrow format (version V5) gives a record batch, each bounds-checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from tidelog.errors import CorruptBatch

CONTINUATION = 0xFFFFFFFF
METADATA_BYTES_MAX = 16 << 10
"""The metadata of our widest schema has under 1 KiB; writers may pad, not more than this."""

METADATA_VERSION_V5 = 4
HEADER_TYPE_RECORD_BATCH = 3
PREFIX_BYTES = 8
"""Continuation marker and metadata length."""

_PREFIX = struct.Struct("<II")
_I16 = struct.Struct("<h")
_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_PAIR = struct.Struct("<qq")


class FieldNode(NamedTuple):
    length: int
    null_count: int


class BufferPlace(NamedTuple):
    """A buffer's place in the message body. Bytes."""

    offset: int
    length: int


class Message(NamedTuple):
    """What the metadata of one record batch message says."""

    body_at: int
    """Where the body starts, from the start of the message. Bytes."""
    body_length: int
    row_count: int
    nodes: tuple[FieldNode, ...]
    buffers: tuple[BufferPlace, ...]
    codec: int | None
    """None: not compressed; else 0 for lz4 frame, 1 for zstd."""


_VTABLES = {4 + 2 * fields: struct.Struct(f"<{fields}H") for fields in range(8)}
"""The vtables that we know, by their size in bytes. No table of Arrow has over seven fields."""


class Table:
    """One flatbuffer table: a place in the bytes and the offsets of its fields."""

    __slots__ = ("_data", "_fields", "_pos")

    def __init__(self, data: bytes, pos: int, fields_max: int) -> None:
        vtable = pos - _I32.unpack_from(data, pos)[0]
        if vtable < 0:
            raise CorruptBatch("the Arrow metadata points in front of itself")
        size = data[vtable] | data[vtable + 1] << 8
        if size > 4 + 2 * fields_max or size not in _VTABLES:
            # A field that we do not know might change the meaning of those that we do.
            raise CorruptBatch(f"an Arrow metadata table has a vtable of {size} bytes, unknown to version V5")
        self._data = data
        self._pos = pos
        self._fields: tuple[int, ...] = _VTABLES[size].unpack_from(data, vtable + 4)

    def place(self, field: int) -> int | None:
        """Where a field's value lies, None if the field is absent."""
        if field >= len(self._fields):
            return None
        offset = self._fields[field]
        return self._pos + offset if offset else None

    def number(self, field: int, kind: struct.Struct) -> int:
        place = self.place(field)
        return 0 if place is None else int(kind.unpack_from(self._data, place)[0])

    def byte(self, field: int) -> int:
        place = self.place(field)
        return 0 if place is None else self._data[place]

    def target(self, field: int) -> int | None:
        """Where the table or vector that a field points to lies, None if the field is absent."""
        place = self.place(field)
        return None if place is None else place + int(_U32.unpack_from(self._data, place)[0])

    def table(self, field: int, fields_max: int) -> Table | None:
        place = self.target(field)
        return None if place is None else Table(self._data, place, fields_max)

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """A vector of structs of two 64-bit numbers."""
        start = self.target(field)
        if start is None:
            return iter(())
        count = _U32.unpack_from(self._data, start)[0]
        end = start + 4 + count * _PAIR.size
        if end > len(self._data):
            raise CorruptBatch(f"the Arrow metadata says {count} entries, but ends before them")
        return _PAIR.iter_unpack(self._data[start + 4 : end])


def read_message(data: bytes | memoryview) -> Message:
    """The metadata of the record batch message that fills `data` exactly.

    Raises `CorruptBatch` when the bytes are anything else: another kind of message,
    bytes left over, buffers outside the body or in disorder.
    """
    try:
        return _read(memoryview(data))
    except (struct.error, IndexError) as error:
        raise CorruptBatch(f"the Arrow metadata is cut short or points outside itself: {error}") from None


def _read(data: memoryview) -> Message:
    marker, metadata_bytes = _PREFIX.unpack_from(data)
    if marker != CONTINUATION:
        raise CorruptBatch(f"the Arrow message starts with {marker:08x}; it must start with ffffffff")
    if metadata_bytes > METADATA_BYTES_MAX:
        raise CorruptBatch(
            f"the Arrow metadata has {metadata_bytes} bytes; at most {METADATA_BYTES_MAX} are allowed"
        )
    body_at = PREFIX_BYTES + metadata_bytes
    if body_at % 8 or body_at > len(data):
        raise CorruptBatch(f"the Arrow metadata of {metadata_bytes} bytes does not fit its message")
    metadata = bytes(data[PREFIX_BYTES:body_at])
    message = _parse_known(metadata) if metadata_bytes <= _KNOWN_BYTES_MAX else _parse(metadata)
    if body_at + message.body_length != len(data):
        raise CorruptBatch(
            f"the Arrow message ends after {body_at + message.body_length} bytes, the batch after {len(data)}"
        )
    return message


def _parse(metadata: bytes) -> Message:
    message = Table(metadata, _U32.unpack_from(metadata)[0], fields_max=5)
    version, kind = message.number(0, _I16), message.byte(1)
    if version != METADATA_VERSION_V5 or kind != HEADER_TYPE_RECORD_BATCH:
        raise CorruptBatch(f"the body must be one V5 record batch, not version {version + 1} type {kind}")
    if message.place(4) is not None:
        raise CorruptBatch("the Arrow message has custom metadata, which is not allowed in a batch")
    body_length = message.number(3, _I64)
    batch = message.table(2, fields_max=5)
    if batch is None:
        raise CorruptBatch("the Arrow message has no record batch")
    variadic = batch.target(4)
    if variadic is not None and _U32.unpack_from(metadata, variadic)[0]:
        raise CorruptBatch("the Arrow message has variadic buffers, but the schema has none")
    buffers = tuple(map(BufferPlace._make, batch.pairs(2)))
    _check_order(buffers, body_length)
    return Message(
        body_at=PREFIX_BYTES + len(metadata),
        body_length=body_length,
        row_count=batch.number(0, _I64),
        nodes=tuple(map(FieldNode._make, batch.pairs(1))),
        buffers=buffers,
        codec=_codec(batch),
    )


class Places(NamedTuple):
    """Where the numbers of a record batch message lie."""

    body_at: int
    """Where the body starts, from the start of the message. Bytes."""
    numbers: tuple[int, int, int, int]
    """In the metadata: the row count, the first field node, the first buffer, the length of the body."""


def places_of(data: bytes) -> Places:
    """The places of the numbers in a message of ours, for code that writes similar messages."""
    metadata = data[PREFIX_BYTES : PREFIX_BYTES + _PREFIX.unpack_from(data)[1]]
    message = Table(metadata, _U32.unpack_from(metadata)[0], fields_max=5)
    batch = message.table(2, fields_max=5)
    assert batch is not None
    body_length, rows = message.place(3), batch.place(0)
    nodes, buffers = batch.target(1), batch.target(2)
    assert body_length is not None
    assert rows is not None
    assert nodes is not None
    assert buffers is not None
    # A vector begins with its length.
    return Places(PREFIX_BYTES + len(metadata), (rows, nodes + _U32.size, buffers + _U32.size, body_length))


_KNOWN_BYTES_MAX = 1 << 10
_parse_known = lru_cache(maxsize=64)(_parse)
"""Batches of one producer often have the same metadata byte for byte: read it once."""


def _codec(batch: Table) -> int | None:
    compression = batch.table(3, fields_max=2)
    if compression is None:
        return None
    codec, method = compression.byte(0), compression.byte(1)
    if codec not in (0, 1) or method != 0:
        raise CorruptBatch(f"unknown Arrow compression: codec {codec}, method {method}")
    return codec


def _check_order(buffers: tuple[BufferPlace, ...], body_length: int) -> None:
    """Buffers lie inside the body, aligned, one after the other: none hides behind another.

    An empty one may lie anywhere in it.
    """
    end = 0
    for offset, length in buffers:
        floor = end if length else 0
        if length < 0 or offset < floor or offset % 8 or offset + length > body_length:
            raise CorruptBatch(
                f"an Arrow buffer of {length} bytes at {offset} overlaps another, is not aligned to 8, "
                f"or leaves the body of {body_length} bytes"
            )
        if length:
            end = offset + length

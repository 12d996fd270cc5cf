"""Walks over the messages of an Arrow IPC stream before Arrow reads any, and counts what they would become.

A stream of a hundred bytes can claim gigabytes: compressed buffers name their own length, and parts of the
metadata may point to the same place many times. The walk allocates nothing that a value asks for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

from tidelog.errors import CorruptBatch
from tidelog.records.decoded_size import decoded_buffer_bytes
from tidelog.records.message import CONTINUATION, BufferPlace, Table
from tidelog_spark.payload.decoded import BadValue
from tidelog_spark.payload.limits import DECODED_BYTES_MAX, FIELDS_MAX

MESSAGES_MAX: Final = 4096
"""A stream has its schema, a dictionary for some fields, and a batch."""

METADATA_BYTES_MAX: Final = 1 << 20
"""Of one message. It also bounds the names and texts of a schema, each counted as often as it is used."""

LEVELS_MAX: Final = 60
"""Levels of fields in each other; Arrow reads no more than 64."""

FIELD_BYTES: Final = 1024
"""No field of a schema takes more with its type and an empty column, apart from its texts."""

_PAIR_BYTES: Final = 64
"""What a pair of two texts counts apart from them."""

_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_TIMESTAMP, _UNION = 10, 14
_KNOWN_BYTES_MAX: Final = 4 << 10

_PREFIX = struct.Struct("<II")
_I16 = struct.Struct("<h")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")


class Scanned(NamedTuple):
    """What the metadata of a stream with one row says."""

    schema: bytes
    """The message of the schema, with its prefix."""
    cost: int
    """The most bytes that Arrow takes for the messages."""


class _Head(NamedTuple):
    kind: int
    body_length: int
    rows: int = 0
    buffers: tuple[BufferPlace, ...] = ()
    codec: int | None = None
    """None: the buffers are not compressed."""


def scan(value: bytes) -> Scanned:
    """The schema and the cost of a stream; raises `BadValue` if it is not a stream with one row."""
    try:
        return _scan(value)
    except CorruptBatch as error:
        raise BadValue(f"the value is not an Arrow IPC stream: {error.message}") from None
    except (struct.error, IndexError):
        raise BadValue("the value is not an Arrow IPC stream: it is cut short") from None


def _scan(value: bytes) -> Scanned:
    view = memoryview(value)
    schema, cost, rows, last = b"", 0, 0, 0
    at = count = 0
    while at < len(value):
        marker, size = _PREFIX.unpack_from(value, at)
        if marker != CONTINUATION:
            raise BadValue(f"the value is not an Arrow IPC stream: no message begins at byte {at}")
        body_at = at + _PREFIX.size + size
        if size == 0:
            if body_at < len(value):
                raise BadValue(f"the value has {len(value) - body_at} bytes after the end of the stream")
            break
        if size > METADATA_BYTES_MAX or size % 8 or body_at > len(value):
            raise BadValue(f"the Arrow metadata of {size} bytes at byte {at} is too long or not aligned")
        count += 1
        if count > MESSAGES_MAX:
            raise BadValue(f"the value has more than {MESSAGES_MAX} Arrow messages")
        metadata = value[at + _PREFIX.size : body_at]
        head = _known_head(metadata) if size <= _KNOWN_BYTES_MAX else _head(metadata)
        end = body_at + head.body_length
        if head.body_length < 0 or head.body_length % 8 or end > len(value):
            raise BadValue(f"the body of {head.body_length} bytes at byte {body_at} is not that of a message")
        # A dictionary that changes after a batch would be joined to the one before it again and again.
        if (head.kind == _SCHEMA) != (count == 1) or head.kind < last:
            raise BadValue("an Arrow message is not in its place: schema, dictionaries, batches")
        last = head.kind
        schema = schema or value[at:end]
        body = view[body_at:end]
        cost += sum(_buffer_bytes(body, place, head.codec) for place in head.buffers)
        rows += head.rows
        at = end
    if not schema:
        raise BadValue("the value is empty; it must be an Arrow IPC stream")
    if rows != 1:
        raise BadValue(f"the value has {rows} rows; it must have exactly one")
    return Scanned(schema, cost)


def _buffer_bytes(body: memoryview, place: BufferPlace, codec: int | None) -> int:
    if place.offset < 0 or place.length < 0 or place.offset % 8 or place.offset + place.length > len(body):
        raise BadValue(f"an Arrow buffer of {place.length} bytes at {place.offset} leaves its message")
    found = decoded_buffer_bytes(body, place, codec)
    if found > DECODED_BYTES_MAX:
        raise too_large()
    return found


def too_large() -> BadValue:
    """The reason of a value that takes more than the limit."""
    return BadValue(f"the value would become more than {DECODED_BYTES_MAX} bytes")


def _head(metadata: bytes) -> _Head:
    """What the metadata of one message says."""
    message = _root(metadata)
    kind, body_length = message.byte(1), message.number(3, _I64)
    if kind == _SCHEMA:
        return _Head(kind, body_length)
    if kind not in (_DICTIONARY, _BATCH):
        raise BadValue(f"the value has an Arrow message of type {kind}; it must have batches of columns")
    batch = message.table(2, fields_max=5)
    if kind == _DICTIONARY and batch is not None:
        batch = batch.table(1, fields_max=5)
    if batch is None:
        raise BadValue("an Arrow message has no batch of columns")
    rows = batch.number(0, _I64)
    if rows < 0:
        raise BadValue(f"an Arrow batch has {rows} rows")
    _bounded(0, _texts(metadata, message, 4))
    return _Head(
        kind,
        body_length,
        rows if kind == _BATCH else 0,
        tuple(map(BufferPlace._make, batch.pairs(2))),
        None if (compression := batch.table(3, fields_max=2)) is None else compression.byte(0),
    )


_known_head = lru_cache(maxsize=64)(_head)
"""Values of one writer often have the same metadata byte for byte."""


def _root(metadata: bytes) -> Table:
    return Table(metadata, _U32.unpack_from(metadata)[0], fields_max=5)


def _bounded(total: int, sizes: Iterable[int]) -> int:
    """The sum of both; raises `BadValue` at once if it is too large."""
    for size in sizes:
        total += size
        if total > METADATA_BYTES_MAX:
            raise BadValue(f"the texts of an Arrow message have more than {METADATA_BYTES_MAX} bytes")
    return total


def schema_cost(message: bytes) -> int:
    """The most bytes that Arrow takes for the fields of a schema; raises `BadValue` if it has too many."""
    try:
        return _schema_cost(message[_PREFIX.size :])
    except CorruptBatch as error:
        raise BadValue(f"the Arrow schema cannot be read: {error.message}") from None
    except (struct.error, IndexError):
        raise BadValue("the Arrow schema cannot be read: it points outside itself") from None


def _schema_cost(metadata: bytes) -> int:
    message = _root(metadata)
    schema = message.table(2, fields_max=4)
    if schema is None:
        raise BadValue("the first Arrow message has no schema")
    total = _bounded(8 * _length(metadata, schema, 3), _texts(metadata, message, 4))
    total = _bounded(total, _texts(metadata, schema, 2))
    count = 0
    levels = [_tables(metadata, schema, 1, fields_max=7)]
    while levels:
        field = next(levels[-1], None)
        if field is None:
            levels.pop()
            continue
        count += 1
        if count > FIELDS_MAX:
            raise BadValue(f"the Arrow schema has more than {FIELDS_MAX} fields")
        if len(levels) > LEVELS_MAX:
            raise BadValue(f"the Arrow schema is deeper than {LEVELS_MAX} levels")
        own = (_length(metadata, field, 0), _kind_bytes(metadata, field))
        total = _bounded(total, chain(own, _texts(metadata, field, 6)))
        levels.append(_tables(metadata, field, 5, fields_max=7))
    return total + count * FIELD_BYTES


def _kind_bytes(metadata: bytes, field: Table) -> int:
    """Of the parts of a type whose size is not fixed: a time zone, the numbers of a union."""
    kind = field.byte(2)
    if kind not in (_TIMESTAMP, _UNION):
        return 0
    parts = field.table(3, fields_max=2)
    return 0 if parts is None else _length(metadata, parts, 1) * (4 if kind == _UNION else 1)


def _texts(metadata: bytes, table: Table, field: int) -> Iterator[int]:
    """The sizes of keys and values in a vector of both."""
    for pair in _tables(metadata, table, field, fields_max=2):
        yield _PAIR_BYTES + _length(metadata, pair, 0) + _length(metadata, pair, 1)


def _tables(metadata: bytes, table: Table, field: int, fields_max: int) -> Iterator[Table]:
    """The tables in a vector."""
    start = table.target(field)
    if start is None:
        return
    for number in range(_U32.unpack_from(metadata, start)[0]):
        place = start + 4 + 4 * number
        yield Table(metadata, place + _U32.unpack_from(metadata, place)[0], fields_max)


def _length(metadata: bytes, table: Table, field: int) -> int:
    """The items of a vector, or the bytes of a text."""
    start = table.target(field)
    return 0 if start is None else int(_U32.unpack_from(metadata, start)[0])

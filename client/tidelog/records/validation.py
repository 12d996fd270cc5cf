"""The checks of a client's batch before the leader writes it (F1).

The order matters: no buffer is decompressed before its size is known, no body is decoded before its CRC
is checked, and every statement of the header is compared with the data. Every refusal is a typed,
definite error.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import pyarrow as pa

from tidelog.errors import BatchTooLarge, CorruptBatch, InvalidTimestamp, UnsupportedVersion
from tidelog.records.checksum import crc32c
from tidelog.records.codec import decode_batch
from tidelog.records.decoded_size import (
    LENGTH_PREFIX_BYTES,
    UNCOMPRESSED,
    decoded_buffer_bytes,
    decoded_bytes,
)
from tidelog.records.layout import (
    BROKER_ONLY_ATTRIBUTES,
    HEADER_BYTES,
    KNOWN_ATTRIBUTES,
    NO_PRODUCER_ID,
    SCHEMA_VERSION,
    BatchHeader,
    Compression,
    check_framing,
)
from tidelog.records.limits import RECORDS_PER_BATCH_MAX, BatchLimits
from tidelog.records.message import BufferPlace, FieldNode, Message, read_message
from tidelog.records.schema import Columns, schema_of_attributes, timestamp_span_us

_I64 = struct.Struct("<q")
_ZEROS = bytes(24)
_ARROW_CODEC_OF: dict[int, int | None] = {Compression.NONE: None, Compression.LZ4: 0, Compression.ZSTD: 1}
_ARROW_CODEC_NAME = {0: "lz4", 1: "zstd"}


class _NodeShape(NamedTuple):
    """One Arrow field node of a schema, with the place of its validity bitmap."""

    name: str
    nullable: bool
    parent: int | None
    """Index of the struct node that it is a field of; both have the same length. None: it is in no struct."""
    top_level: bool
    validity: int
    """Index of its first buffer, the validity bitmap."""


class _Shape(NamedTuple):
    nodes: tuple[_NodeShape, ...]
    buffer_count: int


def _shape_of(schema: pa.Schema) -> _Shape:
    """The nodes and buffers of a message with this schema, depth first as Arrow writes them."""
    nodes: list[_NodeShape] = []
    buffers = 0

    def visit(field: pa.Field, prefix: str, parent: int | None) -> None:
        nonlocal buffers
        name = f"{prefix}{field.name}"
        own = len(nodes)
        nodes.append(_NodeShape(name, field.nullable, parent, not prefix, buffers))
        if pa.types.is_list(field.type):
            buffers += 2
            visit(field.type.value_field, f"{name}.", None)
        elif pa.types.is_struct(field.type):
            buffers += 1
            for child in field.type.fields:
                visit(child, f"{name}.", own)
        elif pa.types.is_binary(field.type) or pa.types.is_string(field.type):
            buffers += 3
        else:
            buffers += 2

    for field in schema:
        visit(field, "", None)
    return _Shape(tuple(nodes), buffers)


_SHAPES = tuple(_shape_of(schema_of_attributes(bits << 2)) for bits in range(8))
"""By bits 2–4 of the attributes: the optional columns that a client can send."""


class BatchClaims(NamedTuple):
    """The header and the message of a batch, found consistent: the CRC holds, nothing is decompressed yet."""

    header: BatchHeader
    batch: pa.Buffer
    message: Message
    decoded_bytes: int
    """Bytes of all buffers after decompression."""


def validate_batch(
    batch: bytes | memoryview,
    limits: BatchLimits,
    *,
    now_us: int,
    timestamp_ahead_us_max: int | None = None,
) -> BatchHeader:
    """The header of `batch` if a leader may write it; raises a typed, definite error if not (F1, F4, F6).

    `now_us` and `timestamp_ahead_us_max` bound the timestamps of records (None: no bound). The append
    guard checks producer state and expected offsets. `read_claims` and `check_contents` do the same in
    two steps, for a caller that must know how much work the second step is.
    """
    claims = read_claims(batch, limits)
    check_contents(claims, now_us=now_us, timestamp_ahead_us_max=timestamp_ahead_us_max)
    return claims.header


def read_claims(batch: bytes | memoryview, limits: BatchLimits) -> BatchClaims:
    """The cheap part of `validate_batch`: its time grows with the size of the batch as it was sent."""
    header = _check_header(batch, limits)
    buffer = pa.py_buffer(batch)
    found = crc32c(buffer.slice(36))
    if found != header.body_crc:
        raise CorruptBatch(f"the body CRC is {found:08x}, the header says {header.body_crc:08x}")
    view = memoryview(batch)[HEADER_BYTES:]
    message = read_message(view)
    return BatchClaims(header, buffer, message, _check_message(header, message, view, limits))


def check_contents(claims: BatchClaims, *, now_us: int, timestamp_ahead_us_max: int | None = None) -> None:
    """The other part of `validate_batch`: its time and memory grow with `decoded_bytes`.

    It uses only its arguments, so it may run in any thread.
    """
    header = claims.header
    _check_bitmaps(header, claims.message, memoryview(claims.batch)[HEADER_BYTES:])
    columns = decode_batch(claims.batch, header)
    try:
        columns.validate(full=True)
        if header.attributes & Columns.SUBJECT:
            _check_text_under_nulls(columns.column("subject"))
    except pa.ArrowException as error:
        raise CorruptBatch(f"the Arrow data is not valid: {error}") from None
    _check_timestamps(header, columns, now_us, timestamp_ahead_us_max)


def _check_header(batch: bytes | memoryview, limits: BatchLimits) -> BatchHeader:
    if len(batch) < HEADER_BYTES:
        raise CorruptBatch(f"the batch has {len(batch)} bytes; a batch has at least {HEADER_BYTES}")
    header = BatchHeader.unpack(batch)
    check_framing(header, len(batch))
    if header.length != len(batch):
        raise CorruptBatch(f"the header says {header.length} bytes, but {len(batch)} bytes were sent")
    if header.length > limits.batch_bytes_max:
        raise BatchTooLarge(
            f"the batch has {header.length} bytes; this stream takes at most {limits.batch_bytes_max} "
            f"(batch_bytes_max)",
            batch_bytes_max=limits.batch_bytes_max,
        )
    if header.schema_version != SCHEMA_VERSION:
        raise UnsupportedVersion(
            f"the batch has schema version {header.schema_version}; this broker takes {SCHEMA_VERSION}"
        )
    if header.attributes & ~KNOWN_ATTRIBUTES or header.compression not in _ARROW_CODEC_OF:
        raise UnsupportedVersion(
            f"the attributes {header.attributes:#06x} have bits that version 1 does not know"
        )
    if header.attributes & BROKER_ONLY_ATTRIBUTES:
        raise CorruptBatch(f"the attributes are {header.attributes:#06x}; only brokers set bits 5–7")
    if (header.reserved and not header.of_sink) or batch[8:32] != _ZEROS:
        raise CorruptBatch(
            "bytes 8–31 (set by the leader) and 62–63 (reserved, but for sinks) must be zero (F6)"
        )
    count = header.record_count
    if not 1 <= count <= RECORDS_PER_BATCH_MAX or header.last_offset_delta != count - 1:
        raise CorruptBatch(
            f"the header says {count} records and a last offset delta of {header.last_offset_delta}; a "
            f"client's batch has 1–{RECORDS_PER_BATCH_MAX} records, and the delta is one less"
        )
    if header.producer_id == NO_PRODUCER_ID and (header.base_sequence or header.producer_epoch):
        raise CorruptBatch("a batch without a producer id must have sequence 0 and producer epoch 0 (F6)")
    return header


def _check_message(header: BatchHeader, message: Message, view: memoryview, limits: BatchLimits) -> int:
    """Checks nodes and buffers against the schema; returns the bytes of all buffers after decompression."""
    shape = _SHAPES[header.columns >> 2]
    if len(message.nodes) != len(shape.nodes) or len(message.buffers) != shape.buffer_count:
        raise CorruptBatch(
            f"the body has {len(message.nodes)} nodes and {len(message.buffers)} buffers; the columns of "
            f"this batch need {len(shape.nodes)} and {shape.buffer_count}"
        )
    if message.codec != _ARROW_CODEC_OF[header.compression]:
        raise CorruptBatch("the body has another compression than the attributes say")
    if message.row_count != header.record_count:
        raise CorruptBatch(
            f"the body has {message.row_count} rows, but the header says {header.record_count} records"
        )
    decoded = decoded_bytes(message, view)
    if decoded > limits.batch_decoded_bytes_max:
        raise BatchTooLarge(
            f"the batch decodes to {decoded} bytes; this stream takes at most "
            f"{limits.batch_decoded_bytes_max} (batch_decoded_bytes_max)",
            batch_decoded_bytes_max=limits.batch_decoded_bytes_max,
        )
    for node, place in zip(message.nodes, shape.nodes, strict=True):
        _check_node(node, place, header.record_count, decoded)
        if place.parent is not None and node.length != message.nodes[place.parent].length:
            raise CorruptBatch(
                f"column {place.name} has {node.length} entries, but its struct has another number"
            )
    return decoded


def _check_bitmaps(header: BatchHeader, message: Message, view: memoryview) -> None:
    body = view[message.body_at :]
    for node, place in zip(message.nodes, _SHAPES[header.columns >> 2].nodes, strict=True):
        if node.null_count or message.buffers[place.validity].length:
            _check_validity(node, place, body, message)


def _check_node(node: FieldNode, shape: _NodeShape, count: int, decoded: int) -> None:
    if shape.top_level and node.length != count:
        raise CorruptBatch(f"column {shape.name} has {node.length} rows, but the header says {count} records")
    # Below the top level a length is bounded by the bytes that its offsets take.
    if not 0 <= node.length <= max(count, decoded) or not 0 <= node.null_count <= node.length:
        raise CorruptBatch(f"column {shape.name} claims {node.length} rows with {node.null_count} nulls")
    if node.null_count and not shape.nullable:
        raise CorruptBatch(f"column {shape.name} has {node.null_count} nulls; nulls are not allowed in it")


def _check_validity(node: FieldNode, shape: _NodeShape, body: memoryview, message: Message) -> None:
    """Checks that the null count fits the bitmap, so that a reader sees the same nulls by either of them."""
    place = message.buffers[shape.validity]
    if place.length == 0:
        if node.null_count:
            raise CorruptBatch(f"column {shape.name} claims {node.null_count} nulls without a bitmap")
        return
    needed = (node.length + 7) // 8
    bitmap = _plain_buffer(body, place, message.codec, bytes_max=needed + 64)
    if bitmap.size < needed:
        raise CorruptBatch(
            f"the validity bitmap of column {shape.name} has {bitmap.size} bytes for {node.length} rows"
        )
    if node.length == 0:
        return
    valid = pa.BooleanArray.from_buffers(pa.bool_(), node.length, [None, bitmap]).true_count
    if node.length - valid != node.null_count:
        raise CorruptBatch(
            f"column {shape.name} claims {node.null_count} nulls, but its bitmap has {node.length - valid}"
        )


def _plain_buffer(body: memoryview, place: BufferPlace, codec: int | None, *, bytes_max: int) -> pa.Buffer:
    raw = pa.py_buffer(body[place.offset : place.offset + place.length])
    if codec is None:
        return raw
    size = decoded_buffer_bytes(body, place, codec)
    raw = raw.slice(LENGTH_PREFIX_BYTES)
    if _I64.unpack_from(body, place.offset)[0] == UNCOMPRESSED:
        return raw
    if size > bytes_max:
        raise CorruptBatch(f"a validity bitmap claims {size} bytes; at most {bytes_max} are allowed")
    name = _ARROW_CODEC_NAME[codec]
    try:
        plain = pa.decompress(raw, decompressed_size=size, codec=name)
        # When an lz4 frame ends early, Arrow fills the rest with whatever was in that memory.
        if name == "lz4" and _streamed_bytes(raw, name, size) != size:
            raise CorruptBatch(f"a compressed validity bitmap claims {size} bytes, but has fewer")
    except (pa.ArrowException, OSError) as error:
        raise CorruptBatch(f"a validity bitmap cannot be decompressed: {error}") from None
    return plain


def _streamed_bytes(raw: pa.Buffer, codec: str, bytes_max: int) -> int:
    return int(pa.CompressedInputStream(pa.BufferReader(raw), codec).read_buffer(bytes_max).size)


def _check_text_under_nulls(text: pa.Array) -> None:
    """Checks that the bytes under a null are UTF-8: some readers check the column without its bitmap."""
    if text.null_count:
        offsets, data = text.buffers()[1:]
        pa.Array.from_buffers(text.type, len(text), [None, offsets, data], 0).validate(full=True)


def _check_timestamps(
    header: BatchHeader, columns: pa.RecordBatch, now_us: int, ahead_us_max: int | None
) -> None:
    smallest, largest = timestamp_span_us(columns.column("timestamp"))
    if (smallest, largest) != (header.timestamp_min_us, header.timestamp_max_us):
        raise CorruptBatch(
            f"the header says timestamps {header.timestamp_min_us}–{header.timestamp_max_us} µs, "
            f"but the records have {smallest}–{largest} µs"
        )
    if ahead_us_max is not None and largest > now_us + ahead_us_max:
        raise InvalidTimestamp(
            f"a record's timestamp is {(largest - now_us) / 1e6:.3f} s ahead of the broker's clock; "
            f"at most {ahead_us_max / 1e6:.3f} s are allowed (timestamp_ahead_ms_max)"
        )

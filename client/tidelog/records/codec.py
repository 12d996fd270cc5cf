"""Columns to batch and batch to columns.

`encode_batch` makes what a client sends; `stamp` is the leader's part of the header;
`decode_batch` opens a batch without a copy (unless it is compressed). None of them
trusts or checks foreign bytes: that is `validation`'s work, or the CRCs'.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from tidelog.errors import BatchTooLarge, CorruptBatch, InvalidRequest
from tidelog.records.checksum import crc32c
from tidelog.records.layout import (
    ALIGNMENT,
    COMPRESSION_MASK,
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    SCHEMA_VERSION,
    BatchHeader,
    Compression,
)
from tidelog.records.limits import BATCH_BYTES_HARD_MAX
from tidelog.records.schema import (
    COLUMNS_ORDER,
    columns_of,
    field_of,
    schema_of,
    schema_of_attributes,
    timestamp_span_us,
)

# One batch is one large buffer and some small ones: waking Arrow's threads for each of
# them costs ten times what compressing a small batch does.
_WRITE_OPTIONS: dict[int, pa.ipc.IpcWriteOptions] = {
    Compression.LZ4: pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False),
    Compression.ZSTD: pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False),
}
_READ_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)

_COPY_BYTES_MAX = 128 << 10
"""Compressed batches up to this size are copied once to be opened without threads."""

_LEADER_FIELDS = struct.Struct("<4sIqqI")
_CLIENT_FIELDS = struct.Struct("<HHIIQIHHqq")
_CRC_PLACE = struct.Struct("<16sI")
_U32 = struct.Struct("<I")


def encode_batch(
    columns: pa.RecordBatch,
    *,
    compression: Compression = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = 0,
    base_sequence: int = 0,
    flags: int = 0,
    sink_batch_id: int = 0,
) -> bytes:
    """One record batch, as a client sends it: the leader's fields (bytes 8–31) are zero.

    `columns` has a schema of `schema_of` (see `to_columns`); `flags` are the
    broker-only attribute bits; `sink_batch_id` belongs to a producer id of a sink (S1), without an epoch.
    Raises `BatchTooLarge` beyond the hard bound (F3).
    """
    count = columns.num_rows
    if count == 0:
        raise InvalidRequest("the batch has no record; it must have at least one")
    attributes = int(compression) | int(columns_of(columns.schema)) | flags
    return assemble_batch(
        _message(columns, attributes),
        attributes=attributes,
        count=count,
        span_us=timestamp_span_us(columns.column("timestamp")),
        producer_id=producer_id,
        producer_epoch=producer_epoch or sink_batch_id & 0xFFFF,
        base_sequence=base_sequence,
        reserved=sink_batch_id >> 16,
    )


def assemble_batch(
    message: bytes | pa.Buffer,
    *,
    attributes: int,
    count: int,
    span_us: tuple[int, int],
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    reserved: int = 0,
) -> bytes:
    """The header and the Arrow `message` behind it: `count` records with timestamps in `span_us`."""
    length = HEADER_BYTES + len(message)
    if length > BATCH_BYTES_HARD_MAX:
        raise BatchTooLarge(
            f"{count} records make a batch of {length} bytes; at most {BATCH_BYTES_HARD_MAX} are allowed"
        )
    assert length % ALIGNMENT == 0
    tail = _CLIENT_FIELDS.pack(
        attributes,
        SCHEMA_VERSION,
        count,
        count - 1,
        producer_id,
        base_sequence,
        producer_epoch,
        reserved,
        *span_us,
    )
    body_crc = crc32c(message, crc32c(tail))
    head = _LEADER_FIELDS.pack(MAGIC, length, 0, 0, 0)
    return b"".join((head, b"\0\0\0\0", _U32.pack(body_crc), tail, message))


def _message(columns: pa.RecordBatch, attributes: int) -> pa.Buffer:
    compression = attributes & COMPRESSION_MASK
    if compression == Compression.NONE:
        return columns.serialize()
    # RecordBatch.serialize() cannot compress, so the message is cut out of a stream (F5).
    # Under our own schema: what metadata the caller's carries does not matter.
    sink = pa.BufferOutputStream()
    writer = pa.ipc.new_stream(sink, schema_of_attributes(attributes), options=_WRITE_OPTIONS[compression])
    writer.write_batch(columns)
    return sink.getvalue().slice(len(_SCHEMA_MESSAGES[attributes >> 2 & 0b1111]))


def stamp(
    batch: bytes | memoryview,
    *,
    stream_id: bytes,
    partition: int,
    base_offset: int,
    append_time_us: int,
    leader_epoch: int,
) -> bytes:
    """The header that the leader writes in front of `batch`'s untouched body (F2)."""
    length = _U32.unpack_from(batch, 4)[0]
    head = _LEADER_FIELDS.pack(MAGIC, length, base_offset, append_time_us, leader_epoch)
    client = bytes(batch[32:HEADER_BYTES])
    crc = crc32c(_CRC_PLACE.pack(stream_id, partition) + head + client[:4])
    return b"".join((head, _U32.pack(crc), client))


def decode_batch(batch: bytes | pa.Buffer, header: BatchHeader | None = None) -> pa.RecordBatch:
    """The columns of one whole batch, as views where it is not compressed.

    Raises `CorruptBatch` when Arrow cannot open the body.
    """
    buffer = batch if isinstance(batch, pa.Buffer) else pa.py_buffer(batch)
    if buffer.size < HEADER_BYTES:
        raise CorruptBatch(f"the batch has {buffer.size} bytes; a batch has at least {HEADER_BYTES}")
    return decode_body(buffer.slice(HEADER_BYTES), BatchHeader.unpack(buffer) if header is None else header)


def decode_body(body: pa.Buffer, header: BatchHeader) -> pa.RecordBatch:
    """As `decode_batch`, for the body without its header."""
    attributes = header.attributes
    try:
        if attributes & COMPRESSION_MASK and body.size <= _COPY_BYTES_MAX:
            return _open_compressed(attributes, body)
        return pa.ipc.read_record_batch(body, schema_of_attributes(attributes))
    except (pa.ArrowException, OSError, EOFError, StopIteration) as error:
        raise CorruptBatch(f"Arrow cannot read the body: {error}") from None


_SCHEMA_MESSAGES = tuple(schema_of_attributes(bits << 2).serialize().to_pybytes() for bits in range(16))
"""The IPC schema message in front of a batch, by bits 2–5 of the attributes."""


def _open_compressed(attributes: int, body: pa.Buffer) -> pa.RecordBatch:
    """Opens a body without Arrow's threads, for which its stream reader must see a schema first."""
    schema = _SCHEMA_MESSAGES[attributes >> 2 & 0b1111]
    stream = b"".join((schema, body))
    return pa.ipc.open_stream(stream, options=_READ_OPTIONS).read_next_batch()


def to_columns(data: pa.RecordBatch | pa.Table, *, now_us: int) -> pa.RecordBatch:
    """Foreign Arrow data as columns of a batch: known names, our order, our types.

    Takes any of the columns key, value, headers, subject and timestamp; text becomes
    binary where that is asked for, a missing timestamp becomes `now_us`, a missing
    value null (tombstones). Raises `InvalidRequest` for columns that a record has no
    place for and for values that do not convert.
    """
    if isinstance(data, pa.Table):
        batches = data.combine_chunks().to_batches()
        if not batches:
            raise InvalidRequest("the table has no rows; it must have at least one")
        if len(batches) > 1:
            raise BatchTooLarge(f"a table of {data.nbytes} bytes does not fit into one record batch")
        data = batches[0]
    unknown = [name for name in data.schema.names if name not in COLUMNS_ORDER]
    if unknown or len(set(data.schema.names)) != len(data.schema.names):
        raise InvalidRequest(
            f"the columns are {', '.join(data.schema.names)}; a record has {', '.join(COLUMNS_ORDER)}, each "
            "at most once"
        )
    schema = schema_of(columns_of(data.schema))
    if data.schema.equals(schema):
        columns = data
    else:
        columns = pa.record_batch([_column(data, name, now_us) for name in schema.names], schema=schema)
    if columns.column("timestamp").null_count:
        raise InvalidRequest(
            "the timestamp column has nulls; give each record a timestamp, or leave the column out"
        )
    if "headers" in columns.schema.names:
        _check_headers(columns.column("headers"))
    return columns


def _check_headers(headers: pa.ListArray) -> None:
    if headers.null_count:
        raise InvalidRequest("the headers column has nulls; use an empty list for a record without headers")
    items = headers.flatten()
    if items.null_count or items.field("key").null_count:
        raise InvalidRequest(
            "a header in the headers column has no key; its value may be null, but not its key"
        )


def _column(data: pa.RecordBatch, name: str, now_us: int) -> pa.Array:
    field = field_of(name)
    if name not in data.schema.names:
        if name == "timestamp":
            return pa.repeat(pa.scalar(now_us, field.type), data.num_rows)
        return pa.nulls(data.num_rows, field.type)
    try:
        return data.column(name).cast(field.type)
    except pa.ArrowException as error:
        raise InvalidRequest(
            f"column {name} is {data.schema.field(name).type} and cannot become {field.type}: {error}"
        ) from None

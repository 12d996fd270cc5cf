"""Takes columns out of an Arrow message, and writes messages of columns, without decoding them.

The buffers of a column are moved as they are, compressed or not: only the metadata is written. Neighbours:
`message` reads the metadata, `projecting` decides which columns.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final, NamedTuple

import pyarrow as pa

from tidelog.records.decoded_size import LENGTH_PREFIX_BYTES, UNCOMPRESSED, decoded_buffer_bytes
from tidelog.records.layout import Compression
from tidelog.records.message import PREFIX_BYTES, FieldNode, Message, places_of

_CODECS: Final = {Compression.LZ4: "lz4", Compression.ZSTD: "zstd"}
_PADDING: Final = tuple(bytes(-length % 8) for length in range(8))
_RAW_PREFIX: Final = struct.pack("<q", UNCOMPRESSED)
assert len(_RAW_PREFIX) == LENGTH_PREFIX_BYTES


class Column(NamedTuple):
    """One column of a message: its nodes and its buffers, depth first."""

    nodes: Sequence[FieldNode]
    buffers: Sequence[bytes | memoryview]
    """Compressed as the message is."""


class _Span(NamedTuple):
    nodes: slice
    buffers: slice


@cache
def _spans(schema: pa.Schema) -> dict[str, _Span]:
    """Where the nodes and buffers of each column are in the message of a schema."""
    spans: dict[str, _Span] = {}
    node = buffer = 0
    for field in schema:
        nodes, buffers = _counts(field.type)
        spans[field.name] = _Span(slice(node, node + nodes), slice(buffer, buffer + buffers))
        node, buffer = node + nodes, buffer + buffers
    return spans


def _counts(kind: pa.DataType) -> tuple[int, int]:
    """The nodes and buffers of a type."""
    if pa.types.is_list(kind):
        nodes, buffers = _counts(kind.value_type)
        return nodes + 1, buffers + 2
    if pa.types.is_struct(kind):
        inner = [_counts(field.type) for field in kind.fields]
        return 1 + sum(nodes for nodes, _ in inner), 1 + sum(buffers for _, buffers in inner)
    return 1, 3 if pa.types.is_binary(kind) or pa.types.is_string(kind) else 2


def decoded_column_bytes(message: Message, view: memoryview, schema: pa.Schema, names: Iterable[str]) -> int:
    """The bytes of some columns of the `message` that fills `view`, decompressed; raises `CorruptBatch`."""
    body, spans = view[message.body_at :], _spans(schema)
    return sum(
        decoded_buffer_bytes(body, place, message.codec)
        for name in names
        for place in message.buffers[spans[name].buffers]
    )


def column_of(message: Message, view: memoryview, schema: pa.Schema, name: str) -> Column:
    """A column of the `message` that fills `view`, as views."""
    body, span = view[message.body_at :], _spans(schema)[name]
    places = message.buffers[span.buffers]
    return Column(message.nodes[span.nodes], [body[at : at + length] for at, length in places])


def number_column(numbers: pa.Array, *, compressed: bool) -> Column:
    """A column of numbers without nulls, for a message that is `compressed`; its bytes are not."""
    data = memoryview(numbers.buffers()[1])
    start = numbers.offset * numbers.type.bit_width // 8
    data = data[start : start + len(numbers) * numbers.type.bit_width // 8]
    buffer = b"".join((_RAW_PREFIX, data)) if compressed else data
    return Column([FieldNode(len(numbers), 0)], [b"", buffer])


class MessageTemplate(NamedTuple):
    """The metadata of a message of some schema, and where its numbers lie."""

    metadata: bytes
    """With the prefix in front of it."""
    row_count_at: int
    nodes_at: int
    buffers_at: int
    body_length_at: int

    def filled(self, rows: int, nodes: Sequence[int], places: Sequence[int], body_length: int) -> bytes:
        """What stands before the buffers of a message: as Arrow writes it, with these numbers.

        `nodes` has the length and null count of each node, `places` the offset and length of each buffer.
        """
        metadata = bytearray(self.metadata)
        struct.pack_into("<q", metadata, self.row_count_at, rows)
        struct.pack_into("<q", metadata, self.body_length_at, body_length)
        struct.pack_into(f"<{len(nodes)}q", metadata, self.nodes_at, *nodes)
        struct.pack_into(f"<{len(places)}q", metadata, self.buffers_at, *places)
        return bytes(metadata)


@cache
def schema_message(schema: pa.Schema) -> bytes:
    """The IPC message of a schema, with which a stream of its batches begins."""
    return bytes(schema.serialize().to_pybytes())


def write_message(columns: pa.RecordBatch, compression: int) -> pa.Buffer:
    """The Arrow message of some columns, compressed by Arrow."""
    if compression == Compression.NONE:
        return columns.serialize()
    # RecordBatch.serialize() cannot compress, so the message is cut out of a stream (F5).
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=_CODECS[Compression(compression)], use_threads=False)
    pa.ipc.new_stream(sink, columns.schema, options=options).write_batch(columns)
    return sink.getvalue().slice(len(schema_message(columns.schema)))


@cache
def template_of(schema: pa.Schema, compression: int) -> MessageTemplate:
    """The template of the messages of a schema."""
    rows = [_example(field.type) for field in schema]
    batch = pa.record_batch(
        [pa.array([row], f.type) for row, f in zip(rows, schema, strict=True)], schema=schema
    )
    message = write_message(batch, compression).to_pybytes()
    found = places_of(message)
    return MessageTemplate(message[: found.body_at], *(PREFIX_BYTES + place for place in found.numbers))


def _example(kind: pa.DataType) -> object:
    """A value that is not null."""
    if pa.types.is_list(kind):
        return [{"key": "x", "value": b"x"}]
    return b"x" if pa.types.is_binary(kind) or pa.types.is_string(kind) else 1


def assemble(
    schema: pa.Schema, compression: int, rows: int, columns: Sequence[Column]
) -> list[bytes | memoryview]:
    """The message of these columns, in parts."""
    parts: list[bytes | memoryview] = []
    places: list[int] = []
    at = 0
    for column in columns:
        for buffer in column.buffers:
            places += (at, len(buffer))
            padding = _PADDING[len(buffer) % 8]
            parts += (buffer, padding)
            at += len(buffer) + len(padding)
    nodes = [number for column in columns for node in column.nodes for number in node]
    return [template_of(schema, compression).filled(rows, nodes, places, at), *parts]


def read_columns(
    message: Message, view: memoryview, schema: pa.Schema, names: Sequence[str]
) -> pa.RecordBatch:
    """Decodes only some columns of a compressed message; the names are in the order of the schema."""
    wanted = pa.schema([schema.field(name) for name in names])
    parts = assemble(
        wanted,
        Compression.LZ4 if message.codec == 0 else Compression.ZSTD,
        message.row_count,
        [column_of(message, view, schema, name) for name in names],
    )
    stream = b"".join((schema_message(wanted), *parts))
    # The stream reader, because it can do without Arrow's threads.
    return pa.ipc.open_stream(stream, options=pa.ipc.IpcReadOptions(use_threads=False)).read_next_batch()

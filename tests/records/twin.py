"""The dumb twin of `tidelog.records`: obviously right, slow, and written apart from it.

It reads and writes header fields one by one, computes CRC-32C bit by bit, and reads
records out of an Arrow body with nothing but slices and `int.from_bytes` (only
decompression is Arrow's). Of nulls it believes the bitmaps, never the counts, so that
it disagrees with a reader that believes the counts of a batch where they differ.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa

HEADER_FIELDS = [
    # name, offset, size, signed
    ("magic", 0, 4, None),
    ("length", 4, 4, False),
    ("base_offset", 8, 8, True),
    ("append_time_us", 16, 8, True),
    ("leader_epoch", 24, 4, False),
    ("header_crc", 28, 4, False),
    ("body_crc", 32, 4, False),
    ("attributes", 36, 2, False),
    ("schema_version", 38, 2, False),
    ("record_count", 40, 4, False),
    ("last_offset_delta", 44, 4, False),
    ("producer_id", 48, 8, False),
    ("base_sequence", 56, 4, False),
    ("producer_epoch", 60, 2, False),
    ("reserved", 62, 2, False),
    ("timestamp_min_us", 64, 8, True),
    ("timestamp_max_us", 72, 8, True),
]


def crc32c(data: bytes) -> int:
    """CRC-32C with the reflected polynomial 0x82f63b78, a bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _of_byte((crc ^ byte) & 0xFF)
    return crc ^ 0xFFFFFFFF


@cache
def _of_byte(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


def read_header(batch: bytes) -> dict[str, Any]:
    return {
        name: batch[at : at + size]
        if signed is None
        else int.from_bytes(batch[at : at + size], "little", signed=signed)
        for name, at, size, signed in HEADER_FIELDS
    }


def write_header(fields: dict[str, Any]) -> bytes:
    out = bytearray(80)
    for name, at, size, signed in HEADER_FIELDS:
        value = fields[name]
        out[at : at + size] = value if signed is None else value.to_bytes(size, "little", signed=signed)
    return bytes(out)


def header_crc(stream_id: bytes, partition: int, batch: bytes) -> int:
    return crc32c(stream_id + partition.to_bytes(4, "little") + batch[0:28] + batch[32:36])


def body_crc(batch: bytes) -> int:
    return crc32c(batch[36:])


# --- The Arrow body.


def _number(data: bytes, at: int, size: int, signed: bool = False) -> int:
    assert 0 <= at <= len(data) - size, "outside the bytes"
    return int.from_bytes(data[at : at + size], "little", signed=signed)


def _field(data: bytes, table: int, index: int) -> int | None:
    vtable = table - _number(data, table, 4, True)
    if 4 + 2 * index >= _number(data, vtable, 2):
        return None
    offset = _number(data, vtable + 4 + 2 * index, 2)
    return table + offset if offset else None


def _follow(data: bytes, table: int, index: int) -> int | None:
    at = _field(data, table, index)
    return None if at is None else at + _number(data, at, 4)


def _vector_of_pairs(data: bytes, at: int) -> list[tuple[int, int]]:
    return [
        (_number(data, at + 4 + 16 * i, 8, True), _number(data, at + 12 + 16 * i, 8, True))
        for i in range(_number(data, at, 4))
    ]


def read_message(message: bytes) -> tuple[list[tuple[int, int]], list[bytes], int | None]:
    """Field nodes (length, null count), the bytes of each buffer as stored, and the codec."""
    metadata_bytes = _number(message, 4, 4)
    metadata, body = message[8 : 8 + metadata_bytes], message[8 + metadata_bytes :]
    batch = _follow(metadata, _number(metadata, 0, 4), 2)
    assert batch is not None
    nodes, buffers = _follow(metadata, batch, 1), _follow(metadata, batch, 2)
    assert nodes is not None
    assert buffers is not None
    codec = None
    compression = _follow(metadata, batch, 3)
    if compression is not None:
        at = _field(metadata, compression, 0)
        codec = 0 if at is None else metadata[at]
    stored = [body[at : at + size] for at, size in _vector_of_pairs(metadata, buffers)]
    return _vector_of_pairs(metadata, nodes), stored, codec


def plain(stored: bytes, codec: int | None) -> bytes:
    """The bytes of a buffer, decompressed if they are compressed."""
    if codec is None or not stored:
        return stored
    size = _number(stored, 0, 8, True)
    if size == -1:
        return stored[8:]
    return bytes(
        pa.decompress(stored[8:], decompressed_size=size, codec=["lz4", "zstd"][codec], asbytes=True)
    )


def _valid(bitmap: bytes, row: int) -> bool:
    return not bitmap or bool(bitmap[row // 8] >> row % 8 & 1)


class _Body:
    def __init__(self, batch: bytes) -> None:
        self.nodes, stored, codec = read_message(batch[80:])
        self.buffers = [plain(one, codec) for one in stored]
        self.nodes.reverse()
        self.buffers.reverse()

    def binary(self) -> list[bytes | None]:
        rows, _ = self.nodes.pop()
        bitmap, offsets, data = self.buffers.pop(), self.buffers.pop(), self.buffers.pop()
        out: list[bytes | None] = []
        for row in range(rows):
            start, end = _number(offsets, 4 * row, 4, True), _number(offsets, 4 * row + 4, 4, True)
            assert 0 <= start <= end <= len(data)
            out.append(data[start:end] if _valid(bitmap, row) else None)
        return out

    def text(self) -> list[str | None]:
        return [None if value is None else value.decode() for value in self.binary()]

    def headers(self) -> list[list[dict[str, Any]] | None]:
        rows, _ = self.nodes.pop()
        bitmap, offsets = self.buffers.pop(), self.buffers.pop()
        items, _ = self.nodes.pop()
        item_bitmap = self.buffers.pop()
        keys, values = self.text(), self.binary()
        assert len(keys) == len(values) == items
        flat: list[Any] = [
            {"key": key, "value": value} if _valid(item_bitmap, row) else None
            for row, (key, value) in enumerate(zip(keys, values, strict=True))
        ]
        return [
            flat[_number(offsets, 4 * row, 4, True) : _number(offsets, 4 * row + 4, 4, True)]
            if _valid(bitmap, row)
            else None
            for row in range(rows)
        ]

    def numbers(self, size: int, signed: bool) -> list[int | None]:
        rows, _ = self.nodes.pop()
        bitmap, data = self.buffers.pop(), self.buffers.pop()
        return [
            _number(data, size * row, size, signed) if _valid(bitmap, row) else None for row in range(rows)
        ]


def read_records(batch: bytes) -> list[dict[str, Any]]:
    """The records of a batch, a dict each; columns that the batch lacks are not in it."""
    header, body = read_header(batch), _Body(batch)
    bits = header["attributes"]
    columns: dict[str, list[Any]] = {}
    if bits & 4:
        columns["key"] = body.binary()
    columns["value"] = body.binary()
    if bits & 8:
        columns["headers"] = body.headers()
    if bits & 16:
        columns["subject"] = body.text()
    columns["timestamp"] = body.numbers(8, signed=True)
    if bits & 32:
        columns["offset_delta"] = body.numbers(4, signed=False)
    assert {len(column) for column in columns.values()} == {header["record_count"]}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def records_of(columns: pa.RecordBatch) -> list[dict[str, Any]]:
    """What pyarrow sees in decoded columns, in the form of `read_records`: timestamps are µs."""
    at = columns.schema.get_field_index("timestamp")
    plainer = columns.set_column(at, "timestamp", columns.column(at).cast(pa.int64()))
    return list(plainer.to_pylist())

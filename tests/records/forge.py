"""Record batches that no honest writer makes: every part can be given, the CRCs are right.

A `Forgery` starts as what an honest batch holds (`of`) and writes the Arrow metadata by
hand, so that nodes, buffers, places, tables and vtables can lie one at a time. What
nobody changed must pass: a test says so.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import Any

import google_crc32c
import pyarrow as pa

from records import twin


def reseal(batch: bytes, **fields: Any) -> bytes:
    """`batch` with other header fields, and length and body CRC mended unless they are given."""
    if fields:
        batch = twin.write_header(twin.read_header(batch) | fields) + batch[80:]
    sealed = bytearray(batch)
    if "length" not in fields:
        sealed[4:8] = len(batch).to_bytes(4, "little")
    if "body_crc" not in fields:
        sealed[32:36] = google_crc32c.value(bytes(sealed[36:])).to_bytes(4, "little")
    return bytes(sealed)


def compressed(data: bytes, codec: int | None, *, claim: int | None = None) -> bytes:
    """A buffer as it is stored under `codec`; `claim` forges its length prefix."""
    if codec is None or not data:
        return data
    packed: bytes = pa.compress(data, codec=["lz4", "zstd"][codec], asbytes=True)
    return struct.pack("<q", len(data) if claim is None else claim) + packed


def stored_plain(data: bytes) -> bytes:
    """A buffer left as it is inside a compressed body."""
    return struct.pack("<q", -1) + data


@dataclass(frozen=True)
class Forgery:
    header: bytes
    nodes: list[tuple[int, int]]
    buffers: list[bytes]
    """As stored: with length prefix and compressed where there is a codec."""
    codec: int | None = None
    rows: int = 0
    places: list[tuple[int, int]] | None = None
    """Where the metadata says that the buffers lie; None: where they do."""
    body: bytes | None = None
    body_length: int | None = None
    version: int = 4
    kind: int = 3
    method: int = 0
    custom_metadata: bool = False
    variadic: list[int] | None = None
    unknown_fields: int = 0
    """Fields behind the last known one of the RecordBatch table."""
    unknown_codec_fields: int = 0
    """The same of the BodyCompression table."""
    padding: int = 0
    """Bytes of padding behind the metadata."""
    trailing: bytes = b""
    header_fields: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: bytes) -> Forgery:
        nodes, buffers, codec = twin.read_message(batch[80:])
        return cls(batch[:80], nodes, buffers, codec, rows=twin.read_header(batch)["record_count"])

    def but(self, **changes: Any) -> Forgery:
        return replace(self, **changes)

    def with_buffer(self, index: int, stored: bytes) -> Forgery:
        buffers = list(self.buffers)
        buffers[index] = stored
        return replace(self, buffers=buffers)

    def with_node(self, index: int, length: int, nulls: int) -> Forgery:
        nodes = list(self.nodes)
        nodes[index] = (length, nulls)
        return replace(self, nodes=nodes)

    def with_place(self, index: int, offset: int, length: int) -> Forgery:
        places = self.honest_places() if self.places is None else list(self.places)
        places[index] = (offset, length)
        return replace(self, places=places)

    def honest_places(self) -> list[tuple[int, int]]:
        places, at = [], 0
        for stored in self.buffers:
            places.append((at, len(stored)))
            at += -(-len(stored) // 8) * 8
        return places

    def metadata(self, body_length: int) -> bytes:
        """The flatbuffer, tables first, vectors behind them, all aligned as a verifier wants it."""
        out = bytearray(8)

        def table(slots: list[int], size: int) -> int:
            out.extend(bytes(-len(out) % 8))
            vtable = len(out)
            out.extend(struct.pack(f"<HH{len(slots)}H", 4 + 2 * len(slots), size, *slots))
            out.extend(bytes((4 - len(out)) % 8))
            at = len(out)
            out.extend(struct.pack("<i", at - vtable) + bytes(size - 4))
            return at

        def point(at: int, target: int) -> None:
            struct.pack_into("<I", out, at, target - at)

        def pairs(values: list[tuple[int, int]]) -> int:
            out.extend(bytes((4 - len(out)) % 8))
            at = len(out)
            out.extend(struct.pack("<I", len(values)))
            for one in values:
                out.extend(struct.pack("<qq", *one))
            return at

        message = table([16, 18, 12, 4, 20 if self.custom_metadata else 0], 24)
        batch = table(
            [4, 12, 16, 0 if self.codec is None else 20, 0 if self.variadic is None else 24]
            + [28] * self.unknown_fields,
            32,
        )
        struct.pack_into("<I", out, 0, message)
        struct.pack_into("<q", out, message + 4, body_length)
        point(message + 12, batch)
        struct.pack_into("<hB", out, message + 16, self.version, self.kind)
        struct.pack_into("<q", out, batch + 4, self.rows)
        point(batch + 12, pairs(self.nodes))
        point(batch + 16, pairs(self.honest_places() if self.places is None else self.places))
        if self.codec is not None:
            compression = table([4, 5] + [6] * self.unknown_codec_fields, 8)
            struct.pack_into("<bb", out, compression + 4, self.codec, self.method)
            point(batch + 20, compression)
        if self.variadic is not None:
            out.extend(bytes((4 - len(out)) % 8))
            point(batch + 24, len(out))
            out.extend(struct.pack(f"<I{len(self.variadic)}q", len(self.variadic), *self.variadic))
        if self.custom_metadata:
            out.extend(bytes((4 - len(out)) % 8))
            point(message + 20, len(out))
            out.extend(struct.pack("<I", 0))
        out.extend(bytes(-len(out) % 8 + self.padding))
        return bytes(out)

    def message(self) -> bytes:
        body = b"".join(stored + bytes(-len(stored) % 8) for stored in self.buffers)
        if self.body is not None:
            body = self.body
        metadata = self.metadata(len(body) if self.body_length is None else self.body_length)
        return struct.pack("<II", 0xFFFFFFFF, len(metadata)) + metadata + body + self.trailing

    def batch(self) -> bytes:
        return reseal(self.header + self.message(), **self.header_fields)

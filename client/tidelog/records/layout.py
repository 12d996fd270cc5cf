"""The 80-byte header in front of every record batch (DESIGN section 3), and the two CRCs.

Code that stores and moves batches (storage, replication, fetch) reads headers here and never decodes a
body. `codec` encodes and decodes bodies; `validation` checks whether a client's batch may be written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa

from tidelog.errors import CorruptBatch, DataCorrupt
from tidelog.records.checksum import crc32c

HEADER_BYTES = 80
MAGIC = b"TLB1"
SCHEMA_VERSION = 1
NO_PRODUCER_ID = (1 << 64) - 1
"""The producer id of a batch without one: it is not idempotent."""

ALIGNMENT = 8
"""The length of a batch is a multiple of this."""

SEQUENCE_MODULUS = 1 << 32
"""Sequences count records modulo this (F6)."""

SINK_IDS_BEGIN = 1 << 63
"""The producer ids from here on belong to tasks of sinks (S1). In their batches bytes 60–63 are the batch
id."""

SINK_NUMBER_MAX = (1 << 31) - 2
"""The largest number of a sink. With the next one, the last task would have the id `NO_PRODUCER_ID`."""

SINK_TASK_MAX = (1 << 32) - 1
SINK_BATCH_ID_MAX = (1 << 32) - 1

COMPRESSION_MASK = 0b11
COLUMNS_MASK = 0b11100
COMPACTED = 1 << 5
CONTROL = 1 << 6
HAS_MESSAGE_IDS = 1 << 7
BROKER_ONLY_ATTRIBUTES = COMPACTED | CONTROL | HAS_MESSAGE_IDS
KNOWN_ATTRIBUTES = COMPRESSION_MASK | COLUMNS_MASK | BROKER_ONLY_ATTRIBUTES

_HEADER = struct.Struct("<4sIqqIIIHHIIQIHHqq")
_U32 = struct.Struct("<I")

assert _HEADER.size == HEADER_BYTES


class Compression(IntEnum):
    """Arrow's buffer compression, as bits 0–1 of the attributes."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2


class SinkTask(NamedTuple):
    """The task of a sink that wrote a batch, as its producer id says (S1)."""

    sink: int
    """The number that the cluster gave to the sink."""
    task: int
    """The Spark partition that the task wrote."""

    @property
    def producer_id(self) -> int:
        return SINK_IDS_BEGIN | self.sink << 32 | self.task

    @classmethod
    def of(cls, producer_id: int) -> SinkTask:
        return cls((producer_id & (SINK_IDS_BEGIN - 1)) >> 32, producer_id & SINK_TASK_MAX)


class BatchHeader(NamedTuple):
    """The fields of a batch header, in their order on disk."""

    magic: bytes
    length: int
    """Bytes of the whole batch, header included."""
    base_offset: int
    """Offset of the first record; 0 until the leader sets it."""
    append_time_us: int
    """The leader's clock, µs since the epoch; 0 until the leader sets it."""
    leader_epoch: int
    header_crc: int
    body_crc: int
    attributes: int
    schema_version: int
    record_count: int
    last_offset_delta: int
    """Offset of the last record minus `base_offset`."""
    producer_id: int
    base_sequence: int
    producer_epoch: int
    """In a batch of a sink: the lower half of the batch id."""
    reserved: int
    """In a batch of a sink: the upper half of the batch id; else 0."""
    timestamp_min_us: int
    timestamp_max_us: int

    @classmethod
    def unpack(cls, data: bytes | memoryview | pa.Buffer, at: int = 0) -> BatchHeader:
        """Reads the 80 bytes at `at`; checks nothing."""
        return cls._make(_HEADER.unpack_from(data, at))

    def pack(self) -> bytes:
        return _HEADER.pack(*self)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def of_sink(self) -> bool:
        """Whether a task of a sink wrote it (S1)."""
        return SINK_IDS_BEGIN <= self.producer_id < NO_PRODUCER_ID

    @property
    def sink_batch_id(self) -> int:
        """The id of the sink's batch, such as the number of Spark's micro-batch."""
        return self.producer_epoch | self.reserved << 16

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def columns(self) -> int:
        return self.attributes & COLUMNS_MASK

    @property
    def compacted(self) -> bool:
        return bool(self.attributes & COMPACTED)

    @property
    def has_message_ids(self) -> bool:
        return bool(self.attributes & HAS_MESSAGE_IDS)


def header_crc(stream_id: bytes, partition: int, header: bytes | memoryview) -> int:
    """CRC-32C of stream id ‖ partition (u32, little-endian) ‖ header bytes 0–27 ‖ 32–35.

    It binds a batch to its place: a batch of another partition, or with a flipped
    offset or epoch, does not pass.
    """
    view = bytes(header[:36])
    return crc32c(stream_id + _U32.pack(partition) + view[:28] + view[32:36])


def verify_batch(batch: pa.Buffer | bytes, header: BatchHeader, stream_id: bytes, partition: int) -> None:
    """Checks both CRCs of one whole batch of `stream_id`/`partition`.

    Raises `DataCorrupt` and names the CRC that failed; used wherever bytes come back
    from a disk or a peer (F2).
    """
    data = batch if isinstance(batch, pa.Buffer) else pa.py_buffer(batch)
    found = crc32c(data.slice(36))
    if found != header.body_crc:
        raise DataCorrupt(
            f"the batch at offset {header.base_offset} has body CRC {found:08x}, but its header says "
            f"{header.body_crc:08x}",
            offset=header.base_offset,
        )
    found = header_crc(stream_id, partition, bytes(data.slice(0, 36)))
    if found != header.header_crc:
        raise DataCorrupt(
            f"the batch at offset {header.base_offset} has header CRC {found:08x}, but its header says "
            f"{header.header_crc:08x}",
            offset=header.base_offset,
        )


def check_framing(header: BatchHeader, available: int) -> None:
    """Checks what must hold before a length can be trusted: magic, length, alignment.

    `available` is the number of bytes from the header's start on. Raises `CorruptBatch`.
    """
    if header.magic != MAGIC:
        raise CorruptBatch(f"a record batch starts with {MAGIC!r}, these bytes start with {header.magic!r}")
    if header.length < HEADER_BYTES or header.length % ALIGNMENT:
        raise CorruptBatch(
            f"a batch length of {header.length} is not a multiple of {ALIGNMENT} from {HEADER_BYTES} up"
        )
    if header.length > available:
        raise CorruptBatch(f"the header says {header.length} bytes, but only {available} are there")


def split_batches(data: bytes | memoryview) -> Iterator[tuple[BatchHeader, pa.Buffer]]:
    """The consecutive batches in `data`, as views; raises `CorruptBatch`."""
    buffer = pa.py_buffer(data)
    at, size = 0, len(data)
    while at < size:
        if size - at < HEADER_BYTES:
            raise CorruptBatch(f"{size - at} bytes are left over, but a header has {HEADER_BYTES}")
        header = BatchHeader.unpack(data, at)
        check_framing(header, size - at)
        yield header, buffer.slice(at, header.length)
        at += header.length

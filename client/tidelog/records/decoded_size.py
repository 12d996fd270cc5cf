"""The bytes of a batch after decompression, from its metadata: no memory is allocated.

Each compressed buffer begins with its length. `validation` holds the sum against a stream's limit before
it lets Arrow decompress anything; a broker sets as much aside before it decodes a batch for a reader.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from tidelog.errors import CorruptBatch
from tidelog.records.layout import BatchHeader
from tidelog.records.message import BufferPlace, Message, read_message

LENGTH_PREFIX_BYTES = 8
"""The bytes before a compressed buffer: its length after decompression."""

UNCOMPRESSED = -1
"""The length of a buffer that its writer did not compress."""

_I64 = struct.Struct("<q")


def decoded_bytes(message: Message, view: memoryview) -> int:
    """Of all buffers of the `message` that fills `view`; raises `CorruptBatch`."""
    body = view[message.body_at :]
    return sum(decoded_buffer_bytes(body, place, message.codec) for place in message.buffers)


def decoded_buffer_bytes(body: memoryview, place: BufferPlace, codec: int | None) -> int:
    """Of one buffer of a message's body, from its length prefix; raises `CorruptBatch`."""
    if codec is None or place.length == 0:
        return place.length
    if place.length < LENGTH_PREFIX_BYTES:
        raise CorruptBatch(f"a compressed buffer of {place.length} bytes has no room for its length")
    claimed = int(_I64.unpack_from(body, place.offset)[0])
    if claimed == UNCOMPRESSED:
        return place.length - LENGTH_PREFIX_BYTES
    if claimed < 0:
        raise CorruptBatch(f"a compressed buffer claims {claimed} bytes")
    return claimed


def allocated_bytes(body: pa.Buffer, header: BatchHeader) -> int:
    """What `codec.decode_body` allocates: nothing where the batch is not compressed.

    Raises `CorruptBatch`.
    """
    if not header.compression:
        return 0
    view = memoryview(body)
    return decoded_bytes(read_message(view), view)

"""Walks over the batches of a segment by their headers, which state where the next batch begins.

A header counts if its CRC holds; bodies are not read. That is enough to find an offset.
Neighbours: `segment` walks from the position that its index returns, `scan` checks every byte
instead and steps over damage.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from tidelog.errors import CorruptBatch, DataCorrupt
from tidelog.records import HEADER_BYTES, BatchHeader, header_crc
from tidelog.records.layout import check_framing
from tidelog_broker.storage.files.protocol import File
from tidelog_broker.storage.points import PartitionKey

WALK_BYTES = 64 << 10
"""Size of one read."""


def header_holds(raw: bytes, header: BatchHeader, key: PartitionKey) -> bool:
    """Whether a header's CRC binds it to this partition."""
    return header_crc(*key, raw) == header.header_crc


def walk_headers(
    file: File, path: str, key: PartitionKey, position: int, end: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Yields position and header of each batch from a batch boundary on, up to `end`.

    Raises `DataCorrupt` if a header does not hold or does not follow the previous header; `path` is
    for the message.
    """
    follows = -1
    window, window_at = b"", 0
    while position < end:
        at = position - window_at
        if at + HEADER_BYTES > len(window):
            window = read_bytes(file, path, min(WALK_BYTES, end - position), position)
            window_at, at = position, 0
            if len(window) < HEADER_BYTES:
                raise DataCorrupt(f"{path} ends inside a batch header at position {position}")
        header = BatchHeader.unpack(window, at)
        try:
            check_framing(header, end - position)
        except CorruptBatch as error:
            raise DataCorrupt(f"{path} at position {position}: {error}") from None
        if not header_holds(window[at : at + HEADER_BYTES], header, key):
            raise DataCorrupt(f"{path} at position {position}: the header CRC does not hold")
        if follows >= 0 and header.base_offset != follows and not header.compacted:
            raise DataCorrupt(f"{path} at position {position}: offset {follows} is missing")
        yield position, header
        position += header.length
        follows = header.next_offset


def read_bytes(file: File, path: str, length: int, position: int) -> bytes:
    """Reads up to `length` bytes from `position` on; raises `DataCorrupt` if the disk cannot read them."""
    try:
        return file.pread(length, position) if length > 0 else b""
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise DataCorrupt(f"{path} at position {position} cannot be read: {error.strerror}") from error

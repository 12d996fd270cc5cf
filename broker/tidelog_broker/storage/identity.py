"""The identity file of a partition's folder: which partition of which stream lies here.

A folder whose identity does not match its name is kept and reported as stray, never
deleted (2d). File: magic ``TLI1``, stream id (16), partition (u32), CRC-32C (u32).
"""

from __future__ import annotations

import struct

from tidelog.records.checksum import crc32c
from tidelog_broker.storage.files import Files, read_file, replace_file

FILE_NAME = "identity"

_IDENTITY = struct.Struct("<4s16sI")
_CRC = struct.Struct("<I")
MAGIC = b"TLI1"


def write_identity(files: Files, folder: str, stream_id: bytes, partition: int) -> None:
    """Durable when it returns."""
    body = _IDENTITY.pack(MAGIC, stream_id, partition)
    replace_file(files, f"{folder}/{FILE_NAME}", body + _CRC.pack(crc32c(body)))


def read_identity(files: Files, folder: str) -> tuple[bytes, int] | None:
    """(stream id, partition); None: no identity file, or not a readable one."""
    try:
        data = read_file(files, f"{folder}/{FILE_NAME}")
    except FileNotFoundError:
        return None
    if len(data) == _IDENTITY.size + _CRC.size:
        magic, stream_id, partition = _IDENTITY.unpack_from(data)
        if magic == MAGIC and _CRC.unpack_from(data, _IDENTITY.size)[0] == crc32c(data[: _IDENTITY.size]):
            return stream_id, partition
    return None

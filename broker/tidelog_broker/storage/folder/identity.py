"""The identity file of a partition's folder: which partition of which stream lies here.

A folder whose identity does not match its name is kept and reported as stray, never
deleted (2d). File: magic ``TLI1``, stream id (16), partition (u32), CRC-32C (u32). If the assignment of
the replica (R16) is not 0, the magic is ``TLI2`` and the assignment (u64) stands before the CRC.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tidelog.records.checksum import crc32c
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.whole_files import read_file, replace_file

FILE_NAME = "identity"

_IDENTITY = struct.Struct("<4s16sI")
_ASSIGNMENT = struct.Struct("<Q")
_CRC = struct.Struct("<I")
MAGIC = b"TLI1"
MAGIC_ASSIGNED = b"TLI2"


class Held(NamedTuple):
    """The replica that a folder holds, by its identity file."""

    key: tuple[bytes, int]
    """Stream id and partition."""
    assignment: int
    """The replica's assignment (R16)."""


def write_identity(files: Files, folder: str, stream_id: bytes, partition: int, assignment: int = 0) -> None:
    """Writes the identity file; when it returns, the file and every entry of the folder are durable."""
    body = _IDENTITY.pack(MAGIC_ASSIGNED if assignment else MAGIC, stream_id, partition)
    if assignment:
        body += _ASSIGNMENT.pack(assignment)
    replace_file(files, f"{folder}/{FILE_NAME}", body + _CRC.pack(crc32c(body)))


def read_identity(files: Files, folder: str) -> tuple[bytes, int] | None:
    """(stream id, partition); None: no readable identity file."""
    found = read_held(files, folder)
    return None if found is None else found.key


def read_assignment(files: Files, folder: str) -> int | None:
    """The assignment of the replica that lies here (R16); None: no readable identity file."""
    found = read_held(files, folder)
    return None if found is None else found.assignment


def read_held(files: Files, folder: str) -> Held | None:
    """The replica that a folder holds; None: no readable identity file."""
    try:
        data = read_file(files, f"{folder}/{FILE_NAME}")
    except FileNotFoundError:
        return None
    body = data[: -_CRC.size]
    if len(body) < _IDENTITY.size or _CRC.unpack_from(data, len(body))[0] != crc32c(body):
        return None
    magic, stream_id, partition = _IDENTITY.unpack_from(body)
    if magic == MAGIC and len(body) == _IDENTITY.size:
        return Held((stream_id, partition), 0)
    if magic == MAGIC_ASSIGNED and len(body) == _IDENTITY.size + _ASSIGNMENT.size:
        return Held((stream_id, partition), _ASSIGNMENT.unpack_from(body, _IDENTITY.size)[0])
    return None

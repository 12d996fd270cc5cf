"""The list of a log's known damaged ranges, kept over restarts (DESIGN 4, 2c).

A start after a clean stop reads no log, and a start after a crash reads only past the recovery point.
Without the list, the broker would forget damage that it found, until a read meets the damage again.
The list is a hint: damage that it lacks is found again, but no entry may outlive the batches that it
describes. So a cut of the log first removes the entries of the part that it cuts off. A list that
cannot be read counts as empty.

File `damaged-ranges`: magic ``TLD1``, then entries (start offset i64, end offset i64), then the
CRC-32C of all bytes before it (u32). Neighbours: `log.reader` finds damage, `healing` mends it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tidelog.records.checksum import crc32c
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.whole_files import read_file, replace_file
from tidelog_broker.storage.segments.scan import DamagedRange

FILE_NAME = "damaged-ranges"

RANGES_MAX = 10_000
"""Ranges of one log in its list; damage beyond this number is found again."""

MAGIC = b"TLD1"
_ENTRY = struct.Struct("<qq")
_CRC = struct.Struct("<I")


def save_damage(files: Files, folder: str, ranges: Sequence[DamagedRange]) -> None:
    """Writes the list; durable when it returns.

    If the list cannot be written, removes the older list; raises OSError if that fails too.
    """
    if not ranges:
        _remove(files, folder)
        return
    body = MAGIC + b"".join(_ENTRY.pack(*one) for one in ranges[:RANGES_MAX])
    try:
        replace_file(files, f"{folder}/{FILE_NAME}", body + _CRC.pack(crc32c(body)))
    except OSError:
        _remove(files, folder)


def load_damage(files: Files, folder: str) -> list[DamagedRange]:
    """The saved ranges, in the order of offsets; empty if the list cannot be read."""
    data = read_file(files, f"{folder}/{FILE_NAME}")
    body = data[: -_CRC.size]
    if (
        len(data) < len(MAGIC) + _CRC.size
        or body[: len(MAGIC)] != MAGIC
        or data[len(body) :] != _CRC.pack(crc32c(body))
    ):
        return []
    return sorted(DamagedRange(*entry) for entry in _ENTRY.iter_unpack(body[len(MAGIC) :]))


def _remove(files: Files, folder: str) -> None:
    if files.exists(f"{folder}/{FILE_NAME}"):
        files.remove(f"{folder}/{FILE_NAME}")
        files.sync_dir(folder)

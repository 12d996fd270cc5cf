"""What is known to be damaged in a log, over restarts (DESIGN 4, 2c).

A start after a clean stop reads no log, and one after a crash reads only past the recovery point:
without the list, damage that somebody has found would be forgotten until it is met again. The list
is a hint: what it lacks is found again, but no entry may outlive the batches that it is about. So
whoever cuts a log has its entries gone first, and a list that cannot be read is none.

File `damaged-ranges`: magic ``TLD1``, then entries (start offset i64, end offset i64), then the
CRC-32C of all before (u32). Neighbours: `log.reader` finds damage, `healing` mends it.
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
"""Of one log in its list; what is beyond is found again."""

MAGIC = b"TLD1"
_ENTRY = struct.Struct("<qq")
_CRC = struct.Struct("<I")


def save_damage(files: Files, folder: str, ranges: Sequence[DamagedRange]) -> None:
    """Durable when it returns. An older list does not stay if this one cannot be written; raises OSError
    if it does."""
    if not ranges:
        _remove(files, folder)
        return
    body = MAGIC + b"".join(_ENTRY.pack(*one) for one in ranges[:RANGES_MAX])
    try:
        replace_file(files, f"{folder}/{FILE_NAME}", body + _CRC.pack(crc32c(body)))
    except OSError:
        _remove(files, folder)


def load_damage(files: Files, folder: str) -> list[DamagedRange]:
    """In the order of offsets."""
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

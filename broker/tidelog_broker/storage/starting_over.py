"""Dropping a whole log and beginning an empty one at another offset (R1, R11), whatever crash comes between.

A mark in the partition's folder is the switch: once it is there, the old log is no more,
and every start goes on where the last one stopped, until checkpoints say what the folder
does; then the mark goes. Neighbours: `log` does it to an open log, `recovery` and `store`
to one that a crash left half-way.

File `starting-over`: magic ``TLO1``, the offset (i64), CRC-32C of these (u32).
"""

from __future__ import annotations

import struct

from tidelog.records.checksum import crc32c
from tidelog_broker.storage.checkpoint import Partition
from tidelog_broker.storage.damage_list import save_damage
from tidelog_broker.storage.epochs import LeaderEpochs, save_epochs
from tidelog_broker.storage.files import Files, OpenFiles, read_file, replace_file
from tidelog_broker.storage.guard_snapshots import remove_guard_snapshots
from tidelog_broker.storage.index_files import INDEX_SUFFIXES
from tidelog_broker.storage.segment import SEGMENT_SUFFIX, segment_base
from tidelog_broker.storage.suspicion import clear_suspicion

FILE_NAME = "starting-over"

_MARK = struct.Struct("<4sq")
_CRC = struct.Struct("<I")
MAGIC = b"TLO1"


class MarkLost(Exception):
    """The mark is there and cannot be read: where the log begins is unknown."""


def mark(files: Files, folder: str, offset: int) -> None:
    """From here on the log is empty and begins at `offset`; durable when it returns."""
    body = _MARK.pack(MAGIC, offset)
    replace_file(files, f"{folder}/{FILE_NAME}", body + _CRC.pack(crc32c(body)))


def is_marked(files: Files, folder: str) -> bool:
    return files.exists(f"{folder}/{FILE_NAME}")


def marked_offset(files: Files, folder: str) -> int | None:
    """Where the log is to begin; None: nobody wants it emptied. Raises `MarkLost`."""
    if not is_marked(files, folder):
        return None
    data = read_file(files, f"{folder}/{FILE_NAME}")
    body = data[: _MARK.size]
    if data != body + _CRC.pack(crc32c(body)) or len(body) != _MARK.size or body[:4] != MAGIC:
        raise MarkLost(f"{folder}/{FILE_NAME} is damaged: where the log is to begin is unknown")
    return int(_MARK.unpack(body)[1])


def empty(files: OpenFiles, folder: str, key: Partition) -> None:
    """Removes what the old log left, durably; may be repeated. Raises OSError."""
    for name in files.files.list(folder):
        if segment_base(name, (SEGMENT_SUFFIX, *INDEX_SUFFIXES)) is not None:
            files.forget(f"{folder}/{name}")
            files.files.remove(f"{folder}/{name}")
    remove_guard_snapshots(files, folder, above=-1)
    clear_suspicion(files.files, folder)
    save_damage(files.files, folder, [])
    save_epochs(files, folder, *key, LeaderEpochs())
    files.files.sync_dir(folder)


def unmark(files: Files, folder: str) -> None:
    """The checkpoints know; durable when it returns."""
    files.remove(f"{folder}/{FILE_NAME}")
    files.sync_dir(folder)

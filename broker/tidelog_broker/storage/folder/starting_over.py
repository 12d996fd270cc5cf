"""Replaces a whole log by an empty log at another offset (R1, R11), safely if a crash comes in between.

A mark in the partition's folder is the switch. Once the mark is there, the old log no longer counts,
and every start continues where the last start stopped. When the checkpoints agree with the folder, the
mark is removed. Neighbours: `log.cutter` replaces an open log; `log.recovery` and `directory.opening`
continue after a crash.

File `starting-over`: magic ``TLO1``, the offset (i64), CRC-32C of these (u32). If the leader epoch of the
last record below the offset is known (R1), the magic is ``TLO2`` and that epoch (u32) stands before the CRC.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tidelog.records.checksum import crc32c
from tidelog_broker.storage.files.open_files import OpenFiles
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.whole_files import read_file, replace_file
from tidelog_broker.storage.folder.damage_list import save_damage
from tidelog_broker.storage.folder.leader_epochs import LeaderEpochs, save_epochs
from tidelog_broker.storage.folder.suspicion import clear_suspicion
from tidelog_broker.storage.guard.snapshots import remove_guard_snapshots
from tidelog_broker.storage.points import PartitionKey
from tidelog_broker.storage.segments.index_files import INDEX_SUFFIXES
from tidelog_broker.storage.segments.segment import SEGMENT_SUFFIX, segment_base

FILE_NAME = "starting-over"

_MARK = struct.Struct("<4sq")
_CRC = struct.Struct("<I")
_EPOCH = struct.Struct("<I")
MAGIC = b"TLO1"
MAGIC_EPOCH = b"TLO2"


class Beginning(NamedTuple):
    """Where an emptied log begins."""

    offset: int
    epoch_before: int | None = None
    """The leader epoch of the last record below `offset`; None: not known."""

    @property
    def epochs(self) -> LeaderEpochs:
        """The history of the emptied log."""
        return LeaderEpochs.of_empty_log(self.offset, self.epoch_before)


class MarkLost(Exception):
    """The mark is there and cannot be read, so the beginning of the log is unknown."""


def mark(files: Files, folder: str, offset: int, epoch_before: int | None = None) -> None:
    """Writes the mark: from now on the log is empty and begins at `offset`. Durable when it returns."""
    body = _MARK.pack(MAGIC if epoch_before is None else MAGIC_EPOCH, offset)
    if epoch_before is not None:
        body += _EPOCH.pack(epoch_before)
    replace_file(files, f"{folder}/{FILE_NAME}", body + _CRC.pack(crc32c(body)))


def is_marked(files: Files, folder: str) -> bool:
    return files.exists(f"{folder}/{FILE_NAME}")


def marked(files: Files, folder: str) -> Beginning | None:
    """Where the log must begin; None: there is no mark. Raises `MarkLost`."""
    if not is_marked(files, folder):
        return None
    data = read_file(files, f"{folder}/{FILE_NAME}")
    body = data[: -_CRC.size]
    if len(body) >= _MARK.size and data == body + _CRC.pack(crc32c(body)):
        magic, offset = _MARK.unpack_from(body)
        if magic == MAGIC and len(body) == _MARK.size:
            return Beginning(offset)
        if magic == MAGIC_EPOCH and len(body) == _MARK.size + _EPOCH.size:
            return Beginning(offset, _EPOCH.unpack_from(body, _MARK.size)[0])
    raise MarkLost(f"{folder}/{FILE_NAME} is damaged: where the log is to begin is unknown")


def empty(files: OpenFiles, folder: str, key: PartitionKey, epochs: LeaderEpochs) -> None:
    """Removes the files of the old log and writes the new history, durably. Raises OSError.

    The call may be repeated.
    """
    for name in files.files.list(folder):
        if segment_base(name, (SEGMENT_SUFFIX, *INDEX_SUFFIXES)) is not None:
            files.forget(f"{folder}/{name}")
            files.files.remove(f"{folder}/{name}")
    remove_guard_snapshots(files, folder, above=-1)
    clear_suspicion(files.files, folder)
    save_damage(files.files, folder, [])
    save_epochs(files, folder, *key, epochs)
    files.files.sync_dir(folder)


def unmark(files: Files, folder: str) -> None:
    """Removes the mark, once the checkpoints are saved; durable when it returns."""
    files.remove(f"{folder}/{FILE_NAME}")
    files.sync_dir(folder)

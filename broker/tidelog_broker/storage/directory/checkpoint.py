"""Checkpoints: high watermarks, log start offsets and recovery points of all partitions.

Each kind has one small file, replaced atomically (temp, fsync, rename, fsync of the
folder); the clean-stop mark is one more file. When a checkpoint is written, its statements
are already true on disk: the recovery point moves only by fsync, and the saved high
watermark never exceeds it (DESIGN 4, 2b).

Log start offsets are written twice. Only they tell offsets that were deleted from offsets
that were lost, so the rot of a single file must not lose them.

File: magic ``TLC1``, kind (u32), entry count (u32), entries of (stream id 16, partition
u32, three i64), CRC-32C of all bytes before it (u32). The time that retention reached is
in a separate file: magic ``TLT1``, i64, CRC-32C.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import ClassVar, Final

from tidelog.records.checksum import crc32c
from tidelog_broker.storage.directory.retention import Waited
from tidelog_broker.storage.files.protocol import Files
from tidelog_broker.storage.files.whole_files import read_file, replace_file
from tidelog_broker.storage.points import CleanEnd, PartitionKey, RecoveryPoint

MAGIC = b"TLC1"

TIME_MAGIC = b"TLT1"

_HEAD = struct.Struct("<4sII")

_ENTRY = struct.Struct("<16sIqqq")

_CRC = struct.Struct("<I")

_TIME = struct.Struct("<4sq")

_KIND_NUMBERS = {
    "recovery-points": 0,
    "high-watermarks": 1,
    "log-start-offsets": 2,
    "clean-stop": 3,
    "dated-ahead": 4,
}

_LOGS_BEGIN = "logs begin at their first record; records that were deleted may be read again"

WITHOUT: Final = {
    "recovery-points": "the logs are read from their start",
    "high-watermarks": "brokers learn from each other what is committed",
    "log-start-offsets": _LOGS_BEGIN,
    "log-start-offsets.copy": _LOGS_BEGIN,
    "dated-ahead": "segments that are dated ahead of the clock wait for their age again",
    "retention-time": "retention by age begins to count again",
}
"""The effect of a file's loss, by the file's name."""

Table = dict[PartitionKey, tuple[int, int, int]]


class Checkpoints:
    """The saved state: `put_*` changes it in memory, `save` writes the changed files."""

    _KINDS = ("recovery-points", "high-watermarks", "log-start-offsets", "dated-ahead")
    _COPIES: ClassVar = {"log-start-offsets": "log-start-offsets.copy"}
    """The kinds that are written twice, and the names of their second files."""
    CLEAN = "clean-stop"
    TIME = "retention-time"

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._tables: dict[str, Table] = {}
        self._changed: set[str] = set()
        self.unreadable: list[str] = []
        """Files that are there and failed their checksum: their content is unknown."""
        self.mended: list[str] = []
        """Files that are missing or failed their checksum, while the other file of the kind was readable."""

    @classmethod
    def load(cls, files: Files, folder: str) -> Checkpoints:
        """Reads the state that the last run saved; reports damaged files in `unreadable` and `mended`."""
        checkpoints = cls(files, folder)
        for kind in cls._KINDS:
            if kind in cls._COPIES:
                table = checkpoints._read_either(kind, cls._COPIES[kind])
            else:
                table = checkpoints._read(kind, kind)
            checkpoints._tables[kind] = table or {}
        return checkpoints

    def _read(self, name: str, kind: str) -> Table | None:
        """Reads one file; None: there is no such file, or it is damaged and now in `unreadable`."""
        path = f"{self._folder}/{name}"
        if not self._files.exists(path):
            return None
        table = _unpack(read_file(self._files, path), kind)
        if table is None:
            self.unreadable.append(path)
        return table

    def _read_either(self, kind: str, copy: str) -> Table | None:
        """Reads a kind that is written twice.

        The copy is written first, so a change that stands only in the copy did not count yet.
        """
        found = {name: self._read(name, kind) for name in (kind, copy)}
        first, second = found.values()
        if first != second:
            # The next `save` writes both files again.
            self._changed.add(kind)
        if (first is None) != (second is None):
            lacks = next(f"{self._folder}/{name}" for name, table in found.items() if table is None)
            self.mended.append(lacks)
            self.unreadable = [path for path in self.unreadable if path != lacks]
        return second if first is None else first

    def recovery_point(self, partition: PartitionKey) -> RecoveryPoint | None:
        found = self._tables["recovery-points"].get(partition)
        return None if found is None else RecoveryPoint(*found)

    def high_watermark(self, partition: PartitionKey) -> int:
        return self._tables["high-watermarks"].get(partition, (0, 0, 0))[0]

    def log_start_offset(self, partition: PartitionKey) -> int:
        return self._tables["log-start-offsets"].get(partition, (0, 0, 0))[0]

    def waited(self, partition: PartitionKey) -> Waited | None:
        """How long the broker has had closed segments that are dated ahead of the clock (R18)."""
        found = self._tables["dated-ahead"].get(partition)
        return None if found is None else Waited(*found[:2])

    def put_waited(self, partition: PartitionKey, waited: Waited | None) -> None:
        if waited is not None:
            self._put("dated-ahead", partition, (*waited, 0))
        elif self._tables["dated-ahead"].pop(partition, None) is not None:
            self._changed.add("dated-ahead")

    def put_recovery_point(self, partition: PartitionKey, point: RecoveryPoint, high_watermark: int) -> None:
        """Puts a recovery point and the high watermark, lowered to the recovery point if it is above."""
        offset, segment_base, position = point
        self._put("recovery-points", partition, (offset, segment_base, position))
        self._put("high-watermarks", partition, (min(high_watermark, point.offset), 0, 0))

    def lower_recovery_point(self, partition: PartitionKey, point: RecoveryPoint) -> None:
        """Lowers recovery point and high watermark to the new end of a log that will be cut."""
        waited = self.waited(partition)
        if waited is not None and waited.end_offset > point.offset:
            # The count was for offsets that will hold other records after the cut.
            self.put_waited(partition, None)
        known = self.recovery_point(partition)
        if known is not None and known.offset > point.offset:
            self.put_recovery_point(partition, point, self.high_watermark(partition))

    def put_log_start_offset(self, partition: PartitionKey, offset: int) -> None:
        self._put("log-start-offsets", partition, (offset, 0, 0))

    def remove_stream(self, stream_id: bytes) -> None:
        for kind, table in self._tables.items():
            for partition in [partition for partition in table if partition[0] == stream_id]:
                del table[partition]
                self._changed.add(kind)

    def remove_partition(self, partition: PartitionKey) -> None:
        for kind, table in self._tables.items():
            if table.pop(partition, None) is not None:
                self._changed.add(kind)

    def streams(self) -> set[bytes]:
        """The ids of all streams with saved state."""
        return {stream_id for table in self._tables.values() for stream_id, _ in table}

    def _put(self, kind: str, partition: PartitionKey, values: tuple[int, int, int]) -> None:
        table = self._tables[kind]
        if table.get(partition) != values:
            table[partition] = values
            self._changed.add(kind)

    def save(self) -> None:
        """Writes the files whose content changed, durably. Raises OSError."""
        for kind in self._KINDS:
            if kind in self._changed:
                self._changed.discard(kind)
                data = _pack(kind, self._tables[kind])
                try:
                    if kind in self._COPIES:
                        replace_file(self._files, f"{self._folder}/{self._COPIES[kind]}", data)
                    replace_file(self._files, f"{self._folder}/{kind}", data)
                except OSError:
                    self._changed.add(kind)
                    raise

    # --- the time of retention

    def retention_time_us(self) -> int | None:
        """The time that retention by age had reached (R18); None: no time was saved, or it cannot be read."""
        path = f"{self._folder}/{self.TIME}"
        if not self._files.exists(path):
            return None
        try:
            data = read_file(self._files, path)
        except OSError:
            data = b""
        body = data[: -_CRC.size]
        if len(body) != _TIME.size or _CRC.unpack_from(data, len(body))[0] != crc32c(body):
            self.unreadable.append(path)
            return None
        magic, time_us = _TIME.unpack(body)
        return int(time_us) if magic == TIME_MAGIC else None

    def save_retention_time(self, time_us: int) -> None:
        """Saves the time of retention at once, durably. Raises OSError."""
        body = _TIME.pack(TIME_MAGIC, time_us)
        replace_file(self._files, f"{self._folder}/{self.TIME}", body + _CRC.pack(crc32c(body)))

    # --- the clean-stop mark

    def write_clean_mark(self, ends: Mapping[PartitionKey, CleanEnd]) -> None:
        table = {partition: tuple(end) for partition, end in ends.items()}
        replace_file(self._files, f"{self._folder}/{self.CLEAN}", _pack(self.CLEAN, table))

    def take_clean_mark(self) -> dict[PartitionKey, CleanEnd] | None:
        """Reads the mark of a clean stop and removes it durably; None: there is no readable mark."""
        path = f"{self._folder}/{self.CLEAN}"
        if not self._files.exists(path):
            return None
        table = _unpack(read_file(self._files, path), self.CLEAN)
        self._files.remove(path)
        self._files.sync_dir(self._folder)
        return None if table is None else {key: CleanEnd(*values) for key, values in table.items()}


def _pack(kind: str, table: Mapping[PartitionKey, tuple[int, ...]]) -> bytes:
    parts = [_HEAD.pack(MAGIC, _KIND_NUMBERS[kind], len(table))]
    parts += [_ENTRY.pack(*partition, *values) for partition, values in table.items()]
    body = b"".join(parts)
    return body + _CRC.pack(crc32c(body))


def _unpack(data: bytes, kind: str) -> Table | None:
    if len(data) < _HEAD.size + _CRC.size:
        return None
    body = data[: -_CRC.size]
    magic, number, count = _HEAD.unpack_from(body)
    if magic != MAGIC or number != _KIND_NUMBERS[kind] or len(body) != _HEAD.size + count * _ENTRY.size:
        return None
    if _CRC.unpack_from(data, len(body))[0] != crc32c(body):
        return None
    return {(sid, part): (a, b, c) for sid, part, a, b, c in _ENTRY.iter_unpack(body[_HEAD.size :])}

"""The leader epochs of a partition: which epoch began at which offset (R5).

`leader-epochs` is authoritative, not a cache: what stands in it decides where two
replicas diverge (R1) and whether a reader's position still fits (R13). It is
append-only with a checksum per entry; lost or unreadable means quarantine (4.1).

File: magic ``TLE1``, stream id (16), partition (u32), CRC-32C of these (u32); then
entries (u32 epoch, u32 flags, i64 start offset, u32 CRC-32C of the 16 bytes before).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.records.checksum import crc32c
from tidelog_broker.storage.files import Files, OpenFiles, read_file, replace_file, write_all

FILE_NAME = "leader-epochs"

_HEADER = struct.Struct("<4s16sI")
_ENTRY = struct.Struct("<IIq")
_CRC = struct.Struct("<I")
HEADER_SIZE = _HEADER.size + _CRC.size
ENTRY_SIZE = _ENTRY.size + _CRC.size
MAGIC = b"TLE1"
UNCLEAN = 1
"""Flag: the epoch began with an unclean election; what it lacks was lost on purpose."""


class EpochsLost(Exception):
    """The file is missing, foreign or unreadable: the history is unknown."""


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int
    unclean: bool


class LeaderEpochs:
    """The history, oldest first; both columns grow strictly (epoch) and never go back (offset)."""

    __slots__ = ("_starts", "file_bytes")

    def __init__(self, starts: list[EpochStart] | None = None) -> None:
        self._starts = starts or []
        self.file_bytes = HEADER_SIZE + ENTRY_SIZE * len(self._starts)
        """Where the next entry goes in the file."""

    def __iter__(self) -> Iterator[EpochStart]:
        return iter(self._starts)

    @property
    def latest(self) -> int | None:
        """The newest epoch with an entry, None: there is none."""
        return self._starts[-1].epoch if self._starts else None

    def end_of(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """R1: the largest known epoch ≤ `epoch` and its end offset; None: no such epoch."""
        at = bisect_right(self._starts, epoch, key=lambda entry: entry.epoch)
        if at == 0:
            return None
        end = self._starts[at].start_offset if at < len(self._starts) else log_end_offset
        return self._starts[at - 1].epoch, end

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the record at `offset`; None: below the history."""
        at = bisect_right(self._starts, offset, key=lambda entry: entry.start_offset)
        return self._starts[at - 1].epoch if at else None

    @property
    def first(self) -> EpochStart | None:
        return self._starts[0] if self._starts else None

    def begin(self, epoch: int, start_offset: int, *, unclean: bool = False) -> bytes | None:
        """Adds an epoch; the bytes to append to the file, None if it is there already."""
        if self._starts and self._starts[-1].epoch == epoch:
            return None
        assert not self._starts or (
            epoch > self._starts[-1].epoch and start_offset >= self._starts[-1].start_offset
        ), f"epoch {epoch} at {start_offset} after {self._starts[-1]}"
        entry = EpochStart(epoch, start_offset, unclean)
        self._starts.append(entry)
        return _packed(entry)

    def withdraw(self) -> None:
        """Takes back the newest entry, which could not be written."""
        self._starts.pop()

    def cut(self, log_end_offset: int) -> bool:
        """Drops epochs that start at or above a new log end; whether any did."""
        before = len(self._starts)
        while self._starts and self._starts[-1].start_offset >= log_end_offset:
            self._starts.pop()
        self.file_bytes = HEADER_SIZE + ENTRY_SIZE * len(self._starts)
        return len(self._starts) != before

    def forget_below(self, log_start_offset: int) -> bool:
        """Drops epochs that end at or below the log start; keeps the one that covers it (R5)."""
        before = len(self._starts)
        while len(self._starts) > 1 and self._starts[1].start_offset <= log_start_offset:
            self._starts.pop(0)
        self.file_bytes = HEADER_SIZE + ENTRY_SIZE * len(self._starts)
        return len(self._starts) != before


def _packed(entry: EpochStart) -> bytes:
    body = _ENTRY.pack(entry.epoch, UNCLEAN if entry.unclean else 0, entry.start_offset)
    return body + _CRC.pack(crc32c(body))


def _header(stream_id: bytes, partition: int) -> bytes:
    body = _HEADER.pack(MAGIC, stream_id, partition)
    return body + _CRC.pack(crc32c(body))


def save_epochs(files: OpenFiles, folder: str, stream_id: bytes, partition: int, epochs: LeaderEpochs) -> None:
    """Writes the whole history anew, durably."""
    path = f"{folder}/{FILE_NAME}"
    files.forget(path)
    replace_file(files.files, path, _header(stream_id, partition) + b"".join(_packed(e) for e in epochs))


def append_epoch(files: OpenFiles, folder: str, epochs: LeaderEpochs, entry: bytes) -> None:
    """Appends one entry; durable with the next sync of the file (R5)."""
    with files.use(f"{folder}/{FILE_NAME}") as file:
        write_all(file, [entry], epochs.file_bytes)
    epochs.file_bytes += len(entry)


def load_epochs(files: Files, folder: str, stream_id: bytes, partition: int) -> LeaderEpochs:
    """The history on disk; a torn last entry is left out. Raises `EpochsLost`."""
    path = f"{folder}/{FILE_NAME}"
    if not files.exists(path):
        raise EpochsLost(f"{path} is missing")
    data = read_file(files, path)
    if data[:HEADER_SIZE] != _header(stream_id, partition):
        raise EpochsLost(f"{path} does not belong to this partition or is damaged at its start")
    starts: list[EpochStart] = []
    for at in range(HEADER_SIZE, len(data) - ENTRY_SIZE + 1, ENTRY_SIZE):
        body = data[at : at + _ENTRY.size]
        if _CRC.unpack_from(data, at + _ENTRY.size)[0] != crc32c(body):
            if at + ENTRY_SIZE < len(data):
                raise EpochsLost(f"{path} is damaged at byte {at}, with entries behind it")
            break
        epoch, flags, start = _ENTRY.unpack(body)
        starts.append(EpochStart(epoch, start, bool(flags & UNCLEAN)))
    return LeaderEpochs(starts)

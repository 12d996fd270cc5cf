"""The leader epochs of a partition: which epoch began at which offset (R5).

`leader-epochs` is authoritative, not a cache: its entries decide where two replicas
diverge (R1) and whether a reader's position still fits (R13). The file is append-only
with a checksum per entry. If it is lost or unreadable, the log is quarantined (4.1).

File: magic ``TLP1``, stream id (16), partition (u32), CRC-32C of these (u32); then
entries (u32 epoch, u32 flags, i64 start offset, u32 CRC-32C of the 16 bytes before).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.records.checksum import crc32c
from tidelog_broker.errors import StorageFailure
from tidelog_broker.storage.files.open_files import Held, OpenFiles
from tidelog_broker.storage.files.protocol import File, Files
from tidelog_broker.storage.files.whole_files import read_file, replace_file, write_all

FILE_NAME = "leader-epochs"

_HEADER = struct.Struct("<4s16sI")
_ENTRY = struct.Struct("<IIq")
_CRC = struct.Struct("<I")
HEADER_SIZE = _HEADER.size + _CRC.size
ENTRY_SIZE = _ENTRY.size + _CRC.size
MAGIC = b"TLP1"
PAGE_BYTES = 4096
"""A disk writes a page of this size completely or not at all."""

UNCLEAN = 1
"""Flag: the epoch began with an unclean election; records that it lacks were given up on purpose."""


class EpochsLost(Exception):
    """The file is missing, belongs to another partition, or is unreadable: the history is unknown."""


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int
    unclean: bool


class LeaderEpochs:
    """The history, oldest first: epochs grow strictly, and start offsets never decrease."""

    __slots__ = ("_starts", "file_bytes")

    def __init__(self, starts: list[EpochStart] | None = None) -> None:
        self._starts = starts or []
        self.file_bytes = HEADER_SIZE + ENTRY_SIZE * len(self._starts)
        """The position of the next entry in the file."""

    @classmethod
    def of_empty_log(cls, offset: int, epoch_before: int | None) -> LeaderEpochs:
        """The history of a log that begins empty at `offset`.

        `epoch_before` is the epoch of the last record below `offset` (R1).
        """
        if epoch_before is None or offset <= 0:
            return cls()
        return cls([EpochStart(epoch_before, offset - 1, unclean=False)])

    def __iter__(self) -> Iterator[EpochStart]:
        return iter(self._starts)

    @property
    def latest(self) -> int | None:
        """The newest epoch with an entry; None: there is no entry."""
        return self._starts[-1].epoch if self._starts else None

    def end_of(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """R1: the largest known epoch ≤ `epoch` and its end offset; None: no such epoch.

        The first epoch of a history may have no record here, because it began uncleanly and the log was
        then emptied. Here that epoch begins where the log begins, even if other replicas hold records of
        it. So it does not count.
        """
        at = bisect_right(self._starts, epoch, key=lambda entry: entry.epoch)
        if at == 0:
            return None
        end = self._starts[at].start_offset if at < len(self._starts) else log_end_offset
        if at == 1 and end <= self._starts[0].start_offset:
            return None
        return self._starts[at - 1].epoch, end

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the record at `offset`; None: the offset lies below the history."""
        at = bisect_right(self._starts, offset, key=lambda entry: entry.start_offset)
        return self._starts[at - 1].epoch if at else None

    @property
    def first(self) -> EpochStart | None:
        return self._starts[0] if self._starts else None

    def knows(self, epoch: int, offset: int) -> bool:
        """Whether the record at `offset` can be of `epoch`."""
        return self.epoch_at(offset) == epoch

    def begin(self, epoch: int, start_offset: int, *, unclean: bool = False) -> bytes | None:
        """Adds an epoch; returns the bytes to append to the file, or None if the epoch is there already."""
        if self._starts and self._starts[-1].epoch == epoch:
            return None
        assert not self._starts or (
            epoch > self._starts[-1].epoch and start_offset >= self._starts[-1].start_offset
        ), f"epoch {epoch} at {start_offset} after {self._starts[-1]}"
        entry = EpochStart(epoch, start_offset, unclean)
        self._starts = [*self._starts, entry]
        return _packed(entry)

    def withdraw(self) -> None:
        """Takes back the newest entry, which could not be written."""
        self._starts = self._starts[:-1]

    def cut(self, log_end_offset: int) -> LeaderEpochs | None:
        """The history without epochs that start at or above a new log end; None: there are no such epochs."""
        return self._changed([entry for entry in self._starts if entry.start_offset < log_end_offset])

    def up_to(self, epoch: int) -> LeaderEpochs | None:
        """The history without epochs later than `epoch`; None: there are no later epochs."""
        if (self.latest or 0) <= epoch:
            return None
        return self._changed([entry for entry in self._starts if entry.epoch <= epoch])

    def recovered(self, log_end_offset: int) -> LeaderEpochs | None:
        """Like `cut`, but keeps an epoch that began uncleanly at the log end.

        Other replicas must learn of that epoch from this log (R1, R5).
        """
        return self._changed(
            [
                entry
                for entry in self._starts
                if entry.start_offset < log_end_offset + (1 if entry.unclean else 0)
            ]
        )

    def forget_below(self, first_offset: int) -> LeaderEpochs | None:
        """The history without epochs that ended before the last record below the log's first file (R5).

        The epoch of that record stays: an emptied log is compared with other replicas by it (R1).
        """
        covering = bisect_right(self._starts, first_offset - 1, key=lambda entry: entry.start_offset) - 1
        return self._changed(self._starts[max(covering, 0) :])

    def _changed(self, starts: list[EpochStart]) -> LeaderEpochs | None:
        return LeaderEpochs(starts) if len(starts) != len(self._starts) else None


def _packed(entry: EpochStart) -> bytes:
    body = _ENTRY.pack(entry.epoch, UNCLEAN if entry.unclean else 0, entry.start_offset)
    return body + _CRC.pack(crc32c(body))


def _header(stream_id: bytes, partition: int) -> bytes:
    body = _HEADER.pack(MAGIC, stream_id, partition)
    return body + _CRC.pack(crc32c(body))


def save_epochs(
    files: OpenFiles, folder: str, stream_id: bytes, partition: int, epochs: LeaderEpochs
) -> None:
    """Replaces the file with the whole history, durably."""
    path = f"{folder}/{FILE_NAME}"
    replace_file(files.files, path, _header(stream_id, partition) + b"".join(_packed(e) for e in epochs))
    files.forget(path)


def append_epoch(files: OpenFiles, folder: str, epochs: LeaderEpochs, entry: bytes) -> Held:
    """Appends one entry; returns the file, held open. The next sync of that file makes it durable (R5).

    Raises OSError if the write failed and nothing of the entry is left. Raises `StorageFailure` if a
    part of the entry is left and could not be cut off.
    """
    held = files.acquire(f"{folder}/{FILE_NAME}")
    try:
        try:
            write_all(held.file, [entry], epochs.file_bytes)
        except OSError as error:
            _cut_back(held.file, epochs.file_bytes, error)
            raise
    except BaseException:
        files.release(held)
        raise
    epochs.file_bytes += len(entry)
    return held


def _cut_back(file: File, size: int, cause: OSError) -> None:
    """Cuts off the bytes that a failed write left after `size`, durably."""
    try:
        if file.size() > size:
            file.truncate(size)
            file.datasync()
    except OSError as worse:
        raise StorageFailure(
            f"{FILE_NAME}: a write failed ({cause}) and what it left could not be cut off ({worse})"
        ) from cause


def load_epochs(
    files: Files, folder: str, stream_id: bytes, partition: int, *, whole: bool = False
) -> LeaderEpochs:
    """The history on disk. Raises `EpochsLost`.

    After a crash, last entries that never reached the disk are left out. `whole`: there was no crash, so
    every byte must be valid.
    """
    path = f"{folder}/{FILE_NAME}"
    if not files.exists(path):
        raise EpochsLost(f"{path} is missing")
    data = read_file(files, path)
    if data[:HEADER_SIZE] != _header(stream_id, partition):
        raise EpochsLost(f"{path} does not belong to this partition or is damaged at its start")
    starts: list[EpochStart] = []
    for at in range(HEADER_SIZE, len(data), ENTRY_SIZE):
        raw = data[at : at + ENTRY_SIZE]
        body = raw[: _ENTRY.size]
        if len(raw) < ENTRY_SIZE or _CRC.unpack_from(raw, _ENTRY.size)[0] != crc32c(body):
            # Several entries may wait for the same flush. If an entry did not reach the disk, no later
            # entry did.
            if whole or any(data[at + ENTRY_SIZE :]) or not _never_arrived(raw, at):
                raise EpochsLost(f"{path} is damaged at byte {at}")
            break
        epoch, flags, start = _ENTRY.unpack(body)
        starts.append(EpochStart(epoch, start, bool(flags & UNCLEAN)))
    return LeaderEpochs(starts)


def _never_arrived(raw: bytes, at: int) -> bool:
    """Whether an invalid last entry looks as if it never reached the disk, and not as if it rotted.

    That is so if the file ends inside the entry, or if a page that holds a part of it is still all zeros.
    """
    first_page = raw[: PAGE_BYTES - at % PAGE_BYTES]
    second_page = raw[len(first_page) :]
    return len(raw) < ENTRY_SIZE or not any(first_page) or (bool(second_page) and not any(second_page))

"""The part of a partition's log that the rules read.

`storage.log.partition_log.PartitionLog` implements it, and so do the logs of tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class History(Protocol):
    """Which leader epoch began at which offset (R5)."""

    def __iter__(self) -> Iterator[tuple[int, int, bool]]:
        """(epoch, start offset, unclean), the oldest first."""
        ...

    @property
    def latest(self) -> int | None:
        """The newest epoch; None: the history is empty."""
        ...

    def end_of(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """The largest known epoch ≤ `epoch` and its end offset; None: no such epoch.

        An epoch without records at the beginning of the history does not count.
        """
        ...

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the record at `offset`; None: below the history."""
        ...


class LogView(Protocol):
    """Offsets and history of a log."""

    @property
    def start_offset(self) -> int:
        """LSO."""
        ...

    @property
    def end_offset(self) -> int:
        """LEO."""
        ...

    @property
    def durable_offset(self) -> int:
        """Everything below is on disk, with its part of the history."""
        ...

    @property
    def durable_epoch(self) -> int | None:
        """The newest epoch whose history entry is on disk; None: no entry is on disk."""
        ...

    @property
    def epochs(self) -> History: ...

    def bytes_from(self, offset: int) -> int:
        """An estimate of the bytes from `offset` to the end; too many rather than too few."""
        ...


def last_epoch(log: LogView) -> int | None:
    """The epoch of the log's last record, also if retention deleted it.

    None: it is not known (the log was started over without it), or the log never had a record.
    """
    return log.epochs.epoch_at(log.end_offset - 1)


def epoch_before_start(log: LogView) -> int | None:
    """The epoch of the last record below the log start offset; None: not known, or no such record."""
    return log.epochs.epoch_at(log.start_offset - 1)

"""What the rules see of a partition's log.

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
        """The newest epoch, None: there is none."""
        ...

    def end_of(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """The largest known epoch ≤ `epoch` and its end offset; None: no such epoch.

        One without records at the beginning of the history does not count.
        """
        ...

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the record at `offset`; None: below the history."""
        ...


class LogView(Protocol):
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
        """Everything below is on disk, with the history that it belongs to."""
        ...

    @property
    def durable_epoch(self) -> int | None:
        """The newest epoch whose entry in the history is on disk; None: there is none."""
        ...

    @property
    def epochs(self) -> History: ...

    def bytes_from(self, offset: int) -> int:
        """About how many bytes lie from `offset` to the end; rather too many than too few."""
        ...


def last_epoch(log: LogView) -> int | None:
    """Of the log's last record, also if retention dropped it; None: nothing is known of the record that was
    last, or there was none (a new log, or one that was started over without a word of it).
    """
    return log.epochs.epoch_at(log.end_offset - 1)


def epoch_before_start(log: LogView) -> int | None:
    """Of the last record below the log start offset; None: nothing is known of it, or there was none."""
    return log.epochs.epoch_at(log.start_offset - 1)

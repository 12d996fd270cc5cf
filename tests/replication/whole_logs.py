"""Logs that hold every record in memory, and how two of them come to agree: the slow twin of R1."""

from __future__ import annotations

import random

from tidelog_broker.storage.folder.leader_epochs import LeaderEpochs

Record = tuple[int, int]
"""Leader epoch and a value that no other record of any replica has."""


class WholeLog:
    """Satisfies `LogView`. Records are one byte; what is not synced is lost in a crash."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.records: list[Record] = []
        self.epochs = LeaderEpochs()
        self.durable_offset = 0
        self.durable_epoch: int | None = None
        self.syncing: tuple[int, int | None] | None = None

    def __repr__(self) -> str:
        return f"<WholeLog {self.start_offset}–{self.end_offset} {list(self.epochs)} {self.records}>"

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.records)

    def bytes_from(self, offset: int) -> int:
        return self.end_offset - offset

    def at(self, offset: int) -> Record:
        return self.records[offset - self.start_offset]

    def read(self, offset: int, end: int) -> list[Record]:
        return self.records[offset - self.start_offset : end - self.start_offset]

    def append(self, records: list[Record], unclean: tuple[tuple[int, int], ...] = ()) -> None:
        for epoch, value in records:
            self.epochs = self.epochs.up_to(epoch) or self.epochs
            for marked, start in unclean:
                if start == self.end_offset and (self.epochs.latest or 0) < marked <= epoch:
                    self.epochs.begin(marked, start, unclean=True)
            self.epochs.begin(epoch, self.end_offset)
            self.records.append((epoch, value))

    def begin_unclean(self, epoch: int) -> None:
        self.epochs.begin(epoch, self.end_offset, unclean=True)

    def begin_sync(self) -> None:
        self.syncing = (self.end_offset, self.epochs.latest)

    def end_sync(self) -> None:
        if self.syncing is not None:
            end, self.durable_epoch = self.syncing
            # A log start offset that was saved meanwhile needs nothing below it.
            self.durable_offset = max(self.durable_offset, end)
            self.syncing = None

    def truncate(self, offset: int) -> None:
        assert self.start_offset < offset < self.end_offset
        del self.records[offset - self.start_offset :]
        self.epochs = self.epochs.cut(offset) or self.epochs
        self.all_durable()

    def restart_at(self, offset: int, epoch_before: int | None = None) -> None:
        self.start_offset, self.records = offset, []
        self.epochs = LeaderEpochs.of_empty_log(offset, epoch_before)
        self.all_durable()

    def advance_start(self, offset: int) -> None:
        offset = max(self.start_offset, min(offset, self.end_offset))
        self.records = self.records[offset - self.start_offset :]
        self.start_offset = offset
        self.epochs = self.epochs.forget_below(offset) or self.epochs
        self.durable_offset = max(self.durable_offset, offset)

    def all_durable(self) -> None:
        self.syncing = None
        self.durable_offset, self.durable_epoch = self.end_offset, self.epochs.latest

    def crash(self, rng: random.Random) -> None:
        """Loses some of what was not synced."""
        self.syncing = None
        end = rng.randint(self.durable_offset, self.end_offset)
        del self.records[end - self.start_offset :]
        self.epochs = self.epochs.cut(end) or self.epochs
        self.all_durable()


def parting(one: WholeLog, other: WholeLog) -> int:
    """The first offset at which two logs hold different records, or one of them none."""
    offset = max(one.start_offset, other.start_offset)
    while offset < min(one.end_offset, other.end_offset) and one.at(offset) == other.at(offset):
        offset += 1
    return offset

"""The words of a history: who wrote and read what, and what can be wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """What a producer was told."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """A definite error: it certainly had no effect."""
    UNKNOWN = "unknown"
    """An indefinite error, or no answer at all."""


class Producer(NamedTuple):
    """How a producer promises to behave."""

    name: str
    repeats: bool = False
    """It sends again what it is not sure of, without idempotence: a record may be there twice."""
    ordered: bool = True
    """Its records of a partition are there in the order of their numbers."""


class Write(NamedTuple):
    """The numbers from `first` on, `records` of them, sent to one partition as one thing."""

    producer: int
    partition: int
    first: int
    records: int
    outcome: Outcome
    offset: int | None = None
    """Of the first one, as the acknowledgement said; the others follow. None: it did not say."""


class Read(NamedTuple):
    """A reader saw the numbers from `first` on at the offsets from `offset` on, `records` of them."""

    reader: int
    partition: int
    offset: int
    producer: int
    first: int
    records: int


class Anomaly(StrEnum):
    """What must not be. The names are those of Jepsen's kafka workload where it has one."""

    LOST = "lost"
    """Acknowledged, and not there, although what lies behind it is."""
    UNSEEN = "unseen"
    """Acknowledged, and not reached by the last readers: lost, or a log that serves less than it has."""
    DUPLICATE = "duplicate"
    """One record at two offsets."""
    REORDERED = "reordered"
    """A record stands before one that its producer sent earlier."""
    INCONSISTENT_OFFSET = "inconsistent offset"
    """Two reads saw different records at one offset."""
    WRONG_OFFSET = "wrong offset"
    """An acknowledgement named an offset at which something else is."""
    REFUSED_BUT_THERE = "refused but there"
    """A definite error, and the record is in the log."""
    PHANTOM = "phantom"
    """A record that nobody sent."""
    SKIPPED = "skipped"
    """A reader went past records that are there."""
    BACKWARDS = "backwards"
    """A reader saw an offset again, or an earlier one, without being told that the log was truncated."""
    DIVERGENT = "divergent"
    """Two replicas hold different records at one offset; found by comparing replicas."""


@dataclass
class History:
    """What happened, per participant in the order in which it did."""

    producers: dict[int, Producer] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    rewinds: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """(reader, partition) to indexes in `reads`: the reader's first read there or behind it went on
    somewhere else, because it chose to or was told that the log was truncated."""
    last_readers: dict[int, int] = field(default_factory=dict)
    """Partition to the offset up to which it was read when everything had ended, from its start."""
    starts: dict[int, int] = field(default_factory=dict)
    """Partition to the log start offset at the end; 0 if it is not here. What lies below may be gone."""

    def rewind(self, reader: int, partition: int) -> None:
        """The reader's next read of the partition begins somewhere else, and that is as it should be."""
        self.rewinds.setdefault((reader, partition), []).append(len(self.reads))

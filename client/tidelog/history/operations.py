"""The operations of a history (writes and reads), and the kinds of anomalies."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """The answer that a producer got for a write."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """A definite error: the write certainly had no effect."""
    UNKNOWN = "unknown"
    """An indefinite error, or no answer."""


class Producer(NamedTuple):
    """A producer and the way in which it sends."""

    name: str
    repeats: bool = False
    """It repeats writes after indefinite errors, without idempotence: a record may be in the log twice."""
    ordered: bool = True
    """Its records in a partition must be in the order of their numbers."""


class Write(NamedTuple):
    """A write of the numbers from `first` on, `records` of them, to one partition."""

    producer: int
    partition: int
    first: int
    records: int
    outcome: Outcome
    offset: int | None = None
    """The acknowledged offset of the first record; the others follow. None: not known."""


class Read(NamedTuple):
    """A read of the numbers from `first` on at the offsets from `offset` on, `records` of them."""

    reader: int
    partition: int
    offset: int
    producer: int
    first: int
    records: int


class Anomaly(StrEnum):
    """The kinds of anomalies. The names are those of Jepsen's kafka workload where it has one."""

    LOST = "lost"
    """An acknowledged record is not in the log, although later records are."""
    UNSEEN = "unseen"
    """The last readers did not reach an acknowledged record: lost, or the log serves less than it has."""
    DUPLICATE = "duplicate"
    """A record is at two offsets."""
    REORDERED = "reordered"
    """A record is before a record that its producer sent earlier."""
    INCONSISTENT_OFFSET = "inconsistent offset"
    """Two reads saw different records at one offset."""
    WRONG_OFFSET = "wrong offset"
    """The log has another record at the offset of an acknowledgement."""
    REFUSED_BUT_THERE = "refused but there"
    """A record is in the log although its write failed with a definite error."""
    PHANTOM = "phantom"
    """The log has a record that no producer sent."""
    SKIPPED = "skipped"
    """A reader passed records that are in the log without reading them."""
    BACKWARDS = "backwards"
    """A reader got the same or an earlier offset again, without an error that the log was truncated."""
    DIVERGENT = "divergent"
    """Two replicas have different records at one offset; found by the comparison of replicas."""


@dataclass
class History:
    """All writes and reads; those of one producer or reader are in their order."""

    producers: dict[int, Producer] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    rewinds: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """(reader, partition) → indexes in `reads`: the next read of this reader from that index on begins at
    another offset, because it chose to or because the log was truncated."""
    last_readers: dict[int, int] = field(default_factory=dict)
    """Partition → the offset up to which it was read from its start after all producers had ended."""
    starts: dict[int, int] = field(default_factory=dict)
    """Partition → the log start offset at the end; 0 if missing. Records below it may be deleted."""

    def rewind(self, reader: int, partition: int) -> None:
        """Notes that the next read of this reader in the partition may begin at another offset."""
        self.rewinds.setdefault((reader, partition), []).append(len(self.reads))

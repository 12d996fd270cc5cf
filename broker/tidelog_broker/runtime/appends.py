"""What waits to be written: batches of clients and single records, with who wants the answer.

Neighbours: `partition` queues appends, `coalescing` turns single records into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from tidelog.errors import TidelogError
from tidelog_broker.storage.log import Appended, AppendItem

RECORD_OVERHEAD_BYTES = 40
"""Offsets, bitmaps and timestamp of a record in a batch, at most."""

HEADER_OVERHEAD_BYTES = 10
"""Offsets and bitmap bits of one header of a record, at most."""


MESSAGE_ID_BYTES_MAX = 1024
"""A message id may be so long; ids are kept in memory for the dedupe window."""


class Single(NamedTuple):
    """A record that came alone."""

    value: bytes | None
    timestamp_us: int
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    subject: str | None = None
    message_id: str | None = None
    """To be deduplicated; it also stands in `headers`."""


def encoded_bytes_max(records: Sequence[Single]) -> int:
    """At least the bytes that records will take in a batch, its overhead not counted."""
    total = RECORD_OVERHEAD_BYTES * len(records)
    for record in records:
        total += len(record.value or b"") + len(record.key or b"")
        if record.subject is not None:
            total += len(record.subject) * (1 if record.subject.isascii() else 4)
        for name, value in record.headers:
            total += HEADER_OVERHEAD_BYTES + 4 * len(name) + len(value or b"")
    return total


class Acks(IntEnum):
    """As in `tidelog.v1.Acks` (R7)."""

    ALL = 0
    LEADER = 1
    NONE = 2


class SinglesAppended(NamedTuple):
    """Where single records stand, one offset each, in the order in which they came."""

    offsets: Sequence[int]
    duplicates: frozenset[int]
    """Indexes of records that were in the log already."""
    leader_epoch: int

    @property
    def end(self) -> int:
        return max(self.offsets) + 1


@dataclass(slots=True, eq=False)
class BatchAppend:
    """A batch that a client encoded."""

    item: AppendItem
    done: Callable[[Appended | TidelogError], None]
    """Called once, on the event loop."""
    acks: Acks = Acks.ALL
    deadline: float = float("inf")
    """On the event loop's clock; then `TimedOut`. Seconds."""

    @property
    def bytes(self) -> int:
        return self.item.header.length


@dataclass(slots=True, eq=False)
class SinglesAppend:
    """Records that came one by one; they are appended together or not at all."""

    records: Sequence[Single]
    done: Callable[[SinglesAppended | TidelogError], None]
    acks: Acks = Acks.ALL
    deadline: float = float("inf")
    bytes: int = 0
    """At least what they will take in a batch (`encoded_bytes_max`)."""


Append = BatchAppend | SinglesAppend

Outcome = tuple[Append, Appended | SinglesAppended | TidelogError]

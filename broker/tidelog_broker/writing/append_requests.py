"""What waits to be written: batches of clients and single records, with who wants the answer.

Neighbours: `partition` queues appends, `batching` turns single records into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from tidelog.errors import InvalidRequest, TidelogError
from tidelog_broker.storage.log.write_batch import Appended, AppendItem
from tidelog_broker.writing.record_columns import RecordColumns


class Acks(IntEnum):
    """As in `tidelog.v1.Acks` (R7)."""

    ALL = 0
    LEADER = 1
    NONE = 2

    @classmethod
    def checked(cls, number: int) -> Acks:
        """The value for a request's number; raises `InvalidRequest` for any other number."""
        try:
            return cls(number)
        except ValueError:
            raise InvalidRequest(f"acks is {number}; it must be 0 (all), 1 (leader) or 2 (none)") from None


class RecordsAppended(NamedTuple):
    """Where single records stand, one offset each, in the order in which they came."""

    offsets: Sequence[int]
    duplicates: frozenset[int]
    """Indexes of records that were in the log already."""
    leader_epoch: int

    @property
    def end(self) -> int:
        """Behind the last of them."""
        # Without duplicates they ascend.
        return (max(self.offsets) if self.duplicates else self.offsets[-1]) + 1


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

    @property
    def recorded(self) -> bool:
        return False


@dataclass(slots=True, eq=False)
class RecordsAppend:
    """Records that came one by one; they are appended together or not at all."""

    records: RecordColumns
    """At least one."""
    done: Callable[[RecordsAppended | TidelogError], None]
    acks: Acks = Acks.ALL
    deadline: float = float("inf")
    recorded: bool = False
    """They come from a NATS subject: nobody is left in doubt who could not ask again (N5)."""

    @property
    def bytes(self) -> int:
        return self.records.bytes


Append = BatchAppend | RecordsAppend

Outcome = tuple[Append, Appended | RecordsAppended | TidelogError]

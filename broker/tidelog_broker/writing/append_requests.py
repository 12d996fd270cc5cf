"""Appends that wait to be written: clients' batches and single records, each with its answer callback.

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
    """When an append is acknowledged; the numbers are those of `tidelog.v1.Acks` (R7)."""

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
    """The offsets of single records, one for each record, in the order of their arrival."""

    offsets: Sequence[int]
    duplicates: frozenset[int]
    """Indexes of the duplicates: an earlier copy of these records exists."""
    leader_epoch: int

    @property
    def end(self) -> int:
        """The offset after the last record."""
        # Without duplicates the offsets ascend.
        return (max(self.offsets) if self.duplicates else self.offsets[-1]) + 1


@dataclass(slots=True, eq=False)
class BatchAppend:
    """A batch that a client encoded."""

    item: AppendItem
    done: Callable[[Appended | TidelogError], None]
    """Called once, on the event loop."""
    acks: Acks = Acks.ALL
    deadline: float = float("inf")
    """After this time the answer is `TimedOut`. Seconds, on the event loop's clock."""

    @property
    def bytes(self) -> int:
        return self.item.header.length

    @property
    def recorded(self) -> bool:
        return False


@dataclass(slots=True, eq=False)
class RecordsAppend:
    """Records that arrived one by one; the broker appends all of them or none."""

    records: RecordColumns
    """At least one."""
    done: Callable[[RecordsAppended | TidelogError], None]
    acks: Acks = Acks.ALL
    deadline: float = float("inf")
    recorded: bool = False
    """The records come from a NATS subject. A handover does not refuse them: their publishers ask again or
    want no answer (N5)."""

    @property
    def bytes(self) -> int:
        return self.records.bytes


Append = BatchAppend | RecordsAppend

Outcome = tuple[Append, Appended | RecordsAppended | TidelogError]

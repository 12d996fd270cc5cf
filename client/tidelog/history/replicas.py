"""The comparison of the replicas of a partition: by offset, not by file (R12).

The caller gives pieces of each replica's log in the order of offsets. The comparison says which replica is
next, so that about one piece of each is in memory. Records in one piece may be in several pieces of another
replica, because brokers may merge batches. No I/O; `tidelog verify --cluster` and the chaos runs bring the
pieces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

COLUMNS: Final = ("key", "value", "headers", "subject", "timestamp")
OFFSET: Final = "offset"


class Lack(StrEnum):
    """The reason why a replica has no records, or other records, in a range."""

    RETIRED = "retired"
    """They are below its log start offset: this is not an error."""
    CORRUPT = "corrupt"
    """Their checksums fail."""
    MISSING = "missing"
    """The replica does not have them, or they could not be read."""
    DIVERGENT = "divergent"
    """Its history differs from the others, so its broker refuses to read on."""


class Piece(NamedTuple):
    """The offsets from `start` to before `end` in one replica: the records, or the reason for none."""

    start: int
    end: int
    epoch: int = 0
    """The epoch of the leader that wrote them."""
    append_time_us: int = 0
    columns: pa.RecordBatch | None = None
    """The columns of the records as present, and `offset` (int64). None: `lack` has the reason."""
    lack: Lack = Lack.MISSING
    why: str = ""


@dataclass
class Difference:
    """The difference of one replica in a range of offsets."""

    replica: int
    what: Lack
    start: int
    end: int
    why: str

    def __str__(self) -> str:
        what = "differs" if self.what is Lack.DIVERGENT else f"is {self.what}"
        return f"replica {self.replica}: offsets {self.start}–{self.end - 1}: {what}; {self.why}"


class Comparison:
    """The comparison of one partition: the first replica with a record is the model for the others."""

    def __init__(self, replicas: Sequence[int], start: int, end: int) -> None:
        """Compares the offsets from `start` to before `end`; name the leader first."""
        self._pieces: dict[int, deque[Piece]] = {replica: deque() for replica in replicas}
        self._reached = dict.fromkeys(replicas, start)
        self._end = end
        self.at = start
        """All offsets below are compared."""
        self.differences: list[Difference] = []
        """Sorted by offset; adjacent ranges with the same reason are joined."""

    def next_replica(self) -> int | None:
        """The replica whose next piece is needed; None: all offsets are compared."""
        behind = min(self._reached, key=self._reached.__getitem__)
        return behind if self._reached[behind] < self._end else None

    def take(self, replica: int, piece: Piece) -> None:
        """Takes the next piece of a replica; it must not begin behind the end of the last one."""
        assert piece.start <= self._reached[replica], (piece.start, self._reached[replica])
        if piece.end > self._reached[replica]:
            self._pieces[replica].append(piece)
            self._reached[replica] = piece.end
        reached = min(self._end, *self._reached.values())
        while self.at < reached:
            for pieces in self._pieces.values():
                while pieces[0].end <= self.at:
                    pieces.popleft()
            stop = min(reached, *(pieces[0].end for pieces in self._pieces.values()))
            self._compare(stop)
            self.at = stop

    def _compare(self, stop: int) -> None:
        """Compares the offsets up to `stop`, which lie within one piece of each replica."""
        model: Piece | None = None
        for replica, pieces in self._pieces.items():
            piece = pieces[0]
            if piece.columns is None:
                if piece.lack is not Lack.RETIRED:
                    self._note(Difference(replica, piece.lack, self.at, stop, piece.why))
            elif model is None:
                model = piece
            else:
                self._hold_against(model, replica, piece, stop)

    def _hold_against(self, model: Piece, replica: int, piece: Piece, stop: int) -> None:
        for name, theirs, ours in (
            ("epoch", model.epoch, piece.epoch),
            ("append time", model.append_time_us, piece.append_time_us),
        ):
            if theirs != ours:
                why = f"{name} {ours}, and {theirs} on another replica"
                self._note(Difference(replica, Lack.DIVERGENT, self.at, stop, why))
                return
        theirs_here, ours_here = _between(model, self.at, stop), _between(piece, self.at, stop)
        if _equal(theirs_here, ours_here):
            return
        first = _first_difference(theirs_here, ours_here)
        offset = first if first is not None else self.at
        self._note(Difference(replica, Lack.DIVERGENT, offset, stop, "other records than on another replica"))

    def _note(self, found: Difference) -> None:
        for last in reversed(self.differences):
            if last.replica == found.replica:
                if (last.end, last.what, last.why) == (found.start, found.what, found.why):
                    last.end = found.end
                    return
                break
        self.differences.append(found)


def _between(piece: Piece, start: int, end: int) -> pa.RecordBatch:
    """The rows of a piece whose offsets lie in a range."""
    columns = piece.columns
    assert columns is not None
    if (piece.start, piece.end) == (start, end):
        return columns
    offsets = columns.column(OFFSET)
    below = pc.sum(pc.less(offsets, start)).as_py() or 0
    within = pc.sum(pc.less(offsets, end)).as_py() or 0
    return columns.slice(below, within - below)


def _equal(one: pa.RecordBatch, other: pa.RecordBatch) -> bool:
    """Whether the records are the same; a missing column counts as nulls."""
    if one.num_rows != other.num_rows or not one.column(OFFSET).equals(other.column(OFFSET)):
        return False
    for name in COLUMNS:
        ours = one.column(name) if name in one.schema.names else None
        theirs = other.column(name) if name in other.schema.names else None
        if ours is not None and theirs is not None:
            if not ours.equals(theirs):
                return False
        elif any(column is not None and column.null_count < len(column) for column in (ours, theirs)):
            return False
    return True


def _first_difference(one: pa.RecordBatch, other: pa.RecordBatch) -> int | None:
    """The first offset at which they differ; None: one of them is only shorter."""
    for row in range(min(one.num_rows, other.num_rows)):
        if not _equal(one.slice(row, 1), other.slice(row, 1)):
            offset: int = one.column(OFFSET)[row].as_py()
            return offset
    return None

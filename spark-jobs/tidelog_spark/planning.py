"""How much to read next, and by how many tasks: arithmetic on offsets, no I/O.

`advance` computes one trigger of a streaming query, `split` cuts ranges for Spark's tasks. `fair_shares` has
the rule by which partitions share a limit, `byte_limits` does the same in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from tidelog.model import Position
from tidelog_spark.fair_shares import share_out
from tidelog_spark.offsets import Mark, Offsets, PartitionKey, Range

SPLITS_MAX: Final = 100_000
"""The most tasks of one read; planning more would take longer than running them."""


def advance(start: Offsets, reachable: Offsets, limit: int | None, turn: int = 0) -> dict[PartitionKey, Mark]:
    """The end of the next micro-batch: from `start` towards `reachable`, at most `limit` offsets.

    `turn` is the number of the trigger (`fair_shares`). A mark keeps its epoch only if it is reached; before
    it the epoch is None, and the caller must find it. Partitions that are no longer reachable are left out.
    """
    begins = begin_marks(start, reachable)
    sizes = unread(begins, reachable)
    shares = sizes if limit is None else share_out(sizes, limit, turn)
    return {key: _moved(begins[key], mark, shares[key]) for key, mark in reachable.items()}


def begin_marks(start: Offsets, reachable: Offsets) -> dict[PartitionKey, Mark]:
    """Where the query stands in each reachable partition, in the order of the partitions."""
    return {key: _begin(start.get(key), reachable[key]) for key in sorted(reachable)}


def unread(begins: Offsets, reachable: Offsets) -> dict[PartitionKey, int]:
    """The number of offsets between both marks, in the order of `begins`."""
    return {
        key: max(0, reachable[key].position.offset - begin.position.offset) for key, begin in begins.items()
    }


def _begin(before: Mark | None, reachable: Mark) -> Mark:
    if before is None or before.stream_id != reachable.stream_id:
        return Mark(reachable.stream_id, Position(reachable.first), reachable.first)
    if before.position.offset < reachable.first:
        # What lies between is deleted. It takes no part of a limit.
        return before._replace(position=Position(reachable.first))
    return before


def _moved(begin: Mark, reachable: Mark, share: int) -> Mark:
    offset = begin.position.offset + share
    if offset >= reachable.position.offset:
        # The log may also be shorter than before: then the query continues at its end.
        return begin._replace(position=_nearest(begin, reachable))
    if share == 0:
        return begin
    return begin._replace(position=Position(offset))


def _nearest(begin: Mark, reachable: Mark) -> Position:
    """Of two positions at the same offset the one in the checkpoint: equal text starts no new batch."""
    if begin.position.offset == reachable.position.offset:
        return begin.position
    return reachable.position


def split(ranges: Sequence[Range], *, records_max: int, partitions_min: int | None) -> list[Range]:
    """Cuts the ranges into pieces of about equal length, with at most `records_max` records.

    There are at least `partitions_min` pieces, if there are so many records. The inner ends have no
    epoch; the outer ends keep theirs.
    """
    total = sum(piece.count for piece in ranges)
    if total == 0:
        return []
    size = records_max
    if partitions_min is not None:
        size = min(size, max(1, total // partitions_min))
    size = max(size, -(-total // SPLITS_MAX))
    return [piece for whole in ranges for piece in _cut(whole, -(-whole.count // size))]


def _cut(whole: Range, pieces: int) -> list[Range]:
    edges = [Position(whole.start.offset + whole.count * place // pieces) for place in range(pieces + 1)]
    edges[0], edges[-1] = whole.start, whole.end
    return [Range(whole.key, whole.stream_id, begin, end) for begin, end in pairwise(edges)]

"""Limits in bytes: the end of a micro-batch, and the cuts between tasks.

Brokers find the edge of a batch behind some bytes (`AfterBytes`); they count batches as they are stored,
compressed if their producer compressed them. `within` bounds a micro-batch with two rounds of requests,
`cut` cuts ranges with one round for each task of the longest range. A partition whose log has changed
meanwhile is left as it is: the tasks report what is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tidelog.model import AfterBytes, FoundPositions, Position
from tidelog.reader import Start
from tidelog_spark.fair_shares import share_out
from tidelog_spark.offsets import Mark, Offsets, PartitionKey, Range

UNIT_BYTES: Final = 1 << 20
"""Partitions share a limit in units of this size, about the size of a large batch: a partition with a smaller
share would exceed it, because its smallest step is a batch."""

CUTS_MAX: Final = 10_000
"""The most tasks that one range is cut into; a longer rest is one task."""

Find = Callable[[Mapping[str, Mapping[int, Start]]], Mapping[str, FoundPositions]]
"""Finds positions in many partitions (`cluster.Cluster.find`)."""


def within(
    begins: Offsets, ends: Offsets, limit: int, *, turn: int, reach: Offsets, find: Find
) -> dict[PartitionKey, Mark]:
    """`ends`, moved back so that at most about `limit` bytes lie between `begins` and them.

    A partition that takes part gets at least one batch, so the sum exceeds the limit only by batches that
    are larger than the share of their partition. `reach` has the starts of the logs, `turn` the number of
    the trigger (`fair_shares`).
    """
    waiting = {
        key: begin
        for key, begin in sorted(begins.items())
        if begin.position.offset < ends[key].position.offset
    }
    if not waiting:
        return dict(ends)
    unit = min(UNIT_BYTES, limit)
    probe = max(limit // len(waiting), unit)
    probed = _after(waiting, dict.fromkeys(waiting, probe), reach, find)
    drained = {key for key in waiting if key not in probed or _reaches(probed[key], ends[key])}
    if len(drained) == len(waiting) and probe * len(waiting) <= limit:
        return dict(ends)
    sizes = _estimated(waiting, ends, probed, drained, probe)
    # With the drained ones: the ring of the rule has the same partitions in each turn.
    units = {key: -(-sizes.get(key, 0) // unit) for key in sorted(begins)}
    shares = {
        key: share * unit for key, share in share_out(units, max(1, limit // unit), turn).items() if share
    }
    found = _after({key: waiting[key] for key in shares}, shares, reach, find)
    moved = {key: _nearer(found[key], ends[key]) if key in found else ends[key] for key in shares}
    return {key: moved.get(key, waiting.get(key, mark)) for key, mark in ends.items()}


def _estimated(
    begins: Offsets,
    ends: Offsets,
    probed: Mapping[PartitionKey, Position],
    drained: set[PartitionKey],
    probe: int,
) -> dict[PartitionKey, int]:
    """The unread bytes of each partition, by the bytes that its first records had.

    They only weigh the shares. The broker counts the bytes of each share.
    """
    counts = {key: ends[key].position.offset - begin.position.offset for key, begin in begins.items()}
    each = {
        key: probe / max(1, probed[key].offset - begin.position.offset)
        for key, begin in begins.items()
        if key not in drained
    }
    largest = max(each.values(), default=float(probe))
    return {
        key: max(1, min(probe, round(count * largest)) if key in drained else round(count * each[key]))
        for key, count in counts.items()
    }


def cut(ranges: Sequence[Range], bytes_max: int, find: Find) -> list[Range]:
    """The ranges, cut so that each piece has at most `bytes_max` bytes, or a single batch."""
    pieces: dict[PartitionKey, list[Range]] = {piece.key: [] for piece in ranges}
    rests = {piece.key: piece for piece in ranges}
    for _ in range(CUTS_MAX):
        if not rests:
            break
        starts = {key: Mark(rest.stream_id, rest.start, 0) for key, rest in rests.items()}
        found = _after(starts, dict.fromkeys(rests, bytes_max), {}, find)
        for key, rest in list(rests.items()):
            edge = found.get(key)
            if edge is None or edge.offset >= rest.end.offset:
                pieces[key].append(rests.pop(key))
                continue
            # The inner ends have no epoch, as in `planning.split`.
            middle = Position(edge.offset)
            pieces[key].append(Range(key, rest.stream_id, rest.start, middle))
            rests[key] = Range(key, rest.stream_id, middle, rest.end)
    for key, rest in rests.items():
        pieces[key].append(rest)
    return [piece for whole in ranges for piece in pieces[whole.key]]


def _after(
    begins: Offsets, sizes: Mapping[PartitionKey, int], reach: Offsets, find: Find
) -> dict[PartitionKey, Position]:
    """The edges behind so many bytes; partitions whose log has changed are left out."""
    starts: dict[str, dict[int, Start]] = {}
    for key, begin in begins.items():
        log_start = reach[key].first if key in reach else 0
        start = Position(max(begin.position.offset, log_start))
        starts.setdefault(key.stream, {})[key.partition] = AfterBytes(start, sizes[key])
    return {
        key: stream.positions[key.partition].position
        for name, stream in find(starts).items()
        for key in (PartitionKey(name, number) for number in stream.positions)
        if stream.stream_id == begins[key].stream_id
    }


def _reaches(position: Position, end: Mark) -> bool:
    return position.offset >= end.position.offset


def _nearer(position: Position, end: Mark) -> Mark:
    return end if _reaches(position, end) else end._replace(position=position)

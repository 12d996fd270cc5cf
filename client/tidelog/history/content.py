"""The content of a log, as all reads together show it: runs of offsets without overlaps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.history.operations import Read


class Run(NamedTuple):
    """Consecutive numbers of a producer at consecutive offsets."""

    offset: int
    producer: int
    first: int
    records: int

    @property
    def end(self) -> int:
        return self.offset + self.records

    def __str__(self) -> str:
        return f"producer {self.producer} number {self.first}"

    def agrees(self, other: Run) -> bool:
        """Whether both show the same records where they overlap."""
        return (self.producer, self.first - self.offset) == (other.producer, other.first - other.offset)

    def cut(self, start: int, end: int) -> Run:
        """The part of the run in these offsets."""
        start, end = max(start, self.offset), min(end, self.end)
        return Run(start, self.producer, self.first + start - self.offset, end - start)


class Conflict(NamedTuple):
    """Two reads that saw different records, from the same offset on."""

    known: Run
    other: Run
    records: int


def content_of(runs: Iterable[Run]) -> tuple[list[Run], list[Conflict]]:
    """The content that all reads together show, sorted by offset, and the conflicts between reads."""
    content: list[Run] = []
    conflicts: list[Conflict] = []
    for run in sorted(runs):
        at = run
        while at.records:
            if not content or at.offset >= content[-1].end:
                content.append(at)
                break
            # Runs are sorted by offset, so the content that overlaps has no gaps up to its newest end.
            known = content[bisect_right(content, at.offset, key=lambda one: one.offset) - 1]
            both = min(known.end, at.end)
            if not known.agrees(at):
                conflicts.append(Conflict(known.cut(at.offset, both), at, both - at.offset))
            at = at.cut(both, at.end)
    return content, conflicts


def ranges_of(reads: Iterable[Read]) -> dict[int, list[tuple[int, int]]]:
    """The ranges of offsets that any reader read, by partition, joined and sorted."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for read in sorted(reads, key=lambda read: (read.partition, read.offset)):
        known = ranges.setdefault(read.partition, [])
        end = read.offset + read.records
        if known and read.offset <= known[-1][1]:
            known[-1] = (known[-1][0], max(known[-1][1], end))
        else:
            known.append((read.offset, end))
    return ranges


def covered(ranges: list[tuple[int, int]], start: int, end: int) -> int:
    """The number of offsets from `start` to `end` that lie in `ranges`."""
    index = max(0, bisect_right(ranges, start, key=lambda one: one[0]) - 1)
    count = 0
    for begin, stop in ranges[index:]:
        if begin >= end:
            break
        count += max(0, min(stop, end) - max(begin, start))
    return count

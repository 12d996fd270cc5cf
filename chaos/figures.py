"""What a run measured: gaps without acknowledgements (p50 and maximum), and counts of elections and more."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog.model import StreamDescription


@dataclass
class Figures:
    """The figures of a whole run."""

    gaps: dict[str, list[float]] = field(default_factory=dict)
    """By event: the seconds without an acknowledgement, for each time that it happened."""
    counts: Counter[str] = field(default_factory=Counter)

    def gap(self, what: str, seconds: float) -> None:
        self.gaps.setdefault(what, []).append(seconds)

    def as_json(self) -> dict[str, Any]:
        return {
            "gaps_seconds": {
                what: {
                    "times": len(found),
                    "p50": round(statistics.median(found), 3),
                    "max": round(max(found), 3),
                }
                for what, found in self.gaps.items()
            },
            "counts": dict(self.counts),
        }

    def lines(self) -> list[str]:
        said = self.as_json()
        return [
            *(
                f"gap          {what}: p50 {gap['p50']:.2f} s, max {gap['max']:.2f} s, {_times(gap['times'])}"
                for what, gap in said["gaps_seconds"].items()
            ),
            *(f"count        {what}: {count:,}" for what, count in said["counts"].items()),
        ]


def _times(count: int) -> str:
    return "1 time" if count == 1 else f"{count:,} times"


@dataclass(frozen=True)
class Standing:
    """The state of one partition in the image."""

    leader: int | None
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


Place = tuple[str, int]
"""Stream and partition."""


def standings(streams: Iterable[StreamDescription]) -> dict[Place, Standing]:
    return {
        (stream.name, one.partition): Standing(one.leader, one.leader_epoch, one.partition_epoch, one.isr)
        for stream in streams
        for one in stream.partitions
    }


@dataclass(frozen=True)
class Tally:
    """What happened to partitions between two looks. Epochs count every change, also one that no look saw."""

    elections: int
    """New leader epochs."""
    elections_max: int
    """The most of one partition."""
    isr_changes: int
    """Partition epochs without an election: members that joined or left, and repeated proposals."""
    isr_changes_max: int


def tally(before: Mapping[Place, Standing], after: Mapping[Place, Standing]) -> Tally:
    elections, changes = [0], [0]
    for place, now in after.items():
        was = before[place]
        elected = now.leader_epoch - was.leader_epoch
        elections.append(elected)
        changes.append(max(0, now.partition_epoch - was.partition_epoch - elected))
    return Tally(sum(elections), max(elections), sum(changes), max(changes))

"""Compares the records of a source with the rows of a target, by partition, offset and value. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

EXAMPLES_MAX: Final = 5
"""How many places a report names of each anomaly."""

Place = tuple[str, int, int]
"""Stream, partition and offset of a record of the source."""

Row = tuple[Place, bytes]
"""Where a row comes from, and its value."""


@dataclass
class Findings:
    """What is wrong with a target; nothing if it is exactly the source."""

    lost: list[Place] = field(default_factory=list)
    """Records of the source that the target does not have."""
    duplicate: list[Place] = field(default_factory=list)
    """Records that the target has more than once; one entry for each further row."""
    foreign: list[Place] = field(default_factory=list)
    """Rows of the target that no record of the source gave, or with another value."""
    disordered: list[Place] = field(default_factory=list)
    """Rows that stand behind a row with a greater offset of the same partition of the source."""

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicate or self.foreign or self.disordered)

    def sentences(self) -> list[str]:
        """One sentence for each kind of anomaly that was found."""
        return [
            f"{len(places)} rows are {name}, such as {places[:EXAMPLES_MAX]}"
            for name, places in vars(self).items()
            if places
        ]

    def as_json(self) -> dict[str, Any]:
        return {name: len(places) for name, places in vars(self).items()}


def compare(source: Mapping[Place, bytes], target: Iterable[Iterable[Row]]) -> Findings:
    """`target`: the rows in the order of each of its partitions; a target without an order gives each row
    alone."""
    found = Findings()
    seen: set[Place] = set()
    for rows in target:
        newest: dict[tuple[str, int], int] = {}
        for place, value in rows:
            stream, partition, offset = place
            if source.get(place) != value:
                found.foreign.append(place)
                continue
            if place in seen:
                found.duplicate.append(place)
                continue
            seen.add(place)
            if newest.get((stream, partition), -1) > offset:
                found.disordered.append(place)
            newest[stream, partition] = offset
    found.lost.extend(sorted(source.keys() - seen))
    return found

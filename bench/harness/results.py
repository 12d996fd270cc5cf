"""The results of a case: medians over the rounds, and their ratio to each peer. No I/O.

`report` prints them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.harness.case import Case
from bench.harness.model import Contender, Facts, Sample


@dataclass(frozen=True, slots=True)
class Entry:
    """A case and one peer; `peer` is None where the case has no peer to compare with."""

    case: str
    unit: str
    ours: float
    peer: str | None
    theirs: float | None
    ratio: float | None
    """More than 1: ours is better, whether the unit counts more or less as better."""
    settings: Facts

    def as_json(self) -> dict[str, object]:
        return {
            "case": self.case,
            "unit": self.unit,
            "ours": _rounded(self.ours),
            "peer": self.peer,
            "theirs": None if self.theirs is None else _rounded(self.theirs),
            "ratio": None if self.ratio is None else _rounded(self.ratio),
            "settings": dict(self.settings),
        }


def ratio_of(ours: float, theirs: float, *, more_is_better: bool) -> float | None:
    """How many times better ours is; None where the worse of the two is zero."""
    better, worse = (ours, theirs) if more_is_better else (theirs, ours)
    return better / worse if worse else None


def entries_of(
    case: Case, contenders: Sequence[Contender], samples: Mapping[str, Sequence[Sample]], run: Facts
) -> list[Entry]:
    """One entry per peer from all rounds: medians, and their ratio.

    `contenders` begins with ours; `run` holds the facts that are the same for all contenders.
    """
    own = contenders[0]
    ours = median(sample.value for sample in samples[own.name])
    shared = {**run, "ours": _facts(own, samples[own.name])}
    if len(contenders) == 1:
        return [Entry(case.name, case.unit, ours, None, None, None, shared)]
    entries = []
    for peer in contenders[1:]:
        theirs = median(sample.value for sample in samples[peer.name])
        ratio = ratio_of(ours, theirs, more_is_better=case.more_is_better)
        settings = {**shared, "theirs": _facts(peer, samples[peer.name])}
        entries.append(Entry(case.name, case.unit, ours, peer.name, theirs, ratio, settings))
    return entries


def _facts(contender: Contender, samples: Sequence[Sample]) -> dict[str, object]:
    """Settings, the value of every round, and the median of each other number."""
    seen: dict[str, object] = {}
    for name in samples[0].facts:
        values = [sample.facts[name] for sample in samples if name in sample.facts]
        numbers = [float(value) for value in values if isinstance(value, int | float)]
        seen[name] = _rounded(median(numbers)) if len(numbers) == len(values) else values[-1]
    return {**contender.settings, **seen, "rounds": [_rounded(sample.value) for sample in samples]}


def _rounded(value: float) -> float:
    """Four significant digits: more would be noise."""
    return float(f"{value:.4g}")

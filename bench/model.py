"""The words of the harness: a case, its contenders, what they reach. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from bench.stage import Stage

OURS = "tidelog"

Facts: TypeAlias = Mapping[str, object]


class Missing(Exception):
    """A contender cannot run on this machine; the message says what it lacks."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement."""

    value: float
    facts: Facts = field(default_factory=dict)
    """What else was seen: percentiles, megabytes per second, CPU."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Somebody who can do the work of a case."""

    name: str
    """`OURS`, or the peer with its version."""
    measure: Callable[[float], Sample]
    """Does the work for about this many seconds."""
    settings: Facts = field(default_factory=dict)
    warm: Callable[[], None] | None = None
    """What must happen once before the first measurement: filling a stream, warming a JVM."""
    close: Callable[[], None] | None = None
    """Gives back what `warm` made."""


Entrants: TypeAlias = Sequence[Callable[["Stage"], Contender]]


@dataclass(frozen=True, slots=True)
class Case:
    """A line of the table."""

    name: str
    unit: str
    more_is_better: bool
    ours: Callable[[Stage], Contender]
    peers: Mapping[str, Entrants] = field(default_factory=dict)
    """By the name that `--peers` selects them with."""
    rounds_max: int | None = None
    """Fewer rounds than asked for, where one is enough or takes long."""
    servers: str = "one"
    """Which servers stay up between cases: a case with another word stops those of the last one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A case and one peer; `peer` is None where there is nothing to compare with."""

    case: str
    unit: str
    ours: float
    peer: str | None
    theirs: float | None
    ratio: float | None
    """More than 1: ours is better, whichever way the unit counts."""
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

    `contenders` begins with ours; `run` is what holds for all of them.
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
    """Settings, every round's value, and the medians of the numbers seen besides."""
    seen: dict[str, object] = {}
    for name in samples[0].facts:
        values = [sample.facts[name] for sample in samples if name in sample.facts]
        numbers = [float(value) for value in values if isinstance(value, int | float)]
        seen[name] = _rounded(median(numbers)) if len(numbers) == len(values) else values[-1]
    return {**contender.settings, **seen, "rounds": [_rounded(sample.value) for sample in samples]}


def _rounded(value: float) -> float:
    """Four significant digits: more would be noise."""
    return float(f"{value:.4g}")


def matching(cases: Sequence[Case], wanted: Sequence[str]) -> list[Case]:
    """The cases that `wanted` names, whole or by their first parts; all if it names none.

    Raises ValueError for a name that no case has.
    """
    if not wanted:
        return list(cases)
    for name in wanted:
        if not any(_names(name, case.name) for case in cases):
            parts = sorted({case.name.partition(".")[0] for case in cases})
            raise ValueError(f"no case is called {name!r}; there are {', '.join(parts)} (--list shows all)")
    return [case for case in cases if any(_names(name, case.name) for name in wanted)]


def _names(wanted: str, case: str) -> bool:
    return case == wanted or case.startswith(f"{wanted}.")

"""A case: what is measured, in which unit, and which contenders take part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bench.harness.model import Contender
from bench.harness.stage import Stage

Entrant: TypeAlias = Callable[[Stage], Contender]
"""Makes a contender; raises `Missing` where this machine lacks something for it."""


@dataclass(frozen=True, slots=True)
class Case:
    """A line of the table."""

    name: str
    unit: str
    more_is_better: bool
    ours: Entrant
    peers: Mapping[str, Sequence[Entrant]] = field(default_factory=dict)
    """By the name that `--peers` selects them with."""
    rounds_max: int | None = None
    """Fewer rounds than `--rounds`, for a case whose round is long or enough alone."""
    servers: str = "one"
    """Which servers stay up between cases: a case with another value stops the servers of the case before."""


def matching(cases: Sequence[Case], wanted: Sequence[str]) -> list[Case]:
    """The cases that `wanted` names, by the whole name or its first parts; all cases if it is empty.

    Raises ValueError for a name that no case has.
    """
    if not wanted:
        return list(cases)
    for name in wanted:
        if not any(_names(name, case.name) for case in cases):
            parts = sorted({case.name.partition(".")[0] for case in cases})
            raise ValueError(
                f"there is no case {name!r}; names begin with {', '.join(parts)} (--list shows all cases)"
            )
    return [case for case in cases if any(_names(name, case.name) for name in wanted)]


def _names(wanted: str, case: str) -> bool:
    return case == wanted or case.startswith(f"{wanted}.")

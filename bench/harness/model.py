"""The terms of the harness: a contender, a sample of its work, and why a contender cannot run. No I/O.

`case` has the cases that contenders take part in, `results` what is computed from the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

OURS = "tidelog"

Facts: TypeAlias = Mapping[str, object]


class Missing(Exception):
    """A contender cannot run on this machine; the message says what the machine lacks."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement."""

    value: float
    facts: Facts = field(default_factory=dict)
    """Other results of the same measurement: percentiles, megabytes per second, CPU."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A system, with a client, that can do the work of a case."""

    name: str
    """`OURS`, or the peer with its version."""
    measure: Callable[[float], Sample]
    """Does the work for about this many seconds."""
    settings: Facts = field(default_factory=dict)
    warm: Callable[[], None] | None = None
    """Runs once before the first measurement: fills a stream, warms a JVM."""
    close: Callable[[], None] | None = None
    """Removes what `warm` made."""

"""Which rules a number of runs exercised, and how often: the marks of the checks, by rule.

A rule that no run comes to is a rule that no run tests: over enough seeds each has to be met.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

SEEDS_ENOUGH: Final = 200
"""From so many on a rule that was not met is a failure."""

RULES: Final = {
    "R1": "reconciliation",
    "R2": "fencing",
    "R3": "high watermark",
    "R4": "ISR changes",
    "R5": "epoch starts",
    "R6": "election",
    "R7": "acknowledgements",
    "R8": "idempotence",
    "R9": "conditional append",
    "R10": "incarnations",
    "R11": "log start",
    "R13": "positions",
    "R14": "failure reports",
    "R15": "what a new leader may say",
    "R17": "durability is a fence",
    "R18": "clocks and retention",
    "R19": "old directories",
    "2a": "recovery makes durable what it read",
    "2b": "torn or suspect",
    "2c": "damage and quarantine",
    "2d": "strays",
    "M1": "formatting and voters",
    "M2": "a voter is a broker and a disk",
    "M2a": "recovery of the metadata by force",
    "M3": "time and fencing",
    "N2": "publish acknowledgements",
    "N3": "message ids",
    "N5": "who answers publishers, and when",
    "N6": "which subjects are recorded where",
}
"""Those that a run of many seeds has to meet, with their names."""


def by_rule(marks: Mapping[str, int]) -> dict[str, int]:
    """How often each of `RULES` was met."""
    counts = dict.fromkeys(RULES, 0)
    for mark, count in marks.items():
        rule = mark.partition(" ")[0]
        if rule in counts:
            counts[rule] += count
    return counts


def unmet(marks: Mapping[str, int]) -> list[str]:
    return [rule for rule, count in by_rule(marks).items() if not count]


def table(marks: Mapping[str, int]) -> Iterator[str]:
    """A line for each rule, and under it one for each of its marks; then the marks of other rules."""
    for rule, count in by_rule(marks).items():
        yield f"  {count:>9,}  {rule:4} {RULES[rule]}"
        yield from _marks_of(rule, marks)
    for rule in sorted({mark.partition(" ")[0] for mark in marks} - set(RULES)):
        yield f"             {rule}"
        yield from _marks_of(rule, marks)


def _marks_of(rule: str, marks: Mapping[str, int]) -> Iterator[str]:
    for mark in sorted(marks):
        first, _, what = mark.partition(" ")
        if first == rule:
            yield f"               {marks[mark]:>9,}  {what}"

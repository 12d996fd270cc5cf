"""Which rules the runs exercised, and how often: the marks of the checks, by rule.

No run tests a rule that it does not exercise. So enough seeds together must exercise every rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

SEEDS_ENOUGH: Final = 200
"""With at least so many seeds, a rule that no run exercised is a failure."""

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
    "R15": "the end that a new leader may name",
    "R17": "durability is a fence",
    "R18": "clocks and retention",
    "R19": "old directories",
    "2a": "recovery flushes what it read",
    "2b": "torn or suspect",
    "2c": "damage and quarantine",
    "2d": "strays",
    "M1": "formatting and voters",
    "M2": "a voter is a broker and a disk",
    "M2a": "recovery of the metadata by force",
    "M3": "time and fencing",
    "N2": "publish acknowledgements",
    "N3": "message ids",
    "N5": "answers to publishers",
    "N6": "from subjects to partitions",
}
"""The rules that many seeds together must exercise, with their names."""


def by_rule(marks: Mapping[str, int]) -> dict[str, int]:
    """How often each of `RULES` was exercised."""
    counts = dict.fromkeys(RULES, 0)
    for mark, count in marks.items():
        rule = mark.partition(" ")[0]
        if rule in counts:
            counts[rule] += count
    return counts


def unmet(marks: Mapping[str, int]) -> list[str]:
    """The rules of `RULES` that were not exercised."""
    return [rule for rule, count in by_rule(marks).items() if not count]


def table(marks: Mapping[str, int]) -> Iterator[str]:
    """Yields a line for each rule, then a line for each of its marks; at the end the marks of other rules."""
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

"""`tidelog verify --history`: judges the history that a test load wrote down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.cli.errors import Exit, fail
from tidelog.cli.output import console, table
from tidelog.history import Report, TranscriptInvalid, check, parse

COUNTS = ("acknowledged", "refused", "unknown", "read", "content")


@dataclass(frozen=True)
class Judgement:
    """A report for each stream of a file."""

    reports: dict[str, Report]

    @property
    def ok(self) -> bool:
        return all(report.ok for report in self.reports.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "clean": self.ok,
            "streams": {
                name: {
                    **{count: getattr(report, count) for count in COUNTS},
                    "anomalies": {str(kind): number for kind, number in sorted(report.anomalies.items())},
                    "examples": report.examples,
                }
                for name, report in self.reports.items()
            },
        }


def judge(path: Path) -> Judgement:
    """Reads and judges a history file; ends the command if it does not exist or is not a history."""
    if not path.is_file():
        fail(f"there is no file {path}", Exit.NOT_FOUND)
    try:
        with path.open(encoding="utf-8") as lines:
            histories = parse(lines)
    except (TranscriptInvalid, UnicodeDecodeError) as error:
        fail(f"{path} is not a history file: {error}", Exit.USAGE)
    return Judgement({name: check(history) for name, history in histories.items()})


def show_judgement(judgement: Judgement) -> None:
    """Prints the counts of each stream, and examples of what is wrong."""
    screen = console()
    rows = [
        (name, *(getattr(report, count) for count in COUNTS), sum(report.anomalies.values()))
        for name, report in judgement.reports.items()
    ]
    columns = ("stream", *COUNTS, "anomalies")
    screen.print(table(columns, rows, right=columns[1:]))
    for name, report in judgement.reports.items():
        for example in report.examples:
            screen.print(f"problem: {name}: {example}", markup=False)
    screen.print("\nclean" if judgement.ok else "\nthe log did not keep its guarantees")

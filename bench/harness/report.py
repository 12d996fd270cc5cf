"""The table for people, and the JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.harness.model import Facts
from bench.harness.results import Entry

FILE_WIDTH = 140
"""Columns of the table where standard output is no terminal."""


def number(value: float | None) -> str:
    """Three significant digits, with k for thousands and M for millions."""
    if value is None:
        return "–"
    for limit, unit in ((1e6, " M"), (1e4, " k")):
        if abs(value) >= limit:
            return f"{value / (1e6 if unit == ' M' else 1e3):.3g}{unit}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def table(entries: Sequence[Entry]) -> Table:
    """One line per case and peer; the columns of the case itself are written once."""
    shown = Table(title="Tidelog and its peers: medians of one run; a ratio over 1 means Tidelog is better")
    shown.add_column("case", no_wrap=True)
    shown.add_column("unit")
    shown.add_column("ours", justify="right")
    shown.add_column("peer")
    for name in ("theirs", "ratio", "foreign CPUs"):
        shown.add_column(name, justify="right")
    last = ""
    for entry in entries:
        new = entry.case != last
        if new and last:
            shown.add_section()
        last = entry.case
        foreign = entry.settings.get("foreign_cpus")
        busy = f"{foreign['max']:.2f}" if isinstance(foreign, dict) else ""
        style = None if entry.ratio is None else ("green" if entry.ratio >= 1 else "yellow")
        shown.add_row(
            entry.case if new else "",
            entry.unit if new else "",
            number(entry.ours) if new else "",
            entry.peer or "–",
            number(entry.theirs),
            f"[{style}]{entry.ratio:.2f}[/]" if style else "–",
            busy if new else "",
        )
    return shown


def print_table(entries: Sequence[Entry], machine: Facts) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=FILE_WIDTH)
    console.print(table(entries))
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()), highlight=False)
    if any(not entry.settings.get("quiet", True) for entry in entries):
        console.print(
            "[yellow]Other programs used the processors during the measurements: see foreign CPUs.[/]"
        )


def write_json(entries: Sequence[Entry], path: Path) -> None:
    """A list with one object per case and peer (DESIGN section 17)."""
    text = json.dumps([entry.as_json() for entry in entries], indent=2, ensure_ascii=False)
    path.write_text(text + "\n")

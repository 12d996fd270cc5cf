"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 240
"""In characters. Where there is no terminal, tables are not folded at 80 columns."""


class Output(StrEnum):
    """How a command prints its result."""

    TABLE = "table"
    JSON = "json"


OUTPUT: Any = typer.Option(Output.TABLE, "--output", "-o", help="A table for people, or JSON for programs.")


def example(command: str) -> str:
    """The end of a help text: a command to copy, on a line of its own."""
    return f"\b\nExample:\n  {command}"


def console(*, to_stderr: bool = False) -> Console:
    """A console on the present standard output or error, which tests and pipes replace."""
    terminal = (sys.stderr if to_stderr else sys.stdout).isatty()
    return Console(stderr=to_stderr, highlight=False, width=None if terminal else PIPE_WIDTH)


def print_json(value: Any) -> None:
    """One value on standard output, indented."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> Table:
    """A table without lines; the columns in `right` hold numbers and are aligned right."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        made.add_row(
            *(cell if isinstance(cell, Text) else Text("" if cell is None else str(cell)) for cell in row)
        )
    return made


def facts(pairs: Iterable[tuple[str, object]]) -> Table:
    """Names and values, one pair a line."""
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(name, Text("" if value is None else str(value)))
    return made

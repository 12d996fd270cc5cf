"""Progress of long work: a line on the terminal, or nothing where standard error is no terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from tidelog.cli.output import console

SHOWN_AFTER_SECONDS = 0.5


class Counter:
    """A count on standard error, with a bar if the total number of bytes is known.

    It appears only on a terminal, and only after `SHOWN_AFTER_SECONDS`.
    """

    def __init__(self, what: str, bytes_total: int | None = None, *, enabled: bool = True) -> None:
        self._what = what
        self._total = bytes_total
        self._enabled = enabled and sys.stderr.isatty()
        self._begun = time.monotonic()
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def set(self, count: int, bytes_done: int) -> None:
        """Shows the totals up to now."""
        if not self._enabled:
            return
        if self._progress is None:
            if time.monotonic() - self._begun < SHOWN_AFTER_SECONDS:
                return
            self._progress = self._make()
            self._progress.start()
            self._progress.add_task(self._what, total=self._total)
        rate = count / max(time.monotonic() - self._begun, 1e-9)
        text = f"{self._what}: {count:,} ({rate:,.0f} a second)"
        self._progress.update(
            self._progress.task_ids[0], completed=bytes_done, total=self._total, description=text
        )

    def set_total(self, bytes_total: int) -> None:
        """Sets how many bytes there are in all."""
        self._total = bytes_total

    def note(self, text: str) -> None:
        """A line on standard error, above the progress line if there is one."""
        if self._progress is None:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
        else:
            self._progress.console.print(text, markup=False)

    def _make(self) -> Progress:
        bar = (BarColumn(), TaskProgressColumn()) if self._total else ()
        columns = (SpinnerColumn(), TextColumn("{task.description}"), *bar, TimeElapsedColumn())
        return Progress(*columns, console=console(to_stderr=True), transient=True)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

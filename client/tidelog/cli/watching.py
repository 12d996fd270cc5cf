"""Watches long work on a cluster until it is done, and shows what is left."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, Final

import typer

from tidelog.cli.errors import Exit, fail
from tidelog.cli.output import console
from tidelog.cli.values import duration_ms
from tidelog.wording import count_of

LOOK_SECONDS: Final = 0.5

WAIT: Any = typer.Option(False, "--wait", help="Return when the work is done; until then show what is left.")
TIMEOUT: Any = typer.Option(
    "1h", "--timeout", help="With --wait: stop waiting after this time, for example 10m; the work goes on."
)


async def watched(left: Callable[[], Awaitable[int]], what: str, several: str, timeout: str) -> None:
    """Returns when `left` gives 0; ends the command if that takes longer than `timeout`.

    `what` names one of the things left, for example "replica to move"; `several` is its plural.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + duration_ms(timeout, "--timeout") / 1000
    shown = console(to_stderr=True).status("looking") if sys.stderr.isatty() else nullcontext()
    with shown as status:
        while count := await left():
            if status is not None:
                status.update(count_of(count, what, several))
            if loop.time() >= deadline:
                left_over = count_of(count, what, several)
                fail(f"{left_over} after {timeout}; the work goes on in the cluster", Exit.UNAVAILABLE)
            await asyncio.sleep(LOOK_SECONDS)

"""Long work on a cluster, watched until it is done: what is left, on the terminal."""

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

LOOK_SECONDS: Final = 0.5

WAIT: Any = typer.Option(False, "--wait", help="Return when it is done, and show what is left until then.")
TIMEOUT: Any = typer.Option(
    "1h", "--timeout", help="With --wait: give up waiting after so long (10m); the work goes on."
)


async def watched(left: Callable[[], Awaitable[int]], what: str, timeout: str) -> None:
    """Returns when `left` is 0; ends the command if that takes longer than `timeout`.

    `what` says what is left, for example "replicas to move".
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + duration_ms(timeout, "--timeout") / 1000
    shown = console(to_stderr=True).status("looking") if sys.stderr.isatty() else nullcontext()
    with shown as status:
        while count := await left():
            if status is not None:
                status.update(f"{count} {what}")
            if loop.time() >= deadline:
                fail(f"{count} {what} after {timeout}; it goes on without being watched", Exit.UNAVAILABLE)
            await asyncio.sleep(LOOK_SECONDS)

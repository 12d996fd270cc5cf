"""Waiting for a condition with a deadline, instead of sleeping for luck."""

import asyncio
import time
from collections.abc import Awaitable, Callable

POLL_SECONDS = 0.002
POLL_SECONDS_MAX = 0.1


async def until(condition: Callable[[], object], what: str, seconds: float = 10.0) -> None:
    """Return once the condition holds; fail with ``what`` was waited for after ``seconds``."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(POLL_SECONDS)


async def until_true(attempt: Callable[[], Awaitable[bool]], what: str, seconds: float = 15.0) -> None:
    """Like ``until``, for what has to be asked."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not await attempt():
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(10 * POLL_SECONDS)


def wait_until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Like ``until``, where no event loop runs. What takes long is asked less often."""
    deadline, pause = time.monotonic() + seconds, 10 * POLL_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(pause)
        pause = min(1.2 * pause, POLL_SECONDS_MAX)

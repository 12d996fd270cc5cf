"""Waiting for a condition with a deadline, instead of sleeping for luck."""

import asyncio
from collections.abc import Callable

POLL_SECONDS = 0.002


async def until(condition: Callable[[], object], what: str, seconds: float = 10.0) -> None:
    """Return once the condition holds; fail with ``what`` was waited for after ``seconds``."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(POLL_SECONDS)

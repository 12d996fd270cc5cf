"""Waiting for a condition with a deadline, instead of sleeping for luck.

The loops are those of `tidelog.cli.local.waiting`; here a deadline that has passed fails the test, with
what the test waited for: a text, or a function that returns one, called only then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from tidelog.cli.local.waiting import holds_within, holds_within_async

What: TypeAlias = str | Callable[[], str]

POLL_SECONDS = 0.002
ASKING_PAUSE_SECONDS = 0.02
POLL_SECONDS_MAX = 0.1


async def until(condition: Callable[[], object], what: What, seconds: float = 10.0) -> None:
    """Return once the condition holds; fail with ``what`` was waited for after ``seconds``."""
    in_time = await holds_within_async(lambda: bool(condition()), seconds, pause=POLL_SECONDS)
    assert in_time, _late(what, seconds)


async def until_true(attempt: Callable[[], Awaitable[bool]], what: What, seconds: float = 15.0) -> None:
    """Like ``until``, for a condition that takes a request to find out."""
    in_time = await holds_within_async(attempt, seconds, pause=ASKING_PAUSE_SECONDS)
    assert in_time, _late(what, seconds)


def wait_until(condition: Callable[[], object], what: What, seconds: float = 60.0) -> None:
    """Like ``until``, where no event loop runs. What takes long is asked less often."""
    in_time = holds_within(condition, seconds, pause=ASKING_PAUSE_SECONDS, pause_max=POLL_SECONDS_MAX)
    assert in_time, _late(what, seconds)


async def seconds_until(condition: Callable[[], object], what: What, seconds: float = 10.0) -> float:
    """Like ``until``; how long it took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await until(condition, what, seconds)
    return loop.time() - began


def _late(what: What, seconds: float) -> str:
    return f"not within {seconds:g} s: {what if isinstance(what, str) else what()}"

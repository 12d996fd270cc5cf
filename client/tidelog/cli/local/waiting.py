"""Waits until a condition holds, with a deadline, by looking again and again.

The commands, the tests, the chaos runs and the benchmarks wait for other processes, which send no event
when they have come so far. The two functions return whether the condition held in time: the caller knows
what it waited for and which error says so.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final

POLL_SECONDS: Final = 0.02

PAUSE_GROWTH: Final = 1.2
"""Each pause is this many times the one before, up to `pause_max`."""


def holds_within(
    condition: Callable[[], object],
    seconds_max: float,
    *,
    pause: float = POLL_SECONDS,
    pause_max: float = 0.0,
) -> bool:
    """Waits until `condition` returns a true value. False: it did not within `seconds_max`.

    `pause`: seconds between two looks. Larger `pause_max`: what takes long is looked at less often.
    """
    deadline = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = max(pause, min(PAUSE_GROWTH * pause, pause_max))
    return True


async def holds_within_async(
    condition: Callable[[], object | Awaitable[object]], seconds_max: float, *, pause: float = POLL_SECONDS
) -> bool:
    """Like `holds_within`, on the event loop's clock; `condition` may be a coroutine function."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds_max
    while not await _holds(condition):
        if loop.time() > deadline:
            return False
        await asyncio.sleep(pause)
    return True


async def _holds(condition: Callable[[], object | Awaitable[object]]) -> bool:
    found = condition()
    return bool(await found) if inspect.isawaitable(found) else bool(found)

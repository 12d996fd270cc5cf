"""Says on standard error why `produce` waits for the broker, while it waits.

For a minute the library sends records again after a failure that may pass, such as a full disk. Without a
message a user would not know what the command is waiting for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from tidelog import Producer
from tidelog.cli.errors import sentence

FIRST_SECONDS: Final = 2.0
"""A shorter stall is not mentioned."""

AGAIN_SECONDS: Final = 5.0
"""How often another reason is mentioned, at most."""

LOOK_SECONDS: Final = 0.25

NO_ANSWER: Final = "it has not answered yet"


@contextlib.asynccontextmanager
async def stalls_shown(producer: Producer, say: Callable[[str], None]) -> AsyncIterator[None]:
    """For the length of the block, gives `say` a sentence when records wait, and when the wait is over."""
    watching = asyncio.create_task(_watch(producer, say), name="stalls")
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _watch(producer: Producer, say: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    told, told_at = "", 0.0
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        stall = producer.stall()
        if stall is None or stall.seconds < FIRST_SECONDS:
            if told:
                say("the broker answers again")
            told = ""
            continue
        reason = NO_ANSWER if stall.error is None else sentence(stall.error.message)
        if reason != told and (not told or loop.time() - told_at >= AGAIN_SECONDS):
            say(f"waiting for the broker: {reason}")
            told, told_at = reason, loop.time()

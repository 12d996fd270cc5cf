"""When to try again: jittered exponential back-off under a deadline.

What may be repeated is the error's own answer (`TidelogError.retriable`), and for
indefinite errors the caller's: only a request that has the same effect twice as once may
be repeated after one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tidelog.errors import TidelogError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait between attempts."""

    first_delay_ms: int = 20
    delay_ms_max: int = 2_000
    factor: float = 2.0

    def delay_s(self, attempt: int, rng: random.Random, hint_ms: int | None = None) -> float:
        """Seconds before the attempt after `attempt` failed ones (1, 2, …).

        Half of the delay is jitter. A broker's `hint_ms` is a lower bound.
        """
        exponent = min(attempt - 1, 30)
        delay_ms = min(self.first_delay_ms * self.factor**exponent, self.delay_ms_max)
        delay_ms *= 0.5 + rng.random() / 2
        return max(delay_ms, hint_ms or 0) / 1000


def may_repeat(error: TidelogError, *, repeat_indefinite: bool) -> bool:
    """Whether the same request may be sent again after `error`."""
    return error.retriable and (error.definite or repeat_indefinite)


async def retrying(
    attempt: Callable[[], Awaitable[T]],
    *,
    timeout_s: float,
    repeat_indefinite: bool,
    policy: RetryPolicy,
    rng: random.Random,
) -> T:
    """Calls `attempt` until it succeeds, fails for good, or `timeout_s` is over.

    Raises the last error. An earlier indefinite one outweighs a definite last one: the
    request may have had its effect, and the caller must hear so.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    doubt: TidelogError | None = None
    tries = 0
    while True:
        try:
            return await attempt()
        except TidelogError as error:
            tries += 1
            if not error.definite:
                doubt = error
            delay = policy.delay_s(tries, rng, error.retry_after_ms)
            over = loop.time() + delay > deadline
            if over or not may_repeat(error, repeat_indefinite=repeat_indefinite):
                if doubt is not None and error.definite and error.retriable:
                    raise doubt from error
                raise
        await asyncio.sleep(delay)

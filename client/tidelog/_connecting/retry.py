"""When to try again: jittered exponential back-off under a deadline.

What may be repeated is the error's own answer (`TidelogError.retriable`), and for
indefinite errors the caller's: only a request that has the same effect twice as once may
be repeated after one. While a partition's leader is looked for, attempts follow each other
faster: leaders change in fractions of a second.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from tidelog.errors import (
    ConnectionLost,
    FencedLeaderEpoch,
    NotLeader,
    PartitionNotFound,
    Stopping,
    StorageFailed,
    StreamNotFound,
    TidelogError,
    Unavailable,
    UnknownLeaderEpoch,
)

T = TypeVar("T")

QUICK_TRIES_MAX: Final = 100
"""How often a leader is looked for at the faster pace."""

_MOVED = (
    NotLeader,
    Stopping,
    FencedLeaderEpoch,
    UnknownLeaderEpoch,
    ConnectionLost,
    StorageFailed,
)
"""After these another broker may lead already, whatever the one that answered thinks of time."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait between attempts."""

    first_delay_ms: int = 20
    delay_ms_max: int = 2_000
    factor: float = 2.0
    leader_delay_ms_max: int = 50
    """While a partition has no leader, or none that can be reached; for the first `QUICK_TRIES_MAX`."""

    def delay_s(self, attempt: int, rng: random.Random, hint_ms: int | None = None) -> float:
        """Seconds before the attempt after `attempt` failed ones (1, 2, …).

        Half of the delay is jitter. A broker's `hint_ms` is a lower bound.
        """
        exponent = min(attempt - 1, 30)
        delay_ms = min(self.first_delay_ms * self.factor**exponent, self.delay_ms_max)
        delay_ms *= 0.5 + rng.random() / 2
        return max(delay_ms, hint_ms or 0) / 1000

    def pause_s(self, error: TidelogError | None, attempt: int, rng: random.Random) -> float:
        """Seconds before a partition's leader is tried again after `attempt` attempts, the last of
        which met `error`."""
        if error is not None and not isinstance(error, (*_MOVED, Unavailable)):
            return self.delay_s(attempt, rng, error.retry_after_ms)
        if attempt > QUICK_TRIES_MAX:
            return max(self.delay_s(attempt - QUICK_TRIES_MAX, rng), self.leader_delay_ms_max / 1000)
        delay_s = min(self.delay_s(attempt, rng), self.leader_delay_ms_max / 1000)
        hint_ms = error.retry_after_ms if isinstance(error, Unavailable) else None
        return max(delay_s, (hint_ms or 0) / 1000)


def may_repeat(error: TidelogError, *, repeat_indefinite: bool) -> bool:
    """Whether the same request may be sent again after `error`."""
    # A failed disk is one broker's: another one will lead.
    retriable = error.retriable or isinstance(error, StorageFailed)
    return retriable and (error.definite or repeat_indefinite)


def of_a_leader(error: TidelogError, where: str) -> TidelogError:
    """`error`, but retriable if it says that a leader does not know what metadata says is there.

    Its image may be behind. If the stream is gone indeed, asking for its leader again tells.
    """
    if isinstance(error, StreamNotFound | PartitionNotFound):
        return Unavailable(f"the leader of {where} does not know it: {error}")
    return error


async def retrying(
    attempt: Callable[[], Awaitable[T]],
    *,
    timeout_s: float,
    repeat_indefinite: bool,
    policy: RetryPolicy,
    rng: random.Random,
    leader: bool = False,
) -> T:
    """Calls `attempt` until it succeeds, fails for good, or `timeout_s` is over.

    `leader`: it asks a partition's leader, or who that is (`RetryPolicy.pause_s`).

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
            if leader:
                delay = policy.pause_s(error, tries, rng)
            else:
                delay = policy.delay_s(tries, rng, error.retry_after_ms)
            over = loop.time() + delay > deadline
            if over or not may_repeat(error, repeat_indefinite=repeat_indefinite):
                if doubt is not None and error.definite and error.retriable:
                    raise doubt from error
                raise
        await asyncio.sleep(delay)

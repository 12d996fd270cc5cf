"""Repetition of requests: exponential back-off with jitter, under a deadline.

The error says whether its request may be repeated (`TidelogError.retriable`). After an indefinite error
the caller decides, too: only a request that has the same effect twice as once may be repeated. While the
client looks for a partition's leader, attempts follow each other faster, because a leader changes in
fractions of a second.
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
"""The number of attempts to find a leader at the faster pace."""

_MOVED = (
    NotLeader,
    Stopping,
    FencedLeaderEpoch,
    UnknownLeaderEpoch,
    ConnectionLost,
    StorageFailed,
)
"""After these errors another broker may lead already, so the hint `retry_after_ms` does not count."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The pauses between attempts."""

    first_delay_ms: int = 20
    delay_ms_max: int = 2_000
    factor: float = 2.0
    leader_delay_ms_max: int = 50
    """The longest pause while a partition has no leader that can be reached, for the first
    `QUICK_TRIES_MAX` attempts."""

    def delay_s(self, attempt: int, rng: random.Random, hint_ms: int | None = None) -> float:
        """Seconds before the attempt after `attempt` failed ones (1, 2, …).

        Half of the delay is jitter. A broker's `hint_ms` is a lower bound.
        """
        exponent = min(attempt - 1, 30)
        delay_ms = min(self.first_delay_ms * self.factor**exponent, self.delay_ms_max)
        delay_ms *= 0.5 + rng.random() / 2
        return max(delay_ms, hint_ms or 0) / 1000

    def pause_s(self, error: TidelogError | None, attempt: int, rng: random.Random) -> float:
        """Seconds before the next attempt to reach a partition's leader, after `attempt` attempts of which
        the last failed with `error`."""
        if error is not None and not isinstance(error, (*_MOVED, Unavailable)):
            return self.delay_s(attempt, rng, error.retry_after_ms)
        if attempt > QUICK_TRIES_MAX:
            return max(self.delay_s(attempt - QUICK_TRIES_MAX, rng), self.leader_delay_ms_max / 1000)
        delay_s = min(self.delay_s(attempt, rng), self.leader_delay_ms_max / 1000)
        hint_ms = error.retry_after_ms if isinstance(error, Unavailable) else None
        return max(delay_s, (hint_ms or 0) / 1000)


def may_repeat(error: TidelogError, *, repeat_indefinite: bool) -> bool:
    """Whether the same request may be sent again after `error`."""
    # Only this broker's disk has failed: another broker will lead.
    retriable = error.retriable or isinstance(error, StorageFailed)
    return retriable and (error.definite or repeat_indefinite)


def of_a_leader(error: TidelogError, where: str) -> TidelogError:
    """`error`, or a retriable error if the leader does not know a stream that the metadata has.

    The metadata of that broker may be out of date. If the stream was deleted, the next request for its
    leader tells.
    """
    if isinstance(error, StreamNotFound | PartitionNotFound):
        return Unavailable(f"the leader of {where} does not know this partition: {error}")
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
    """Calls `attempt` until it succeeds, fails with an error that ends it, or `timeout_s` is over.

    `leader`: the request goes to a partition's leader, or looks for it (`RetryPolicy.pause_s`).

    Raises the last error. If it is definite but an earlier one was indefinite, raises the earlier one:
    the request may have been executed, and the caller must know.
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

"""One request to several brokers, when any of them can answer it: a dead broker delays it only shortly.

`channels` has the connections; `metadata` and `client` have the requests.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from tidelog._connecting.broker_channel import BrokerChannel, on, reach
from tidelog._connecting.retry import RetryPolicy
from tidelog.errors import ConnectionLost, TidelogError, TimedOut, Unauthenticated, Unavailable

T = TypeVar("T")

HEDGE_S: Final = 0.15
"""When a broker has not answered for this long, the next broker is asked as well."""


async def first_answer(
    channels: Sequence[BrokerChannel], call: Callable[[BrokerChannel], Awaitable[T]]
) -> tuple[str, T]:
    """The address of the first broker that answers, and its answer; `call` must have no effects.

    Brokers are asked in the given order; the next one when the last has failed or has not answered for
    `HEDGE_S`. Raises an error that is not retriable at once. If all fail, raises the error that a broker
    sent, or else `Unavailable` with every address.
    """
    left = deque(channels)
    asking: dict[asyncio.Task[T], str] = {}
    failures: list[tuple[str, TidelogError]] = []
    try:
        while left or asking:
            if left:
                channel = left.popleft()
                asking[asyncio.create_task(on(channel, call), name=f"ask {channel.address}")] = (
                    channel.address
                )
            done, _ = await asyncio.wait(
                asking, timeout=HEDGE_S if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in [one for one in asking if one in done]:
                address = asking.pop(task)
                failure = task.exception()
                if failure is None:
                    return address, task.result()
                if not isinstance(failure, TidelogError) or not failure.retriable:
                    raise failure
                failures.append((address, failure))
    finally:
        await cancelled(asking)
    for _, failure in failures:
        if not isinstance(failure, Unavailable | ConnectionLost | TimedOut):
            raise failure
    tried = "; ".join(f"{address} ({failure})" for address, failure in failures)
    hints = [failure.retry_after_ms for _, failure in failures if failure.retry_after_ms is not None]
    raise Unavailable(f"no broker could be reached: {tried}", retry_after_ms=min(hints) if hints else None)


async def first_contact(
    channels: Sequence[BrokerChannel], timeout_s: float, policy: RetryPolicy, rng: random.Random
) -> str:
    """The address of the first of these brokers that answers; all are asked in parallel.

    Raises `Unavailable` after `timeout_s`, with each address and its failure, and `Unauthenticated`.
    """
    reasons: dict[str, str] = {}
    deadline = asyncio.get_running_loop().time() + timeout_s
    asking = {
        asyncio.create_task(_until_answered(channel, deadline, reasons, policy, rng)): None
        for channel in channels
    }
    try:
        while asking:
            done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            for task in [one for one in asking if one in done]:
                del asking[task]
                address = task.result()
                if address is not None:
                    return address
    finally:
        await cancelled(asking)
    tried = "; ".join(
        f"{channel.address}: {reasons.get(channel.address, 'no answer')}" for channel in channels
    )
    addresses = ",".join(channel.address for channel in channels)
    raise Unavailable(f"no broker answered within {timeout_s:g} s: {tried}", addresses=addresses)


async def _until_answered(
    channel: BrokerChannel, deadline: float, reasons: dict[str, str], policy: RetryPolicy, rng: random.Random
) -> str | None:
    """The broker's address when it answers; None when the deadline passes. Raises `Unauthenticated`."""
    loop = asyncio.get_running_loop()
    tries = 0
    while (left := deadline - loop.time()) > 0:
        try:
            await reach(channel, left)
        except Unauthenticated:
            # The broker answers, and will answer the same again.
            raise
        except TidelogError as error:
            reasons[channel.address] = error.message
            tries += 1
            delay = policy.delay_s(tries, rng, error.retry_after_ms)
            await asyncio.sleep(max(0.0, min(delay, deadline - loop.time())))
        else:
            return channel.address
    return None


async def cancelled(tasks: dict[asyncio.Task[T], str] | dict[asyncio.Task[T], None]) -> None:
    """Cancels tasks whose results are no longer needed, and waits for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

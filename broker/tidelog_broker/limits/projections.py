"""Bounds filtering for readers: in threads of its own, within a budget of bytes for all readers together.

The number of threads is the share of the processors that filtering may take from producers: a reader waits
for its turn, and its caller bounds each turn. The memory for a turn is leased before anything is read. Unlike
the decoded batches of `decoding`, it is given back before the answer is passed on, so a reader that stops
reading holds nothing of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

from tidelog_broker.limits.byte_budget import ByteBudget, Lease
from tidelog_broker.limits.decoding import IDLE_SECONDS_MAX, IDLE_SECONDS_MIN

T = TypeVar("T")


class Projections:
    """The threads and the budget for readers of projections."""

    def __init__(self, threads: Executor, bytes_max: int) -> None:
        """`bytes_max`: what all of these readers together have decoded, `fetch_decoded_bytes_max`."""
        self._threads = threads
        self.budget = ByteBudget(
            bytes_max, idle_seconds_min=IDLE_SECONDS_MIN, idle_seconds_max=IDLE_SECONDS_MAX
        )

    def submit(self, lease: Lease, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Runs `function` in a thread, in turn, on memory of the lease. Raises `Stopping` at a stop.

        A caller may cancel it: a turn that has begun ends before the lease is given back.
        """
        job = self._threads.submit(function, *args)
        lease.covers(job)
        turn = asyncio.wrap_future(job)
        # If the caller leaves before the end, nobody sees its error.
        turn.add_done_callback(lambda done: done.cancelled() or done.exception())
        return turn

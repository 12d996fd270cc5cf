"""Bounds decoding for readers: in separate threads, and for all readers together within two budgets.

A batch of two kilobytes may decode to 64 MiB. A reader that wants plain records therefore leases as many
bytes as a batch decodes to before it is read and decoded (`budget`), and its records are passed on
in small answers. While an answer waits for its client, the lease is idle: the decoded batch is dropped when
another reader needs the room, or after `IDLE_SECONDS_MAX`, and is decoded again if the client continues.

An answer itself is at most `ANSWER_BYTES_MAX` large, unless a single record is larger. Such an answer
cannot be dropped until its client takes it, so it is leased from a separate budget (`large_answers`), half
as large: readers that do not take large records wait only for each other, and no other reader waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any, TypeVar

from tidelog.errors import Stopping
from tidelog_broker.limits.byte_budget import ByteBudget, Lease

ANSWER_BYTES_MAX = 64 << 10
"""Of one answer with plain records, about; a single larger record still comes whole. All that a reader keeps
which has stopped reading."""

IDLE_SECONDS_MIN = 0.1
"""How long a lease stays idle at least although another reader waits: a client that reads is back by then."""

IDLE_SECONDS_MAX = 1.0
"""How long a decoded batch waits for a client that takes no answer."""

LARGE_WAIT_SECONDS_MAX = 30.0
"""How long a reader waits for room for a large record; then it is told so, because those that have the room
may be clients that never take theirs."""

T = TypeVar("T")


class Decoding:
    """The threads and the two budgets for readers of plain records."""

    def __init__(self, threads: Executor, bytes_max: int, *, record_bytes_max: int) -> None:
        """`bytes_max`: what all readers together have decoded, `fetch_decoded_bytes_max` of the settings.
        `record_bytes_max`: of an answer with one large record, which gRPC copies on the event loop.
        """
        self.record_bytes_max = record_bytes_max
        self._threads = threads
        idle = {"idle_seconds_min": IDLE_SECONDS_MIN, "idle_seconds_max": IDLE_SECONDS_MAX}
        self.budget = ByteBudget(bytes_max, **idle)
        self.large_answers = ByteBudget(bytes_max // 2, **idle)

    @property
    def bytes(self) -> int:
        """The bytes that are leased now."""
        return self.budget.used + self.large_answers.used

    @property
    def waiting(self) -> int:
        """Readers that wait for room."""
        return self.budget.waiting + self.large_answers.waiting

    async def run(self, leases: Iterable[Lease], function: Callable[..., T], *args: Any) -> T:
        """Runs `function` in a decoding thread, on memory of the `leases`; raises `Stopping` at a stop.

        A caller that is cancelled leaves the thread at work: leases are given back when the thread is done.
        """
        try:
            job = self._threads.submit(function, *args)
        except RuntimeError:
            raise Stopping("the broker is stopping", retry_after_ms=500) from None
        for lease in leases:
            lease.covers(job)
        waiter = asyncio.wrap_future(job)
        try:
            return await waiter
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                # The threads were shut down before the job began.
                raise Stopping("the broker is stopping", retry_after_ms=500) from None
            raise

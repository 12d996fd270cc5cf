"""Work at a steady rate: when the next piece is due, and requests that do not wait for answers.

Readers (`bench.catchup.cold`, `bench.ours.catch_up`) ask `seconds_until_due` after each piece. A producer
whose latencies are measured (`bench.catchup`) uses `open_loop`: a clock begins its requests, and their
latencies count from the moment that the clock gives. So a stall is in the latency of every request that was
due during it (no coordinated omission).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import Event
from time import perf_counter_ns

NS = 1_000_000_000


def seconds_until_due(done: float, per_second: float, passed: float) -> float:
    """How long to wait before the next piece, after `done` in `passed` seconds; 0 if the work is late."""
    return max(0.0, done / per_second - passed)


def intended_ns(rate: float, seconds: float) -> list[int]:
    """When each request of an open loop begins, counted from the beginning of the loop."""
    return [round(number * NS / rate) for number in range(round(rate * seconds))]


async def open_loop(send: Callable[[int], Awaitable[object]], rate: float, seconds: float) -> list[int]:
    """Latencies of `rate` requests a second from their intended moments. ns.

    `send` gets the intended moment, on the clock of `perf_counter_ns`.

    Ends when all requests are answered; raises the error of the first request that failed.
    """
    loop = asyncio.get_running_loop()
    latencies: list[int] = []
    tasks: list[asyncio.Task[None]] = []
    stopped = Event()

    async def request(intended: int) -> None:
        await send(intended)
        latencies.append(perf_counter_ns() - intended)

    def begin(intended: int) -> None:
        tasks.append(loop.create_task(request(intended)))

    def beat() -> None:
        # An event loop's timers count whole milliseconds, which is most of a fast answer;
        # a thread of its own wakes within some dozen microseconds.
        began = perf_counter_ns()
        for offset in intended_ns(rate, seconds):
            left = began + offset - perf_counter_ns()
            if left > 0 and stopped.wait(left / NS):
                return
            loop.call_soon_threadsafe(begin, began + offset)

    try:
        # All requests have begun when this returns, because its own answer queues behind them.
        await asyncio.to_thread(beat)
        await asyncio.gather(*tasks)
    finally:
        stopped.set()
        for task in tasks:
            task.cancel()
    return latencies

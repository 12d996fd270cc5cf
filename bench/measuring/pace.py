"""Work at a steady rate: when the next piece is due, and requests that do not wait for answers.

Readers (`bench.catchup.cold`, `bench.ours.catch_up`) ask `seconds_until_due` after each piece. A
producer whose latencies are measured (`bench.catchup`) goes through `open_loop`: its
requests begin when a clock says so and their latencies count from that moment, so that a
stall is seen by everybody who would have asked during it (no coordinated omission).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import Event
from time import perf_counter_ns

NS = 1_000_000_000


def seconds_until_due(done: float, per_second: float, passed: float) -> float:
    """How long to wait before more, after `done` in `passed` seconds; 0 for who is late."""
    return max(0.0, done / per_second - passed)


def intended_ns(rate: float, seconds: float) -> list[int]:
    """When each request of an open loop is to begin, from the loop's beginning."""
    return [round(number * NS / rate) for number in range(round(rate * seconds))]


async def open_loop(send: Callable[[int], Awaitable[object]], rate: float, seconds: float) -> list[int]:
    """Latencies of `rate` requests a second from their intended moments. ns.

    `send` is told the moment on the clock of `perf_counter_ns`.

    Ends when all are answered; raises what the first that failed raises.
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
        # Timers of event loops count in whole milliseconds, which is most of a fast answer;
        # a thread of its own sleeps to within some dozen microseconds.
        began = perf_counter_ns()
        for offset in intended_ns(rate, seconds):
            left = began + offset - perf_counter_ns()
            if left > 0 and stopped.wait(left / NS):
                return
            loop.call_soon_threadsafe(begin, began + offset)

    try:
        # All have begun when this returns, because its own answer queues behind them.
        await asyncio.to_thread(beat)
        await asyncio.gather(*tasks)
    finally:
        stopped.set()
        for task in tasks:
            task.cancel()
    return latencies

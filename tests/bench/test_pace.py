"""Work at a steady rate, and requests whose latencies count from the moment when they were due."""

import asyncio
import random
from itertools import pairwise

import pytest
from bench.measuring.pace import NS, intended_ns, open_loop, seconds_until_due


@pytest.mark.parametrize(
    ("done", "passed", "wait"), [(0, 0.0, 0.0), (100, 0.5, 0.5), (100, 1.0, 0.0), (100, 3.0, 0.0)]
)
def test_early_work_waits_for_the_schedule_and_late_work_does_not(
    done: int, passed: float, wait: float
) -> None:
    assert seconds_until_due(done, 100.0, passed) == pytest.approx(wait)


def test_pieces_of_any_size_keep_the_rate_because_lateness_is_made_up() -> None:
    rng = random.Random(3)
    now, done = 0.0, 0
    for _ in range(1000):
        done += rng.randrange(1, 2000)
        now += rng.expovariate(1 / 0.001)
        now += seconds_until_due(done, 1e5, now)

    assert done / now == pytest.approx(1e5, rel=0.01)


def test_requests_of_an_open_loop_are_evenly_spread_over_its_seconds() -> None:
    moments = intended_ns(200.0, 1.5)

    assert len(moments) == 300
    assert {later - earlier for earlier, later in pairwise(moments)} == {NS // 200}


async def test_a_stall_is_in_the_latency_of_every_request_that_was_due_during_it() -> None:
    asked = 0
    over = asyncio.Event()

    async def send(_due: int) -> None:
        nonlocal asked
        asked += 1
        if asked == 15:
            over.set()
        await over.wait()

    latencies = await open_loop(send, 100.0, 0.15)

    # The stall ends with the last request, which was due 0.14 s after the first.
    assert len(latencies) == asked == 15
    assert max(latencies) >= 0.14 * NS
    assert sum(latency >= 0.065 * NS for latency in latencies) >= 8


async def test_a_request_that_fails_ends_the_loop_with_its_error() -> None:
    async def send(_due: int) -> None:
        raise OSError("no broker")

    with pytest.raises(OSError, match="no broker"):
        await open_loop(send, 100.0, 0.05)

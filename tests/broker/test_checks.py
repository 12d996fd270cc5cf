"""Work on what clients send: little of it here and now, much of it in threads, by turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from tidelog.errors import CorruptBatch, ResourceExhausted, Stopping
from tidelog_broker.limits.checks import INLINE_BYTES_MAX, QUEUED_BYTES_MAX, TURN_BYTES_MAX, Checks


class HeldThreads(Executor):
    """Does its work when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.down = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        self.jobs.append((future, lambda: fn(*args, **kwargs)))
        return future

    async def finish(self) -> None:
        """Does the oldest job, and lets the event loop hear of it."""
        future, work = self.jobs.pop(0)
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        for _ in range(3):
            await asyncio.sleep(0)


async def test_little_work_is_done_here_and_much_is_not() -> None:
    checks = Checks(HeldThreads(), 2)
    assert checks.here(INLINE_BYTES_MAX)
    assert not checks.here(INLINE_BYTES_MAX + 1)


async def test_much_little_work_in_one_turn_of_the_event_loop_is_for_threads_too() -> None:
    checks = Checks(HeldThreads(), 2)
    done = 0
    while checks.here(INLINE_BYTES_MAX):
        done += INLINE_BYTES_MAX
    assert 0 < done <= TURN_BYTES_MAX
    await asyncio.sleep(0)
    assert checks.here(INLINE_BYTES_MAX)


async def test_owners_take_turns_and_the_jobs_of_one_begin_in_order() -> None:
    threads, done = HeldThreads(), list[str]()
    checks = Checks(threads, 1)
    for name in ("a1", "a2", "a3", "b1", "c1", "c2"):
        checks.submit(name[0], 1, lambda name=name: name, done.append)  # type: ignore[misc]
    while threads.jobs:
        await threads.finish()
    assert done == ["a1", "a2", "b1", "c1", "a3", "c2"]
    assert checks.queued_bytes == 0


async def test_over_its_bound_work_is_refused_until_some_is_done() -> None:
    threads, done = HeldThreads(), list[object]()
    checks = Checks(threads, 1)
    checks.submit("a", QUEUED_BYTES_MAX, lambda: 1, done.append)
    with pytest.raises(ResourceExhausted, match="wait to be checked on this broker, and at most") as refused:
        checks.submit("b", 1, lambda: 2, done.append)
    assert refused.value.retry_after_ms
    await threads.finish()
    checks.submit("b", 1, lambda: 2, done.append)
    await threads.finish()
    assert (done, checks.queued_bytes) == ([1, 2], 0)


async def test_an_error_of_the_work_is_its_outcome() -> None:
    threads = HeldThreads()
    checks = Checks(threads, 1)

    def fail() -> None:
        raise CorruptBatch("broken")

    waiting = asyncio.create_task(checks.run("a", 1, fail))
    await asyncio.sleep(0)
    await threads.finish()
    with pytest.raises(CorruptBatch):
        await waiting
    assert checks.queued_bytes == 0


async def test_when_the_broker_stops_waiting_work_ends_with_stopping() -> None:
    threads, done = HeldThreads(), list[object]()
    checks = Checks(threads, 1)
    for _ in range(3):
        checks.submit("a", 5, lambda: None, done.append)
    threads.down = True
    threads.jobs.pop()[0].cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert [type(one) for one in done] == [Stopping] * 3
    assert checks.queued_bytes == 0

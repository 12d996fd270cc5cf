"""The threads of a simulated process. Their work takes time, and is lost when the process ends.

A piece of work takes effect at one moment between its beginning and its end, drawn by the seed. If that is
near the beginning, a crash may leave effects on the disk that were never reported; if it is near the end, a
crash may leave a request without any effect.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple, TypeVar

from simulator.disk.operations import CrashPoint
from simulator.world import World

T = TypeVar("T")


class _Job(NamedTuple):
    work: Callable[[], Any]
    future: Future[Any]


class SimExecutor(Executor):
    """A pool of threads. Work that one thread hands to another one is done at once."""

    def __init__(
        self,
        world: World,
        name: str,
        threads: int,
        takes_us: Callable[[], tuple[int, int]],
        observe: Callable[[], None] = lambda: None,
    ) -> None:
        """`takes_us`: how long a piece of work takes at present, at least and at most; `observe` is called
        after the effect of each."""
        self._observe = observe
        self._world = world
        self._name = name
        self._free = threads
        self._takes_us = takes_us
        self._rng = world.rng_of(f"threads {name}")
        self._waiting: deque[_Job] = deque()
        self._running: dict[int, Callable[[], None]] = {}
        """By number: work that has begun and has had no effect yet. `shutdown` waits for it."""
        self._count = 0
        self._closed = False
        self.dead = False
        """Its process has ended."""

    def __repr__(self) -> str:
        return f"<SimExecutor {self._name} waiting={len(self._waiting)} running={len(self._running)}>"

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Starts a piece of work, or queues it. Raises RuntimeError after `shutdown`, as every executor
        does."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        job = _Job(lambda: fn(*args, **kwargs), Future())
        if self._world.in_thread:
            _settle(job.future, _outcome_of(self._world, job.work))
        else:
            self._waiting.append(job)
            self._go_on()
        return job.future

    def _go_on(self) -> None:
        while self._free and self._waiting and not self.dead:
            self._free -= 1
            self._begin(self._waiting.popleft())

    def _begin(self, job: _Job) -> None:
        self._count += 1
        number = self._count
        rng, between = self._rng, self._world.between
        takes = between(rng, *self._takes_us())
        happens = (0, takes, between(rng, 0, takes))[between(rng, 0, 2)]
        outcome: list[Callable[[], Any]] = []

        def happen() -> None:
            if self._running.pop(number, None) is None or self.dead:
                return
            try:
                outcome.append(_outcome_of(self._world, job.work))
            except CrashPoint:
                # The process ends here, in the middle of the work. The run notices the dead disk (`steps`).
                return
            self._observe()

        def end() -> None:
            if self.dead:
                return
            happen()
            if outcome:
                self._free += 1
                _settle(job.future, outcome[0])
                self._go_on()

        self._running[number] = happen
        if happens:
            self._world.after(happens, happen)
        else:
            happen()
        self._world.after(takes, end)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        if cancel_futures:
            waiting, self._waiting = self._waiting, deque()
            for job in waiting:
                job.future.cancel()
        if wait:
            for happen in list(self._running.values()):
                happen()
            while self._waiting:
                job = self._waiting.popleft()
                _settle(job.future, _outcome_of(self._world, job.work))


def _outcome_of(world: World, work: Callable[[], Any]) -> Callable[[], Any]:
    """Does the work outside of all event loops, as a thread does. Returns its result as a function."""
    loop, before = asyncio._get_running_loop(), world.in_thread
    asyncio._set_running_loop(None)
    world.in_thread = True
    try:
        result = work()
    except Exception as error:
        failure = error

        def raise_it() -> Any:
            raise failure

        return raise_it
    finally:
        world.in_thread = before
        asyncio._set_running_loop(loop)
    return lambda: result


def _settle(future: Future[Any], outcome: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = outcome()
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(result)

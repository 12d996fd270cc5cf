"""The threads of a simulated process: work that takes time, and is cut off when the process ends.

A piece of work happens at one moment between its beginning and its end, drawn by the seed: nearer to the
beginning, a crash finds on the disk what nobody was told of; nearer to the end, one that was asked for and
never came about.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple, TypeVar

from simulator.disk_operations import CrashPoint
from simulator.world import World

T = TypeVar("T")

Done = Callable[[Callable[[], Any]], None]
"""Is given what returns the result, or raises."""


class _Job(NamedTuple):
    work: Callable[[], Any]
    done: Done
    dropped: Callable[[], object]


class SimExecutor(Executor):
    """So many threads. `run` is for event loops; `submit`, for those who wait in a thread, works at once."""

    def __init__(
        self,
        world: World,
        name: str,
        threads: int,
        takes_us: Callable[[], tuple[int, int]],
        observe: Callable[[], None] = lambda: None,
    ) -> None:
        """`takes_us`: how long a piece of work takes at present, at least and at most; `observe` is called
        when one has happened."""
        self._observe = observe
        self._world = world
        self._name = name
        self._free = threads
        self._takes_us = takes_us
        self._rng = world.rng_of(f"threads {name}")
        self._waiting: deque[_Job] = deque()
        self._running: dict[int, Callable[[], None]] = {}
        """What has begun and did not happen yet, by number: `shutdown` waits for it."""
        self._count = 0
        self._closed = False
        self.dead = False
        """Its process has ended."""

    def __repr__(self) -> str:
        return f"<SimExecutor {self._name} waiting={len(self._waiting)} running={len(self._running)}>"

    def run(self, work: Callable[[], Any], done: Done, dropped: Callable[[], object]) -> None:
        """Has `work` happen in a thread, and `done` told; `dropped` if it never begins.

        Raises RuntimeError after `shutdown`, as every executor does.
        """
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self._waiting.append(_Job(work, done, dropped))
        self._go_on()

    def _go_on(self) -> None:
        while self._free and self._waiting and not self.dead:
            self._free -= 1
            self._begin(self._waiting.popleft())

    def _begin(self, job: _Job) -> None:
        self._count += 1
        number = self._count
        takes = self._rng.randint(*self._takes_us())
        happens = self._rng.choice((0, takes, self._rng.randint(0, takes)))
        outcome: list[Callable[[], Any]] = []

        def happen() -> None:
            if self._running.pop(number, None) is None or self.dead:
                return
            try:
                outcome.append(_outcome_of(job.work))
            except CrashPoint:
                # The process ends here, in the middle of it; whoever looks after it sees that on the disk.
                return
            self._observe()

        def end() -> None:
            if self.dead:
                return
            happen()
            if not outcome:
                return
            self._free += 1
            job.done(outcome[0])
            self._go_on()

        self._running[number] = happen
        if happens:
            self._world.after(happens, happen)
        else:
            happen()
        self._world.after(takes, end)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """For work of a thread that waits for other threads: it is done when this returns."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        if cancel_futures:
            waiting, self._waiting = self._waiting, deque()
            for job in waiting:
                job.dropped()
        if wait:
            for happen in list(self._running.values()):
                happen()


def _outcome_of(work: Callable[[], Any]) -> Callable[[], Any]:
    """Does the work outside of every event loop, as a thread does."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        result = work()
    except Exception as error:
        failure = error

        def raise_it() -> Any:
            raise failure

        return raise_it
    finally:
        asyncio._set_running_loop(loop)
    return lambda: result

"""The event loop of a simulated process: asyncio as the broker uses it, in simulated time.

Each process has a loop of its own, and all loops of a run share one `World`. Ready callbacks run in turns, as
in asyncio: in their order, until none is ready. Time passes between turns, and the seed draws the order of
turns that are due in several processes at once. No time passes within a turn, so that a run does not depend
on the number of callbacks that a version of asyncio needs for the same work.

Nothing here knows a broker. The loop of a killed process is dead: it accepts all calls, and does nothing.
Neighbours: `executors` are the threads, `transports` the sockets.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import _set_running_loop as set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, Final, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from simulator.kernel.executors import SimExecutor
from simulator.world import SECOND, Timer, World

T = TypeVar("T")

TURN_US: Final = (1, 20)
"""The time from a ready callback to the turn of its process, at least and at most."""

CALLBACKS_MAX: Final = 1_000
"""How many callbacks one turn runs; then other processes have their turns."""


class Sockets(Protocol):
    """The connections of a process; `network` has the implementation."""

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]: ...

    def listen(self, factory: Callable[[], Any], host: str, port: int) -> Any: ...


class ProcessLoop(asyncio.AbstractEventLoop):
    """The event loop of one process."""

    def __init__(self, world: World, name: str, sockets: Sockets, observe: Callable[[], None]) -> None:
        """`observe` is called after each callback that ran."""
        self._world = world
        self._name = name
        self._sockets = sockets
        self._observe = observe
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: dict[asyncio.TimerHandle, Timer] = {}
        self._turn_planned = False
        self._rng = world.rng_of(f"turns of {name}")
        self._count = 0
        self._tasks: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        """The tasks, numbered in the order of their creation."""
        self._threads = SimExecutor(world, f"{name} default", 4, lambda: (50, 500))
        self.dead = False
        self.stalled_until = 0
        """No callback runs before this time (a stopped process, a machine that swaps). µs."""
        self.errors: list[dict[str, Any]] = []
        """Errors that no code handled: each is a bug."""

    def __repr__(self) -> str:
        return f"<ProcessLoop {self._name}{' dead' if self.dead else ''} ready={len(self._ready)}>"

    # --- time

    def time(self) -> float:
        return self._world.now / SECOND

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.dead:
            self._ready.append(handle)
            self._plan_turn()
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.dead:
            delay = max(0, math.ceil(when * SECOND) - self._world.now)
            self._timers[handle] = self._world.after(delay, lambda: self._due(handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """asyncio calls this when a timer is cancelled."""
        timer = self._timers.pop(handle, None)
        if timer is not None:
            timer.cancel()

    def _due(self, handle: asyncio.TimerHandle) -> None:
        self._timers.pop(handle, None)
        self._ready.append(handle)
        self._plan_turn()

    def hold(self, duration_us: int) -> None:
        """Makes the present callback take so long. A second call before that time has no effect."""
        if self.stalled_until <= self._world.now:
            self.stalled_until = self._world.now + duration_us

    def _plan_turn(self) -> None:
        if not self._turn_planned and not self.dead:
            self._turn_planned = True
            world = self._world
            delay = world.between(self._rng, *TURN_US)
            world.after(max(delay, self.stalled_until - world.now), self._turn)

    def _turn(self) -> None:
        self._turn_planned = False
        if self.stalled_until > self._world.now:
            self._plan_turn()
            return
        ready, observe = self._ready, self._observe
        for _ in range(CALLBACKS_MAX):
            if self.dead or not ready:
                return
            handle = ready.popleft()
            if handle._cancelled:
                continue
            set_running_loop(self)
            try:
                handle._run()
            finally:
                set_running_loop(None)
            observe()
            if self.stalled_until > self._world.now:
                break
        if ready:
            self._plan_turn()

    # --- the end

    def kill(self) -> None:
        """Ends the process between two callbacks. None of its code runs later.

        Closes all coroutines now, because the garbage collector would close them at a random moment. The
        caller must first cut the process off from its disk and network, so that no `finally` has an effect.
        """
        self.dead = True
        self._ready.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        tasks = [task for task in sorted(self._tasks, key=self._tasks.__getitem__) if not task.done()]
        asyncio._set_running_loop(self)
        try:
            for task in tasks:
                _close(task)
        finally:
            asyncio._set_running_loop(None)

    # --- tasks and futures

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **unused: Any,
    ) -> asyncio.Task[T]:
        full = None if name is None else str(name)
        task = asyncio.Task(cast(Any, coro), loop=self, name=full or "task", context=context)
        self._count += 1
        self._tasks[task] = self._count
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        threads = self._threads if executor is None else executor
        return asyncio.wrap_future(threads.submit(func, *args), loop=self)

    # --- sockets

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str = "", port: int = 0, **unused: Any
    ) -> tuple[Any, Any]:
        return await self._sockets.connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str = "", port: int = 0, **unused: Any
    ) -> Any:
        return self._sockets.listen(protocol_factory, host, port)

    # --- the other methods that asyncio calls

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.dead:
            self.errors.append(context)
            self._world.alarmed = True

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)


def _close(task: asyncio.Task[Any]) -> None:
    """Closes the coroutine of a task of a dead process, without any report."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    assert coroutine is not None, task
    try:
        coroutine.close()
    except (Exception, asyncio.CancelledError):
        # It did not end, or did what a dead process cannot do. Neither has an effect outside.
        return

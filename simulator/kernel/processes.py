"""A simulated process: an event loop, threads, sockets and open files, which all end together.

It ends with its main coroutine, or it is killed: between two callbacks, or in the middle of a piece of work
on the disk. A kill first cuts it off from disk and network, so that no `finally` has an effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any

from simulator.disk import FakeDisk
from simulator.kernel.executors import SimExecutor
from simulator.kernel.loop import ProcessLoop
from simulator.kernel.network import Network, Sockets
from simulator.kernel.wire import Machine
from simulator.world import World

Ended = Callable[[BaseException | int], None]
"""Is called when the main coroutine of a process ends, with its exit code or its error."""


class Process:
    """One process of a machine."""

    def __init__(
        self,
        world: World,
        network: Network,
        machine: Machine,
        name: str,
        disk: FakeDisk | None,
        disk_us: Callable[[], tuple[int, int]],
        observe: Callable[[], None],
    ) -> None:
        """`disk_us`: how long a piece of work in a thread takes at present; `observe` is called after each
        callback. `disk`: None for a process without files."""
        self._world = world
        self._network = network
        self._disk = disk
        self._name = name
        self._disk_us = disk_us
        self._observe = observe
        self._executors: list[SimExecutor] = []
        self.sockets = Sockets(network, machine)
        self.loop = ProcessLoop(world, name, self.sockets, observe)  # type: ignore[abstract]
        self.sockets.loop = self.loop
        self._main: asyncio.Task[int] | None = None

    def __repr__(self) -> str:
        return f"<Process {self._name} {self.loop!r}>"

    @property
    def dead(self) -> bool:
        return self.loop.dead

    def event(self) -> asyncio.Event:
        """An event for code of its loop."""
        return asyncio.Event()

    def threads(self, count: int, name: str) -> Executor:
        """A pool of threads of this process (`platform.MakeThreads`)."""
        made = SimExecutor(self._world, f"{self._name} {name}", count, self._disk_us, self._observe)
        self._executors.append(made)
        return made

    def run(self, main: Coroutine[Any, Any, int], ended: Ended | None = None) -> None:
        """Starts the main coroutine; `ended` is called when that ends, and not after a kill."""

        def begin() -> None:
            task = self._main = self.loop.create_task(main, name="main")
            task.add_done_callback(lambda done: self._finished(done, ended))

        self.loop.call_soon(begin)

    def _finished(self, task: asyncio.Task[int], ended: Ended | None) -> None:
        if self.dead or ended is None:
            return
        how: BaseException | int
        if task.cancelled():
            how = asyncio.CancelledError()
        else:
            error = task.exception()
            how = task.result() if error is None else error
        # Between two callbacks, as a kill.
        self._world.after(0, lambda: None if self.dead else ended(how))

    def kill(self) -> None:
        """Ends the process now. Its machine, if it has power, resets its connections."""
        if self._disk is not None:
            self._disk.dead = True
        for executor in self._executors:
            executor.dead = True
        self.loop.dead = True
        self._network.ended(self.sockets)
        self.loop.kill()


def unhandled(owner: str, context: dict[str, Any]) -> Exception:
    """The exception for an error that no code of a process handled; `context` is asyncio's."""
    error = context.get("exception")
    note = f"{owner} did not handle an error: {context.get('message')}"
    if isinstance(error, Exception):
        error.add_note(note)
        return error
    return RuntimeError(f"{note}: {context}")

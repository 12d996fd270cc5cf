"""A simulated process: an event loop, threads, sockets and open files, which all end together.

How it ends: by itself, when its main coroutine does; or killed, between two callbacks or in the middle of a
piece of work on the disk. First it is cut off from disk and network, so that no `finally` leaves a trace.
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
"""Told how a process ended by itself: with what its main coroutine returned or raised."""


class Process:
    """See the module."""

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
        callback. `disk`: None for one that has no files."""
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
        """One that belongs to its loop."""
        return asyncio.Event()

    def threads(self, count: int, name: str) -> Executor:
        """Threads of this process; see `platform.MakeThreads`."""
        made = SimExecutor(self._world, f"{self._name} {name}", count, self._disk_us, self._observe)
        self._executors.append(made)
        return made

    def run(self, main: Coroutine[Any, Any, int], ended: Ended | None = None) -> None:
        """Begins; `ended` is told when it ends by itself."""

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
        # Between two callbacks, as everything else that ends it.
        self._world.after(0, lambda: None if self.dead else ended(how))

    def kill(self) -> None:
        """It ends now. Its machine, if it has power, tells its peers."""
        if self._disk is not None:
            self._disk.dead = True
        for executor in self._executors:
            executor.dead = True
        self.loop.dead = True
        self._network.ended(self.sockets)
        self.loop.kill()


def unhandled(owner: str, context: dict[str, Any]) -> Exception:
    """What nobody in a process took care of."""
    error = context.get("exception")
    note = f"in {owner} nobody took care of: {context.get('message')}"
    if isinstance(error, Exception):
        error.add_note(note)
        return error
    return RuntimeError(f"{note}: {context}")

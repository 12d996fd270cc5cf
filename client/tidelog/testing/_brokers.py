"""One broker in memory: running or stopped, with the calls that break when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from tidelog.testing import _status
from tidelog.testing._faults import Faults
from tidelog.testing._services import PORT, Services, host
from tidelog.testing._state import State

T = TypeVar("T")


class MemoryBroker:
    """A broker that answers while it runs."""

    def __init__(self, state: State, broker_id: int, faults: Faults) -> None:
        self.broker_id: Final = broker_id
        self.address: Final = f"{host(broker_id)}:{PORT}"
        self.faults: Final = faults
        self.services: Final = Services(state, broker_id)
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when this run of the broker ends."""

    def __repr__(self) -> str:
        return f"<MemoryBroker {self.broker_id} {'up' if self.up else 'down'}>"

    @property
    def up(self) -> bool:
        return not self._gone.done()

    def go(self) -> None:
        """Stops: every call breaks, and new calls are refused."""
        if self.up:
            self._gone.set_result(None)

    def come_back(self) -> None:
        if not self.up:
            self._gone = asyncio.get_running_loop().create_future()

    def check_up(self) -> None:
        if not self.up:
            raise _status.broken()

    async def unless_broken(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; raises an error if the broker stops first."""
        if not self.up:
            work.close()
            raise _status.unreachable()
        gone = self._gone
        task = asyncio.ensure_future(work)
        try:
            waiting: list[asyncio.Future[Any]] = [task, gone]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise _status.broken()
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

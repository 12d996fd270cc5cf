"""Maintenance, scrubbing and healing of one broker, started and stopped together."""

from __future__ import annotations

import asyncio

from tidelog_broker.upkeep.healer import Healer, Wires
from tidelog_broker.upkeep.maintenance import Maintenance
from tidelog_broker.upkeep.scrubber import Scrubber


class UpkeepTasks:
    """The upkeep tasks of one broker. Belongs to one event loop."""

    def __init__(
        self,
        maintenance: Maintenance,
        scrubber: Scrubber | None,
        healer: Healer | None,
        wires: Wires | None,
    ) -> None:
        """`scrubber` None: scrubbing is off. `healer` and `wires` None: there are no other brokers."""
        self._maintenance = maintenance
        self._scrubber = scrubber
        self._healer = healer
        self._wires = wires
        self._maintaining: asyncio.Task[None] | None = None
        self._repairing: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._maintaining = asyncio.create_task(self._maintenance.run())
        if self._scrubber is not None:
            self._repairing.append(asyncio.create_task(self._scrubber.run()))
        if self._healer is not None and self._wires is not None:
            self._repairing.append(asyncio.create_task(self._healer.run(self._wires)))

    async def stop_repairs(self) -> None:
        """Ends scrubbing and healing."""
        for task in self._repairing:
            task.cancel()
        await asyncio.gather(*self._repairing, return_exceptions=True)
        if self._healer is not None:
            await self._healer.stop()

    async def stop_maintenance(self) -> None:
        await self._maintenance.stop()
        if self._maintaining is not None:
            self._maintaining.cancel()
            await asyncio.gather(self._maintaining, return_exceptions=True)

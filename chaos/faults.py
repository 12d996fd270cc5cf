"""Performs faults on a cluster, from their beginning to their end. `plan` says which and when."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from chaos.administration import Administration
from chaos.cluster import Cluster
from chaos.links import Link, around, between, incoming, outgoing
from chaos.plan import Fault, Kind
from chaos.volumes import Volumes

RESET_SECONDS: Final = 0.4
"""The time between two resets of all connections."""

Healed = Callable[[str], Awaitable[None]]
"""Waits until every replica is in sync; the argument says in a message what it waits for."""


class Faults:
    """Performs the faults of a plan, and counts them."""

    def __init__(
        self, cluster: Cluster, healed: Healed, volumes: Volumes, administration: Administration
    ) -> None:
        self._cluster = cluster
        self._healed = healed
        self._volumes = volumes
        self._administration = administration
        self.done: Counter[Kind] = Counter()

    async def perform(self, fault: Fault) -> None:
        """Performs one fault to its end. The cluster may need more time to recover."""
        self.done[fault.kind] += 1
        cluster, broker = self._cluster, fault.broker
        match fault.kind:
            case Kind.KILL:
                await cluster.kill(broker)
                await self._back(broker, fault.seconds)
            case Kind.STOP:
                await cluster.stop(broker)
                await self._back(broker, fault.seconds)
            case Kind.FREEZE:
                cluster.freeze(broker)
                await asyncio.sleep(fault.seconds)
                cluster.thaw(broker)
            case Kind.ISOLATE | Kind.MUTE | Kind.DEAFEN | Kind.CUT:
                await self._cut(self._links(fault), fault.seconds)
            case Kind.RESET:
                await self._reset(fault.seconds)
            case Kind.SLOW_DISK:
                await self._disk(broker, f"slow {fault.flush_seconds:.3f}", fault.seconds)
            case Kind.FULL_DISK:
                await self._disk(broker, "full", fault.seconds)
            case Kind.LOST_DISK:
                await cluster.kill(broker)
                await cluster.erase(broker)
                await self._back(broker, fault.seconds)
                await self._healed(f"broker {broker} has copied its replicas again")
            case Kind.OLD_VOLUME:
                await self._volumes.put_back(broker, fault.seconds, self._healed)
                await self._healed(f"broker {broker} has copied its replicas again")
            case Kind.ROT:
                await self._volumes.rot(broker)
                await self._healed(f"broker {broker} has repaired the rotten file")
            case Kind.CLOCK:
                cluster.set_clock(broker, fault.days)
                await asyncio.sleep(fault.seconds)
                cluster.set_clock(broker, 0)
            case Kind.REASSIGN:
                await self._administration.move_away_and_back(broker, fault.seconds)
            case Kind.DURABILITY:
                await self._administration.switch_durability(fault.seconds)
            case Kind.KILL_ALL:
                await asyncio.gather(*(cluster.kill(one) for one in cluster.brokers))
                await asyncio.sleep(fault.seconds)
                for one in cluster.brokers:
                    await cluster.launch(one)
            case Kind.ROLL:
                for one in cluster.brokers:
                    await cluster.stop(one)
                    await cluster.launch(one)
                    await cluster.ready(one)
                    await self._healed(f"broker {one} is back")

    async def _back(self, broker: int, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._cluster.launch(broker)

    def _links(self, fault: Fault) -> list[Link]:
        brokers = self._cluster.brokers
        match fault.kind:
            case Kind.ISOLATE:
                return around(fault.broker, brokers)
            case Kind.MUTE:
                return outgoing(fault.broker, brokers)
            case Kind.DEAFEN:
                return incoming(fault.broker, brokers)
            case _:
                return between(fault.broker, fault.other)

    async def _cut(self, links: list[Link], seconds: float) -> None:
        self._cluster.links.cut(links)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._cluster.links.heal(links)

    async def _reset(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            for proxy in self._cluster.proxies:
                proxy.reset()
            await asyncio.sleep(RESET_SECONDS)

    async def _disk(self, broker: int, line: str, seconds: float) -> None:
        self._cluster.tell_disk(broker, line)
        await asyncio.sleep(seconds)
        self._cluster.tell_disk(broker, "sound")

"""How much the copies of partitions hold, as their brokers say: asked for now and then, beside all else.

Nothing waits for it. A broker that cannot be asked keeps what it said last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import structlog

import tidelog
from tidelog.cluster_admin import UNREACHABLE
from tidelog.errors import TidelogError
from tidelog.model import ReplicaDescription
from tidelog_operator.plan.placement import PartitionName

log = structlog.get_logger(__name__)

PERIOD_SECONDS: Final = 60.0
"""Every broker describes every copy that it has; and what counts are sizes that differ by a lot."""

RETRY_SECONDS: Final = 2.0
"""When no broker answered."""


class Sizes:
    """See the module. Of one Cluster."""

    def __init__(self, period_seconds: float = PERIOD_SECONDS) -> None:
        self.known: Mapping[PartitionName, int] | None = None
        """None: nobody has been asked yet."""
        self.version = 0
        """Counts up with every answer."""
        self._period = period_seconds
        self._due = 0.0
        self._asking: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Sizes known={'nothing' if self.known is None else len(self.known)}>"

    def ask(self, client: tidelog.Client) -> None:
        """Begins to, if it is time to."""
        now = asyncio.get_running_loop().time()
        if now >= self._due and self._asking is None:
            self._due = now + self._period
            self._asking = asyncio.create_task(self._ask(client), name="sizes of partitions")

    async def stop(self) -> None:
        """Before the client is closed that is asking."""
        asking, self._asking = self._asking, None
        if asking is not None:
            self._due = 0.0
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _ask(self, client: tidelog.Client) -> None:
        try:
            self.known = sizes_of(await client.describe_replicas(), self.known or {})
            self.version += 1
        except TidelogError as error:
            self._due = min(self._due, asyncio.get_running_loop().time() + RETRY_SECONDS)
            log.info("the sizes of partitions stay as they were", error=str(error))
        finally:
            self._asking = None


def sizes_of(
    replicas: Iterable[ReplicaDescription], before: Mapping[PartitionName, int]
) -> dict[PartitionName, int]:
    """What the leader of each partition holds, else whoever holds most; if nobody says it, what was so
    `before`."""
    said: dict[PartitionName, tuple[bool, int]] = {}
    silent: dict[PartitionName, None] = {}
    for one in replicas:
        name = (one.name, one.partition)
        if one.state == UNREACHABLE:
            silent[name] = None
        else:
            said[name] = max(said.get(name, (False, 0)), (one.leader, one.bytes))
    kept = {name: before[name] for name in silent if name in before}
    return kept | {name: size for name, (_, size) in said.items()}

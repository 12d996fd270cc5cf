"""The bytes that each partition's replicas hold, as the brokers report them; requested periodically in the
background.

Nothing waits for these requests. The sizes of a broker that does not answer stay as they were.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import structlog

import tidelog
from tidelog.errors import TidelogError
from tidelog.model import ReplicaDescription
from tidelog.model.replica_lag import UNREACHABLE
from tidelog_operator.plan.placement import PartitionName

log = structlog.get_logger(__name__)

PERIOD_SECONDS: Final = 60.0
"""Each request makes every broker describe all its replicas, and only large differences in size matter."""

RETRY_SECONDS: Final = 2.0
"""The pause after a request that no broker answered."""


class Sizes:
    """The sizes of one Cluster's partitions."""

    def __init__(self, period_seconds: float = PERIOD_SECONDS) -> None:
        self.known: Mapping[PartitionName, int] | None = None
        """None: no request has been answered yet."""
        self.version = 0
        """Increases with every answer."""
        self._period = period_seconds
        self._due = 0.0
        self._asking: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Sizes known={'none' if self.known is None else len(self.known)}>"

    def ask(self, client: tidelog.Client) -> None:
        """Starts a request in the background if it is due."""
        now = asyncio.get_running_loop().time()
        if now >= self._due and self._asking is None:
            self._due = now + self._period
            self._asking = asyncio.create_task(self._ask(client), name="sizes of partitions")

    async def stop(self) -> None:
        """Cancels the running request; call it before the client is closed."""
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
            log.info("cannot refresh partition sizes; keeping the last known sizes", error=str(error))
        finally:
            self._asking = None


def sizes_of(
    replicas: Iterable[ReplicaDescription], before: Mapping[PartitionName, int]
) -> dict[PartitionName, int]:
    """Returns the size that the leader of each partition reports, else the largest size of any replica; if no
    replica reports one, the size in `before`."""
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

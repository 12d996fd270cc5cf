"""The connection to the brokers of one Cluster: a client, and the last answers.

The operator reaches brokers by the addresses of their pods. It requests the description of the streams again
only when the version of the metadata has changed; `sizes` requests how many bytes replicas hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import tidelog
from tidelog.errors import TidelogError, Unavailable
from tidelog.model import ClusterDescription, StreamDescription
from tidelog_operator.plan.placement import BrokersView
from tidelog_operator.sizes import Sizes

PORT: Final = 9210
REQUEST_SECONDS_MAX: Final = 5.0
CONNECT_SECONDS_MAX: Final = 5.0
INTERNAL_PREFIX: Final = "__"
"""Prefix of the names of the brokers' internal streams."""


class Brokers:
    """The client of one Cluster's brokers, with a cache. Every method raises `TidelogError`."""

    def __init__(self) -> None:
        self._client: tidelog.Client | None = None
        self._addresses: tuple[str, ...] = ()
        self._cluster: ClusterDescription | None = None
        self._streams: dict[str, StreamDescription] = {}
        self._sizes = Sizes()
        self._turn = 0
        """Index of the address to try first."""
        self._answers = 0
        """Number of answers that differed from the previous answer."""

    def __repr__(self) -> str:
        return f"<Brokers {','.join(self._addresses)} streams={len(self._streams)}>"

    @property
    def version(self) -> int:
        """Changes whenever an answer differs from the previous one."""
        return self._answers + self._sizes.version

    async def close(self) -> None:
        await self._sizes.stop()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def client(self, ips: Sequence[str]) -> tidelog.Client:
        """Returns a client that connects through one of these pods. Raises `Unavailable` if no pod has an
        address."""
        addresses = tuple(sorted(f"{ip}:{PORT}" for ip in ips))
        if not addresses:
            raise Unavailable("No broker pod has an IP address yet.", retry_after_ms=1000)
        if self._client is not None and addresses != self._addresses:
            await self.close()
        if self._client is None:
            first = self._turn % len(addresses)
            self._client = await tidelog.connect(
                [*addresses[first:], *addresses[:first]],
                request_timeout_s=REQUEST_SECONDS_MAX,
                retry_timeout_s=REQUEST_SECONDS_MAX,
                connect_timeout_s=CONNECT_SECONDS_MAX,
            )
            self._addresses = addresses
        return self._client

    async def look(self, ips: Sequence[str], zones: dict[int, str]) -> BrokersView:
        try:
            client = await self.client(ips)
            cluster = await client.describe_cluster()
            if self._cluster is None or not _same(self._cluster, cluster):
                streams = await client.list_streams()
                self._streams = {one.name: one for one in streams if not one.name.startswith(INTERNAL_PREFIX)}
                self._cluster = cluster
                self._answers += 1
            if cluster.controller is None:
                # This broker has no contact with the controller; ask another broker first next time.
                self._turn += 1
                self._cluster = None
                await self.close()
                return BrokersView(cluster, self._streams, zones=zones, sizes=self._sizes.known)
        except TidelogError:
            # All brokers that the client knew may have new addresses.
            self._cluster = None
            await self.close()
            raise
        self._sizes.ask(client)
        return BrokersView(self._cluster, self._streams, zones=zones, sizes=self._sizes.known)

    def changed(self) -> None:
        """Discards the last answer: the operator has changed something."""
        self._cluster = None


def _same(old: ClusterDescription, new: ClusterDescription) -> bool:
    """Compares voters and controller too: they change without a new metadata version."""
    return _identity(old) == _identity(new)


def _identity(one: ClusterDescription) -> tuple[bytes, int, tuple[int, ...], int | None]:
    return (one.cluster_id, one.metadata_version, one.voters, one.controller)

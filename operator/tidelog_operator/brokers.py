"""The brokers of one Cluster, asked and told: a client of theirs, and what they answered last.

They are reached by the addresses of their pods. What they say of themselves is asked for again only when
their metadata has another version; how much they hold is `sizes`'.
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
"""Streams that are the brokers' own."""


class Brokers:
    """See the module. Every method raises `TidelogError`."""

    def __init__(self) -> None:
        self._client: tidelog.Client | None = None
        self._addresses: tuple[str, ...] = ()
        self._cluster: ClusterDescription | None = None
        self._streams: dict[str, StreamDescription] = {}
        self._sizes = Sizes()
        self._turn = 0
        """Whom to ask first."""
        self._answers = 0
        """That were other ones than before."""

    def __repr__(self) -> str:
        return f"<Brokers {','.join(self._addresses)} streams={len(self._streams)}>"

    @property
    def version(self) -> int:
        """Another one whenever something is known that was not."""
        return self._answers + self._sizes.version

    async def close(self) -> None:
        await self._sizes.stop()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def client(self, ips: Sequence[str]) -> tidelog.Client:
        """Through one of these pods."""
        addresses = tuple(sorted(f"{ip}:{PORT}" for ip in ips))
        if not addresses:
            raise Unavailable("no pod of a broker has an address yet", retry_after_ms=1000)
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
                # That one has lost touch; next time another one is asked first.
                self._turn += 1
                self._cluster = None
                await self.close()
                return BrokersView(cluster, self._streams, zones=zones, sizes=self._sizes.known)
        except TidelogError:
            # Perhaps all the brokers that it knew have new addresses.
            self._cluster = None
            await self.close()
            raise
        self._sizes.ask(client)
        return BrokersView(self._cluster, self._streams, zones=zones, sizes=self._sizes.known)

    def changed(self) -> None:
        """What was heard last is not so any more."""
        self._cluster = None


def _same(old: ClusterDescription, new: ClusterDescription) -> bool:
    """Who votes, and who decides, changes without a version of the metadata."""
    return _told(old) == _told(new)


def _told(one: ClusterDescription) -> tuple[bytes, int, tuple[int, ...], int | None]:
    return (one.cluster_id, one.metadata_version, one.voters, one.controller)

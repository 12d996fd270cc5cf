"""Accepts connections of other brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog_broker.peers.connection import Accept, PeerConnection
from tidelog_broker.peers.hello import Identity

BACKLOG = 128
"""Connections that the kernel holds until they are accepted; each broker of the cluster opens a few."""


class PeerListener:
    """An open port, and the connections that came in through it."""

    def __init__(self, me: Callable[[], Identity], accept: Accept) -> None:
        self._me = me
        self._accept = accept
        self._server: asyncio.Server | None = None
        self._connections: dict[PeerConnection, None] = {}
        self.port = 0
        """The port that was bound."""

    def __repr__(self) -> str:
        return f"<PeerListener port={self.port} connections={len(self._connections)}>"

    async def start(self, host: str, port: int) -> None:
        """Port 0 takes a free one. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._made, host, port, backlog=BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]

    def _made(self) -> PeerConnection:
        connection = PeerConnection(self._me, accept=self._accept)
        self._connections = {one: None for one in self._connections if not one.closed}
        self._connections[connection] = None
        return connection

    async def stop(self, reason: str) -> None:
        """Accepts no more connections, and ends those that it accepted."""
        if self._server is None:
            return
        self._server.close()
        await asyncio.gather(*(one.end(reason) for one in self._connections if not one.closed))
        await self._server.wait_closed()

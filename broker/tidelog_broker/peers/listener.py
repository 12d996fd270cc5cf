"""Accepts connections of other brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog_broker.peers.connection import GREETING_SECONDS_MAX, Accept, PeerConnection
from tidelog_broker.peers.hello import Identity
from tidelog_broker.peers.mixed_server import MixedServer
from tidelog_broker.tls.credentials import Credentials

BACKLOG = 128
"""Connections that the kernel holds until they are accepted; each broker of the cluster opens a few."""


class PeerListener:
    """An open port, and the connections that came in through it."""

    def __init__(self, me: Callable[[], Identity], accept: Accept, *, tls: Credentials | None = None) -> None:
        """`tls`: None: connections are not encrypted, and each broker is the one that it says."""
        self._me = me
        self._tls = tls
        self._accept = accept
        self._server: asyncio.Server | MixedServer | None = None
        self._connections: dict[PeerConnection, None] = {}
        self.port = 0
        """The port that was bound."""

    def __repr__(self) -> str:
        return f"<PeerListener port={self.port} connections={len(self._connections)}>"

    async def start(self, host: str, port: int) -> None:
        """Port 0 takes a free one. Raises OSError."""
        if self._tls is not None and self._tls.permissive:
            self._server = mixed = MixedServer(self._make, self._tls.server, GREETING_SECONDS_MAX)
            await mixed.start(host, port, BACKLOG)
            self.port = mixed.port
            return
        loop = asyncio.get_running_loop()
        self._server = server = await loop.create_server(
            self._make,
            host,
            port,
            backlog=BACKLOG,
            ssl=None if self._tls is None else self._tls.server,
            ssl_handshake_timeout=GREETING_SECONDS_MAX if self._tls else None,
        )
        self.port = server.sockets[0].getsockname()[1]

    def _make(self) -> PeerConnection:
        return PeerConnection(self._me, accept=self._accept, tls=self._tls, made=self._keep)

    def _keep(self, connection: PeerConnection) -> None:
        self._connections = {one: None for one in self._connections if not one.closed}
        self._connections[connection] = None

    async def stop(self, reason: str) -> None:
        """Accepts no more connections, and ends those that it accepted."""
        if self._server is None:
            return
        self._server.close()
        await asyncio.gather(*(one.end(reason) for one in self._connections if not one.closed))
        await self._server.wait_closed()

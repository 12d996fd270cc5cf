"""The broker's service on a simulated machine: the production assembly with a simulated RPC server.

Neighbours: `node` runs it in a process, `rpc.server` is its RPC server.
"""

from __future__ import annotations

import asyncio
from typing import Final

from simulator.rpc.server import CallObserver, RpcServer
from tidelog.model import Listener
from tidelog_broker.assembly import Assembly, open_assembly
from tidelog_broker.config.settings import Settings
from tidelog_broker.errors import BrokerError
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.platform import Platform

CLIENT_PORT: Final = 9210
PEER_PORT: Final = 9212

RPC_GRACE_S: Final = 0.5
"""How long open calls may take to end at a stop."""


def host_of(broker_id: int) -> str:
    return f"broker-{broker_id}"


class Service:
    """The counterpart of `tidelog_broker.service.Service`, with messages instead of gRPC."""

    def __init__(self, settings: Settings, platform: Platform, observer: CallObserver) -> None:
        """`observer` is told all requests and responses."""
        self._settings = settings
        self._platform = platform
        self._observer = observer
        self.assembly: Assembly
        self._rpc_server: RpcServer | None = None
        self.serving = False

    @property
    def broker(self) -> Broker:
        return self.assembly.broker

    @property
    def over(self) -> asyncio.Future[BrokerError]:
        return self.assembly.over

    async def start(self) -> None:
        self.assembly = await open_assembly(self._settings, self._platform)
        host = host_of(self.assembly.directory.broker_id)
        try:
            await self.assembly.start([Listener("internal", host, CLIENT_PORT)])
            self._rpc_server = RpcServer(self.assembly.services, self.assembly.access_control, self._observer)
            await self._rpc_server.start(host, CLIENT_PORT)
            self.serving = True
        except BaseException:
            await self.assembly.close()
            raise

    async def stop(self) -> None:
        assert self._rpc_server is not None, "it was started"
        await self.assembly.stop()
        await self._rpc_server.stop(RPC_GRACE_S)
        await self.assembly.close()

    def mark_failed(self) -> None:
        self.assembly.mark_failed()

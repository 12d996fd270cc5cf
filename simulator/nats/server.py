"""A simulated NATS server: a process on a machine of its own, with the real client protocol.

It routes core NATS by subject, with wildcards, at most once. The bytes that wait for one client are limited,
and a slow consumer is dropped. A silent client is dropped, too. Two servers are connected by a route. A
server that ends loses its whole state.

It has no queue groups, TLS, accounts, permissions, pedantic mode, JetStream, leaf nodes or lame duck mode. It
announces other servers only at the begin of a connection. A route has a protocol of its own. Neither a route
nor a slow client delays publishers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from simulator.kernel.network import Network
from simulator.kernel.processes import Process
from simulator.nats.client import PAYLOAD_BYTES_MAX, ServedClient
from simulator.nats.plan import NatsPlan
from simulator.nats.route import Route, keep_route
from simulator.nats.router import Router
from simulator.world import World

CLIENT_PORT: Final = 4222
ROUTE_PORT: Final = 6222


def host_of(number: int) -> str:
    """The machine of a server."""
    return f"nats-{number}"


def addresses_of(plan: NatsPlan | None) -> tuple[str, ...]:
    """Where clients reach the servers of a plan; none without a plan."""
    servers = 0 if plan is None else plan.servers
    return tuple(f"nats://{host_of(number)}:{CLIENT_PORT}" for number in range(1, servers + 1))


class NatsServer:
    """One run of a server. Its state is lost when its process ends."""

    def __init__(
        self, number: int, others: tuple[int, ...], pending_bytes_max: int, told: Callable[[str], None]
    ) -> None:
        """`others`: the servers that it has routes to. `told` is called with lines for the trace."""
        self.number = number
        self._others = others
        self._pending_bytes_max = pending_bytes_max
        self._told = told
        self.router = Router()
        self._count = 0

    def __repr__(self) -> str:
        return f"<NatsServer {self.number} {self.router!r}>"

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        host = host_of(self.number)
        await loop.create_server(self._client, host, CLIENT_PORT)
        await loop.create_server(lambda: Route(self.router), host, ROUTE_PORT)
        dials = [
            loop.create_task(keep_route(self.router, host_of(other), ROUTE_PORT), name=f"route to {other}")
            for other in self._others
            if other < self.number
        ]
        if dials:
            await asyncio.wait(dials)
        await loop.create_future()
        return 0

    def _client(self) -> ServedClient:
        self._count += 1
        number = self._count
        return ServedClient(
            self.router,
            self.info(number),
            self._pending_bytes_max,
            lambda reason: self._told(f"{host_of(self.number)} ends client {number}: {reason}"),
        )

    def info(self, client: int) -> dict[str, Any]:
        """The content of INFO for a client."""
        known = [f"{host_of(one)}:{CLIENT_PORT}" for one in (self.number, *self._others)]
        return {
            "server_id": f"SIMULATED{self.number}",
            "server_name": host_of(self.number),
            "version": "2.10.0",
            "proto": 1,
            "headers": True,
            "max_payload": PAYLOAD_BYTES_MAX,
            "client_id": client,
            "connect_urls": known,
        }


class ServerMachine:
    """The machine of a server, on which its process ends and starts again."""

    def __init__(
        self, world: World, network: Network, number: int, others: tuple[int, ...], pending_bytes_max: int
    ) -> None:
        self.number = number
        self.machine = network.machine(host_of(number))
        self.process: Process | None = None
        """None: it is down."""
        self.server: NatsServer | None = None
        self.runs = 0
        self._world = world
        self._network = network
        self._others = others
        self._pending_bytes_max = pending_bytes_max
        self.ended: dict[str, int] = {}
        """By reason: how many clients it dropped."""

    def __repr__(self) -> str:
        return f"<ServerMachine {self.number} runs={self.runs} {self.server}>"

    def start_if_down(self) -> None:
        if self.process is None:
            self.start()

    def start(self) -> None:
        """Starts a new run."""
        assert self.process is None, "it is down"
        self.runs += 1
        if not self.machine.powered:
            self._network.power_is_back(self.machine)
        name = f"{host_of(self.number)} run {self.runs}"
        process = self.process = Process(
            self._world, self._network, self.machine, name, None, lambda: (1, 10), lambda: None
        )
        server = self.server = NatsServer(self.number, self._others, self._pending_bytes_max, self._told)
        self._world.tell(f"{name} starts")
        process.run(server.run())

    def _told(self, line: str) -> None:
        reason = line.rpartition(": ")[2]
        self.ended[reason] = self.ended.get(reason, 0) + 1
        self._world.tell(line)

    def kill(self, *, power: bool) -> None:
        """Ends the process now."""
        process, self.process, self.server = self.process, None, None
        assert process is not None, "it runs"
        if power:
            self.machine.powered = False
        process.kill()
        self._world.tell(f"{host_of(self.number)} {'loses power' if power else 'is killed'}")

    def stall(self, until_us: int) -> None:
        if self.process is not None:
            self.process.loop.stalled_until = until_us

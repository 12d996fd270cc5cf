"""The connection between two servers: each tells the other its patterns, and gets the matching messages.

A message from a route is delivered only to clients, so that no message circulates. Patterns take time to
arrive: a message that is published before is not sent. Messages on a route that breaks are lost.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from simulator.nats.commands import Command, Commands, Malformed, routed
from simulator.nats.interest import Interest
from simulator.nats.router import Router

PAYLOAD_BYTES_MAX: Final = 1 << 20
PING_SECONDS: Final = 0.5
SILENT_PINGS_MAX: Final = 4
"""A route that is silent for so many pings is closed."""

REDIAL_SECONDS: Final = 0.3


class Route(asyncio.Protocol):
    """One end of a route."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._transport: Any = None
        self._commands = Commands(PAYLOAD_BYTES_MAX)
        self.interest = Interest()
        """The patterns at the other end."""
        self._silent = 0
        self._pinging: asyncio.TimerHandle | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._router.routes[self] = None
        for pattern in self._router.interest.patterns:
            self.wanted(pattern)
        self._ping()

    def data_received(self, data: bytes) -> None:
        self._silent = 0
        try:
            for command in self._commands.take(data):
                self._obey(command)
        except Malformed:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._router.routes.pop(self, None)
        if self._pinging is not None:
            self._pinging.cancel()
        if not self.lost.done():
            self.lost.set_result(None)

    def _obey(self, command: Command) -> None:
        match command.verb:
            case "RS+":
                self.interest.add(command.words[0])
            case "RS-":
                self.interest.remove(command.words[0])
            case "RMSG":
                reply = command.words[1] if len(command.words) == 2 else b""
                self._router.deliver(command.words[0], reply, command.headers, command.payload)
            case _:
                pass

    # --- sending

    def wanted(self, pattern: bytes) -> None:
        self._transport.write(b"RS+ %b\r\n" % pattern)

    def unwanted(self, pattern: bytes) -> None:
        self._transport.write(b"RS- %b\r\n" % pattern)

    def send(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        self._transport.write(routed(subject, reply, headers, payload))

    def _ping(self) -> None:
        self._silent += 1
        if self._silent > SILENT_PINGS_MAX:
            self._transport.abort()
            return
        self._transport.write(b"PING\r\n")
        self._pinging = asyncio.get_running_loop().call_later(PING_SECONDS, self._ping)


async def keep_route(router: Router, host: str, port: int) -> None:
    """Connects to another server, and again after each break."""
    loop = asyncio.get_running_loop()
    while True:
        route = Route(router)
        try:
            async with asyncio.timeout(1.0):
                await loop.create_connection(lambda one=route: one, host, port)  # type: ignore[misc]
            await route.lost
        except (OSError, TimeoutError):
            pass
        await asyncio.sleep(REDIAL_SECONDS)

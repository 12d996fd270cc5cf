"""Keeps a link up: tries servers in rounds, watches the link, tries again. For ever.

It exists apart from ``connection`` because it is the only part that runs on its own: one task,
one loop. It decides when to try which of ``servers`` and when a silent link is dead; what a
link carries is not its business.
"""

import asyncio
import random
from typing import Protocol

import structlog

from tidelog_broker.nats.errors import HandshakeFailed
from tidelog_broker.nats.servers import Servers
from tidelog_broker.nats.settings import NatsSettings, Server
from tidelog_broker.nats.transport import NatsTransport

log = structlog.get_logger(__name__)

_DOUBLINGS_MAX = 30


class Caller(Protocol):
    """What a redialer needs done."""

    async def dial(self, server: Server) -> NatsTransport:
        """Open a link to this server. Raises what ``open_link`` raises."""

    def dial_failed(self, server: Server, reason: str) -> None:
        """An attempt failed."""

    def came_up(self, link: NatsTransport, server: Server) -> None:
        """This link is up."""

    def went_down(self, reason: str) -> None:
        """The link that was up is gone."""

    def ping(self) -> None:
        """Ask the server whether it is there."""


class Redialer:
    """Attempts, links and the pauses between them."""

    def __init__(self, caller: Caller, settings: NatsSettings, servers: Servers, rng: random.Random) -> None:
        self._caller = caller
        self._settings = settings
        self._servers = servers
        self._rng = rng
        self._rounds = 0
        """Rounds since a link last stood for longer than the longest pause."""
        self._refused = False
        """A server of this round refused our credentials."""

    def __repr__(self) -> str:
        return f"<Redialer rounds={self._rounds} {self._servers!r}>"

    async def run(self) -> None:
        """Go on until cancelled; the link that is up then is closed in good order."""
        while True:
            self._refused = False
            try:
                await self._round()
            except Exception:
                # Nothing is expected here. If this task ended, recording would end in silence.
                log.exception("keeping the connection to NATS failed unexpectedly; trying again")
            await asyncio.sleep(self.pause_seconds())
            self._rounds += 1

    async def _round(self) -> None:
        self._servers.start_round()
        while (server := self._servers.next()) is not None:
            link = await self._try(server)
            if link is not None:
                await self._serve(link, server)
                return

    def pause_seconds(self) -> float:
        """How long to wait before the next round."""
        longest = self._settings.reconnect_wait_seconds_max
        doubled = self._settings.reconnect_wait_seconds * 2.0 ** min(self._rounds, _DOUBLINGS_MAX)
        return (longest if self._refused else min(longest, doubled)) * self._rng.uniform(0.5, 1.0)

    async def _try(self, server: Server) -> NatsTransport | None:
        try:
            return await self._caller.dial(server)
        except HandshakeFailed as error:
            self._refused = self._refused or error.credentials_refused
            self._caller.dial_failed(server, str(error))
        except Exception as error:
            # OSError is what is expected. Whatever else it is, giving up would end recording.
            self._caller.dial_failed(server, str(error) or type(error).__name__)
        return None

    async def _serve(self, link: NatsTransport, server: Server) -> None:
        loop = asyncio.get_running_loop()
        since = loop.time()
        self._caller.came_up(link, server)
        try:
            await self._watch(link)
        finally:
            await link.close()
            self._caller.went_down(link.lost.result())
        if loop.time() - since > self._settings.reconnect_wait_seconds_max:
            self._rounds = 0

    async def _watch(self, link: NatsTransport) -> None:
        """Return when the link is lost; end it when it has been silent for too long."""
        interval = self._settings.ping_interval_seconds
        silent = 0
        while True:
            await asyncio.wait({link.lost}, timeout=interval)
            if link.lost.done():
                return
            # While we do not read, silence is our own doing.
            silent = 0 if link.heard or link.reading_paused else silent + 1
            link.heard = False
            if silent >= self._settings.pings_unanswered_max:
                link.abort(f"nothing heard from the server for {silent * interval:g} s")
                return
            self._caller.ping()

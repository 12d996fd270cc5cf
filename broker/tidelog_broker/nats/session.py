"""Receives the events of all links of a connection, and passes them to the parts that act on them.

It stands between ``connection``, which the broker calls, and ``transport`` and ``redial``, which call back:
here a new link gets its subscriptions and the waiting bytes, and here everything is kept that a server says
about itself.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from tidelog_broker.log_limit import LogLimit
from tidelog_broker.nats.counters import Counters
from tidelog_broker.nats.outbox import Outbox
from tidelog_broker.nats.parser import Message
from tidelog_broker.nats.servers import Servers
from tidelog_broker.nats.settings import NatsSettings, Server
from tidelog_broker.nats.subscription import Subscriptions
from tidelog_broker.nats.transport import PING, NatsTransport, open_link

log = structlog.get_logger(__name__)


class Session:
    """The state that outlives links. Implements ``transport.Owner`` and ``redial.Caller``."""

    def __init__(
        self,
        settings: NatsSettings,
        servers: Servers,
        on_connected: Callable[[str], None],
        on_disconnected: Callable[[str], None],
    ) -> None:
        self.counters = Counters()
        self.link: NatsTransport | None = None
        """The link that is up."""
        self.server: Server | None = None
        """Where it leads, or the last attempt did."""
        self.up = asyncio.Event()
        """Set while a link is up."""
        self.max_payload_bytes: int | None = None
        self.last_failure = ""
        self.reading_paused = False
        self._log_limit = LogLimit(lambda: asyncio.get_running_loop().time())
        self.subscriptions = Subscriptions(self.counters, self._log_limit)
        self.outbox = Outbox(settings.write_buffer_bytes_max, self.counters)
        self._fences: list[Callable[[], None]] = []
        """The fences that have not been passed."""
        self._settings = settings
        self._servers = servers
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected

    def __repr__(self) -> str:
        return f"<Session {self.server or '-'} {self.link!r} {self.subscriptions!r} {self.outbox!r}>"

    # What the redialer asks for and reports

    async def dial(self, server: Server) -> NatsTransport:
        """Open a link on which every subscription stands."""
        self.server = server
        return await open_link(self, self._settings, server, self.subscriptions.greeting())

    def dial_failed(self, server: Server, reason: str) -> None:
        """Count the failure, and report it."""
        self.counters.connects_failed += 1
        self.last_failure = f"{server}: {reason}"
        self._warn(
            "cannot connect to NATS; trying again", f"dial {server}", server=str(server), reason=reason
        )

    def came_up(self, link: NatsTransport, server: Server) -> None:
        """Make this link the one in use."""
        self.counters.connects += 1
        self.link = link
        if self.reading_paused:
            link.pause_reading()
        changes = self.subscriptions.since_greeting()
        if changes:
            link.write(changes)
        self.outbox.attach(link)
        for passed in self._fences:
            self._raise_fence(link, passed)
        self.up.set()
        log.info("connected to NATS", server=str(server), subscriptions=len(self.subscriptions))
        self._call(self._on_connected, str(server))

    def went_down(self, reason: str) -> None:
        """Continue without a link."""
        self.counters.disconnects += 1
        self.last_failure = f"{self.server}: {reason}"
        self.link = None
        self.up.clear()
        self.outbox.detach()
        self._warn("disconnected from NATS", f"lost {self.server}", server=str(self.server), reason=reason)
        self._call(self._on_disconnected, reason)

    def ping(self) -> None:
        """Send a PING whose answer only has to be heard."""
        if self.link is not None:
            self.link.ignore_pong()
            self.outbox.command(PING)

    def fence(self, passed: Callable[[], None]) -> None:
        """Call this once everything is delivered that the server had sent before it heard of the fence."""
        self._fences.append(passed)
        if self.link is not None:
            self._raise_fence(self.link, passed)

    def _raise_fence(self, link: NatsTransport, passed: Callable[[], None]) -> None:
        def answered(answer: asyncio.Future[None]) -> None:
            # A link that was lost leaves it to the next one.
            if not answer.cancelled() and answer.exception() is None and passed in self._fences:
                self._fences.remove(passed)
                passed()

        link.expect_pong().add_done_callback(answered)
        self.outbox.command(PING)

    # What a link reports

    def received(self, size: int) -> None:
        """Count what came in."""
        self.counters.bytes_received += size

    def deliver(self, messages: dict[int, list[Message]]) -> None:
        """Hand on what came in."""
        self.subscriptions.deliver(messages)

    def writable(self) -> None:
        """Send more, and wake the callers that wait for room."""
        self.outbox.flush()
        self.outbox.wake()

    def info(self, fields: dict[str, Any]) -> None:
        """Keep what a server says about itself and its peers."""
        max_payload = fields.get("max_payload")
        if type(max_payload) is int and max_payload > 0:
            self.max_payload_bytes = max_payload
        leaving = fields.get("ldm") is True
        if self.server is not None:
            self._servers.learn(self.server, fields.get("connect_urls"), leaving=leaving)
        if leaving:
            self._warn("a NATS server is about to shut down", f"ldm {self.server}", server=str(self.server))

    def server_error(self, text: str) -> None:
        """Note a complaint. After a fatal complaint the server itself closes the link."""
        self.counters.server_errors += 1
        self.subscriptions.refuse(text)
        self._warn("the NATS server complained", f"error {text}", server=str(self.server), error=text)

    def _warn(self, event: str, key: str, **values: object) -> None:
        left_out = self._log_limit.left_out(key)
        if left_out is not None:
            log.warning(event, left_out=left_out, **values)

    def _call(self, callback: Callable[[str], None], argument: str) -> None:
        try:
            callback(argument)
        except Exception:
            self.counters.handler_errors += 1
            left_out = self._log_limit.left_out("state callback")
            if left_out is not None:
                log.exception("a callback about the connection to NATS failed", left_out=left_out)

"""A connection to NATS that survives its servers.

It exists because the broker records for as long as it runs, while servers restart, move and
fall silent: this module makes one ``link`` after another, for ever, announces every
``subscription`` again on each, and sends through one ``outbox``. It is the only door to NATS
for the rest of the broker.

- C1 A message is delivered at most once, and not at all if it was published while no link was
  up: core NATS keeps nothing.
- C2 All messages of one read reach a subscription in one call.
- C3 Nothing a server, a message or a handler does ends the connection for good; only ``close`` does.
- C4 What is written waits, up to ``write_buffer_bytes_max``, for a link that takes it. What a
  link had taken and not sent when it broke is lost.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from tidelog_broker.nats.counters import Counters
from tidelog_broker.nats.errors import ConnectionClosed, NatsTimeout, NotConnected, PayloadTooLarge
from tidelog_broker.nats.headers import render
from tidelog_broker.nats.link import PING, Link, open_link
from tidelog_broker.nats.log_limit import LogLimit
from tidelog_broker.nats.outbox import Outbox
from tidelog_broker.nats.parser import Message
from tidelog_broker.nats.redial import Redialer
from tidelog_broker.nats.servers import Servers
from tidelog_broker.nats.settings import Server, Settings
from tidelog_broker.nats.subjects import check_pattern, check_subject
from tidelog_broker.nats.subscription import OnMessages, Subscription, Subscriptions

log = structlog.get_logger(__name__)


class Connection:
    """One connection. Belongs to one event loop and is used from its callbacks and tasks only."""

    def __init__(
        self,
        settings: Settings,
        rng: random.Random,
        *,
        on_connected: Callable[[str], None] = lambda server: None,
        on_disconnected: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """Prepare a connection; ``start`` makes it.

        ``on_connected`` gets the server's address, ``on_disconnected`` the reason; neither may
        block. Raises ServerAddressInvalid.
        """
        self.counters = Counters()
        self.max_payload_bytes: int | None = None
        """The largest message the server takes; None until one has said so."""
        self.last_failure = ""
        """Why the last link was lost or the last attempt failed; empty if neither has happened."""
        self._settings = settings
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self._log_limit = LogLimit(lambda: asyncio.get_running_loop().time())
        self._subscriptions = Subscriptions(self.counters, self._log_limit)
        self._outbox = Outbox(settings.write_buffer_bytes_max, self.counters)
        self._servers = Servers(settings.servers, rng)
        self._redialer = Redialer(_Events(self), settings, self._servers, rng)
        self._task: asyncio.Task[None] | None = None
        self._link: Link | None = None
        self._server: Server | None = None
        """Where the link leads or is about to."""
        self._reading_paused = False
        self._up = asyncio.Event()
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "connected" if self._link else "disconnected"
        return f"<Connection {self._server or '-'} {state} subscriptions={len(self._subscriptions)}>"

    # Life

    def start(self) -> None:
        """Begin connecting, and go on for ever in the background. Safe to call again."""
        self._check_open()
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._redialer.run(), name="nats-connection")

    async def wait_connected(self, timeout: float) -> None:
        """Wait until a link is up. Raises NatsTimeout after ``timeout`` seconds, with the last failure."""
        try:
            async with asyncio.timeout(timeout):
                await self._up.wait()
        except TimeoutError:
            cause = f": {self.last_failure}" if self.last_failure else ""
            raise NatsTimeout(f"no connection to NATS within {timeout:g} s{cause}") from None
        self._check_open()

    async def close(self) -> None:
        """Send what is buffered, if a link is up, and end everything. Safe to call again."""
        if not self._closed:
            self._closed = True
            self._up.set()
            self._outbox.flush()
            if self._task is not None:
                self._task.cancel()
        if self._task is not None:
            await asyncio.wait({self._task})
        self._outbox.close()
        self._subscriptions.clear()

    @property
    def server(self) -> str | None:
        """The address of the server at the other end; None while no link is up."""
        return str(self._server) if self._link is not None else None

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionClosed("this connection to NATS was closed")

    # Receiving

    def subscribe(self, subject: bytes, on_messages: OnMessages, queue: bytes | None = None) -> Subscription:
        """Deliver what is published on this subject or pattern, on this link and all later ones.

        Takes effect with the next turn of the event loop, or when a link is up; ``flush`` makes
        sure of it. Raises SubjectInvalid, also for the name of the queue group.
        """
        self._check_open()
        check_pattern(subject)
        if queue is not None:
            check_subject(queue)
        subscription = self._subscriptions.add(subject, queue, on_messages)
        if self._link is not None:
            self._outbox.command(subscription.announcement)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription at once: messages under way are not delivered any more."""
        self._revoke(subscription)
        self._subscriptions.remove(subscription)

    async def drain(self, subscriptions: Iterable[Subscription], timeout: float) -> None:
        """End subscriptions after all the server had sent them before it heard of it is delivered.

        They have ended afterwards in any case. Raises NatsTimeout when the server did not confirm
        within ``timeout`` seconds, ConnectionLost or NotConnected when there was none to do so.
        """
        draining = list(subscriptions)
        for subscription in draining:
            self._revoke(subscription)
        try:
            await self.flush(timeout)
        finally:
            for subscription in draining:
                self._subscriptions.remove(subscription)

    def _revoke(self, subscription: Subscription) -> None:
        if self._link is not None and not subscription.closed:
            self._outbox.command(subscription.revocation)
        subscription.closed = True

    def pause_reading(self) -> None:
        """Take nothing from the server until ``resume_reading``: the way to push back.

        A server gives up on a client that does not read for its ``write_deadline`` (10 s by default).
        """
        self._reading_paused = True
        if self._link is not None:
            self._link.pause_reading()

    def resume_reading(self) -> None:
        """Take messages from the server again."""
        self._reading_paused = False
        if self._link is not None:
            self._link.resume_reading()

    # Sending

    def write(self, frames: bytes) -> None:
        """Send whole, already formatted protocol elements, together with all else of this turn.

        Waits in the buffer while no link is up. Raises WriteBufferFull (wait for ``room``),
        PayloadTooLarge, ConnectionClosed; nothing was queued then.
        """
        self._outbox.write(frames)

    def publish(
        self,
        subject: bytes,
        payload: bytes,
        reply: bytes | None = None,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Send one message. Raises what ``write`` raises, SubjectInvalid and HeadersInvalid."""
        check_subject(subject)
        if reply is not None:
            check_subject(reply)
        fields = list(headers)
        block = render(fields) if fields else b""
        total = len(block) + len(payload)
        if self.max_payload_bytes is not None and total > self.max_payload_bytes:
            raise PayloadTooLarge(
                f"message of {total} bytes; the NATS server takes at most {self.max_payload_bytes}"
            )
        target = b"%b %b" % (subject, reply) if reply is not None else subject
        if fields:
            self.write(b"HPUB %b %d %d\r\n%b%b\r\n" % (target, len(block), total, block, payload))
        else:
            self.write(b"PUB %b %d\r\n%b\r\n" % (target, total, payload))

    async def room(self) -> None:
        """Wait until at least half of the write buffer is free. Raises ConnectionClosed."""
        await self._outbox.room()

    async def flush(self, timeout: float) -> None:
        """Wait until the server has taken in everything written so far.

        Raises NotConnected, ConnectionLost, or NatsTimeout after ``timeout`` seconds.
        """
        self._check_open()
        if self._link is None:
            raise NotConnected("there is no connection to NATS at the moment")
        answer = self._link.expect_pong()
        self._outbox.command(PING)
        try:
            async with asyncio.timeout(timeout):
                await answer
        except TimeoutError:
            raise NatsTimeout(f"the NATS server did not answer within {timeout:g} s") from None

    @property
    def unsent_bytes(self) -> int:
        """What waits to be sent."""
        return self._outbox.size


class _Events:
    """The inner side of a connection: what its link and its redialer report and ask for."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

"""A connection to NATS that survives its servers.

It exists because the broker records for as long as it runs, while servers restart, move and
fall silent. It is the only door to NATS for the rest of the broker, and a list of parts:
``redial`` opens one ``transport`` after another, for ever; ``session`` announces every
``subscription`` again on each and lets one ``outbox`` send through it.

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

from tidelog_broker.nats.counters import Counters
from tidelog_broker.nats.errors import ConnectionClosed, NatsNotConnected, NatsTimeout, PayloadTooLarge
from tidelog_broker.nats.headers import render
from tidelog_broker.nats.redial import Redialer
from tidelog_broker.nats.servers import Servers
from tidelog_broker.nats.session import Session
from tidelog_broker.nats.settings import NatsSettings
from tidelog_broker.nats.subjects import check_pattern, check_subject
from tidelog_broker.nats.subscription import OnMessages, Subscription
from tidelog_broker.nats.transport import PING


class NatsConnection:
    """One connection. Belongs to one event loop and is used from its callbacks and tasks only."""

    def __init__(
        self,
        settings: NatsSettings,
        rng: random.Random,
        *,
        on_connected: Callable[[str], None] = lambda server: None,
        on_disconnected: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """Prepare a connection; ``start`` makes it.

        ``on_connected`` gets the server's address, ``on_disconnected`` the reason; neither may
        block. Raises ServerAddressInvalid.
        """
        servers = Servers(settings.servers, rng)
        self._session = Session(settings, servers, on_connected, on_disconnected)
        self._redialer = Redialer(self._session, settings, servers, rng)
        self._task: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    def __repr__(self) -> str:
        session = self._session
        state = "closed" if self._closed.is_set() else "connected" if session.link else "disconnected"
        return f"<NatsConnection {session.server or '-'} {state} subscriptions={len(session.subscriptions)}>"

    # Life

    def start(self) -> None:
        """Begin connecting, and go on for ever in the background. Safe to call again."""
        self._check_open()
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._redialer.run(), name="nats-connection")

    async def wait_connected(self, timeout: float) -> None:
        """Wait until a link is up.

        Raises NatsTimeout after ``timeout`` seconds, with the last failure; ConnectionClosed.
        """
        self._check_open()
        waits = [asyncio.ensure_future(event.wait()) for event in (self._session.up, self._closed)]
        try:
            await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._check_open()
        if not self._session.up.is_set():
            cause = f": {self.last_failure}" if self.last_failure else ""
            raise NatsTimeout(f"no connection to NATS within {timeout:g} s{cause}")

    async def close(self) -> None:
        """Send what is buffered, if a link is up, and end everything. Safe to call again."""
        if not self._closed.is_set():
            self._closed.set()
            self._session.outbox.hand_over()
            if self._task is not None:
                self._task.cancel()
        if self._task is not None:
            await asyncio.wait({self._task})
        self._session.outbox.close()
        self._session.subscriptions.clear()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ConnectionClosed("this connection to NATS was closed")

    # State

    @property
    def counters(self) -> Counters:
        """What happened since the start; for metrics."""
        return self._session.counters

    @property
    def connected(self) -> bool:
        """Whether a link is up."""
        return self._session.link is not None

    @property
    def server(self) -> str | None:
        """The address of the server at the other end; None while no link is up."""
        return str(self._session.server) if self._session.link is not None else None

    @property
    def last_failure(self) -> str:
        """Why the last link was lost or the last attempt failed; empty if neither has happened."""
        return self._session.last_failure

    @property
    def max_payload_bytes(self) -> int | None:
        """The largest message the server takes, headers included; None until one has said so."""
        return self._session.max_payload_bytes

    @property
    def unsent_bytes(self) -> int:
        """What waits to be sent."""
        return self._session.outbox.size

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
        subscription = self._session.subscriptions.add(subject, queue, on_messages)
        self._command(subscription.announcement)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription at once: messages under way are not delivered any more."""
        if not subscription.closed:
            self._command(subscription.revocation)
        self._session.subscriptions.remove(subscription)

    def fence(self, passed: Callable[[], None]) -> None:
        """Call ``passed`` once everything is delivered that the server had sent before it heard of this.

        What is delivered later was routed later. While no link is up this waits for the next one.
        """
        self._check_open()
        self._session.fence(passed)

    async def drain(self, subscriptions: Iterable[Subscription], timeout: float) -> None:
        """End subscriptions after all the server had sent them before it heard of it is delivered.

        They have ended afterwards in any case. Raises NatsTimeout when the server did not confirm
        within ``timeout`` seconds, ConnectionLost or NotConnected when there was none to do so.
        """
        draining = list(subscriptions)
        for subscription in draining:
            if not subscription.closed:
                subscription.closed = True
                self._command(subscription.revocation)
        try:
            await self.flush(timeout)
        finally:
            for subscription in draining:
                self._session.subscriptions.remove(subscription)

    def _command(self, line: bytes) -> None:
        """Tell the server, if there is one; the greeting of the next link tells the next."""
        if self._session.link is not None:
            self._session.outbox.command(line)

    def pause_reading(self) -> None:
        """Take nothing from the server until ``resume_reading``: the way to push back.

        A server gives up on a client that does not read for its ``write_deadline`` (10 s by default).
        """
        self._session.reading_paused = True
        if self._session.link is not None:
            self._session.link.pause_reading()

    def resume_reading(self) -> None:
        """Take messages from the server again."""
        self._session.reading_paused = False
        if self._session.link is not None:
            self._session.link.resume_reading()

    # Sending

    def write(self, frames: bytes) -> None:
        """Send whole, already formatted protocol elements, together with all else of this turn.

        Waits in the buffer while no link is up. Raises WriteBufferFull (wait for ``room``),
        PayloadTooLarge, ConnectionClosed; nothing was queued then.
        """
        self._check_open()
        self._session.outbox.write(frames)

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
        limit = self.max_payload_bytes
        if limit is not None and total > limit:
            raise PayloadTooLarge(f"message of {total} bytes; the NATS server takes at most {limit}")
        target = b"%b %b" % (subject, reply) if reply is not None else subject
        if fields:
            self.write(b"HPUB %b %d %d\r\n%b%b\r\n" % (target, len(block), total, block, payload))
        else:
            self.write(b"PUB %b %d\r\n%b\r\n" % (target, total, payload))

    async def room(self) -> None:
        """Wait until at least half of the write buffer is free. Raises ConnectionClosed."""
        await self._session.outbox.room()

    async def flush(self, timeout: float) -> None:
        """Wait until the server has taken in everything written so far.

        Raises NotConnected, ConnectionLost, ConnectionClosed, or NatsTimeout after ``timeout`` seconds.
        """
        self._check_open()
        link = self._session.link
        if link is None:
            raise NatsNotConnected("there is no connection to NATS at the moment")
        answer = link.expect_pong()
        self._session.outbox.command(PING)
        try:
            async with asyncio.timeout(timeout):
                await answer
        except TimeoutError:
            raise NatsTimeout(f"the NATS server did not answer within {timeout:g} s") from None

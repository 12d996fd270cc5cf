"""One TCP connection to one NATS server, from the handshake until it breaks.

It exists so that ``connection`` can think in whole links: a link is opened or it is not, it
carries bytes both ways, and it ends once, with a reason. What comes in goes through ``parser``
to the owner; reconnecting, subscriptions and buffering are the owner's.
"""

import asyncio
import json
import ssl
from collections import deque
from typing import Any, Protocol, TypeVar, cast

from tidelog_broker.nats.errors import HandshakeFailed, NatsConnectionLost
from tidelog_broker.nats.parser import Info, Message, Parser, ServerError, Signal
from tidelog_broker.nats.settings import NatsSettings, Server

_T = TypeVar("_T")

PING = b"PING\r\n"
_PONG = b"PONG\r\n"

CLOSE_SECONDS_MAX = 2.0
"""How long a closing link may go on sending what it holds."""


class Owner(Protocol):
    """What a link tells."""

    def received(self, size: int) -> None:
        """Bytes came in."""

    def deliver(self, messages: dict[int, list[Message]]) -> None:
        """Messages came in. Must not raise."""

    def info(self, fields: dict[str, Any]) -> None:
        """The server described itself again."""

    def server_error(self, text: str) -> None:
        """The server complained."""

    def writable(self) -> None:
        """The link takes more bytes again."""


class NatsTransport(asyncio.Protocol):
    """A connection in the making, in use or lost. ``open_link`` makes one."""

    def __init__(self, owner: Owner, settings: NatsSettings) -> None:
        self._owner = owner
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._parser = Parser(settings.payload_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._pongs: deque[asyncio.Future[None] | None] = deque()
        self._reason = ""
        self._complaint = ""
        self.first_info: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        """Set once, to the reason, when the link is gone."""
        self.heard = False
        """Something was received; the watch for silence resets it."""
        self.write_paused = False
        """The transport holds as much as it should."""
        self.reading_paused = False

    def __repr__(self) -> str:
        state = f"lost: {self.lost.result()}" if self.lost.done() else "open" if self._transport else "new"
        return f"<NatsTransport {state}>"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport. Called by the event loop."""
        self._use(cast(asyncio.Transport, transport))

    def _use(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=self._settings.write_buffer_bytes_max // 2)

    def connection_lost(self, exc: Exception | None) -> None:
        """Settle everything that waited for this link. Called by the event loop."""
        self._transport = None
        if self.lost.done():
            return
        reason = self._reason or self._complaint or (str(exc) if exc else "") or "closed by the server"
        self.lost.set_result(reason)
        for waiter in self._pongs:
            if waiter is not None and not waiter.done():
                waiter.set_exception(NatsConnectionLost(f"connection to NATS lost: {reason}"))
        self._pongs.clear()

    def pause_writing(self) -> None:
        """Note that the transport is full. Called by the event loop."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """Note that the transport has room again. Called by the event loop."""
        self.write_paused = False
        self._owner.writable()

    def data_received(self, data: bytes) -> None:
        """Parse and hand on. Called by the event loop."""
        self.heard = True
        self._owner.received(len(data))
        messages, control, error = self._parser.feed(bytes(data))
        if messages:
            self._owner.deliver(messages)
        for line in control:
            match line:
                case Signal.PING:
                    self.write(_PONG)
                case Signal.PONG:
                    self._ponged()
                case Info(fields):
                    self._informed(fields)
                case ServerError(text):
                    self._complaint = text
                    self._owner.server_error(text)
        if error is not None:
            self.abort(f"the server broke the protocol: {error}")

    def _ponged(self) -> None:
        waiter = self._pongs.popleft() if self._pongs else None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _informed(self, fields: dict[str, Any]) -> None:
        if not self.first_info.done():
            self.first_info.set_result(fields)
        self._owner.info(fields)

    def write(self, data: bytes) -> None:
        """Give bytes to the transport; without effect once the link is lost."""
        if self._transport is not None:
            self._transport.write(data)

    def expect_pong(self) -> asyncio.Future[None]:
        """Return a future for the answer to a PING that is about to be written, in its turn."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        if self.lost.done():
            waiter.set_exception(NatsConnectionLost(f"connection to NATS lost: {self.lost.result()}"))
        else:
            self._pongs.append(waiter)
        return waiter

    def ignore_pong(self) -> None:
        """Make room for the answer to a PING for which no call waits."""
        self._pongs.append(None)

    @property
    def unsent_bytes(self) -> int:
        """What the transport has taken and not yet sent."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def pause_reading(self) -> None:
        """Stop taking bytes from the server."""
        if self._transport is not None and not self.reading_paused:
            self.reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take bytes from the server again."""
        if self._transport is not None and self.reading_paused:
            self.reading_paused = False
            self._transport.resume_reading()

    def abort(self, reason: str) -> None:
        """End the link now; what is unsent is lost."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()
        else:
            self.connection_lost(None)

    async def close(self) -> None:
        """End the link after what it holds has been sent, within CLOSE_SECONDS_MAX."""
        self._reason = self._reason or "closed by us"
        if self._transport is not None:
            self._transport.close()
            await asyncio.wait({self.lost}, timeout=CLOSE_SECONDS_MAX)
            self.abort("closed by us")
        await asyncio.wait({self.lost})

    async def handshake(self, server: Server, greeting: bytes) -> None:
        """Introduce ourselves: TLS where asked for, CONNECT, the greeting, and an answer to it all."""
        info = await self._or_lost(self.first_info)
        if server.tls or info.get("tls_required"):
            if not (info.get("tls_required") or info.get("tls_available")):
                raise HandshakeFailed(f"{server} does not offer TLS", credentials_refused=False)
            await self._start_tls(server)
        connect = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "echo": self._settings.echo,
            "protocol": 1,
            "lang": "python-tidelog",
            "name": self._settings.name,
            "tls_required": server.tls,
            **server.credentials(),
        }
        answer = self.expect_pong()
        self.write(b"CONNECT " + json.dumps(connect).encode() + b"\r\n" + greeting + PING)
        try:
            await self._or_lost(answer)
        finally:
            answer.cancel()

    async def _start_tls(self, server: Server) -> None:
        assert self._transport is not None
        context = self._settings.tls or ssl.create_default_context()
        # What came in the clear after INFO cannot be trusted and is not kept.
        self._parser = Parser(self._settings.payload_bytes_max)
        secured = await self._loop.start_tls(self._transport, self, context, server_hostname=server.tls_name)
        if secured is None:
            raise HandshakeFailed(f"{server} went away during the TLS handshake", credentials_refused=False)
        self._use(secured)

    async def _or_lost(self, wanted: "asyncio.Future[_T]") -> _T:
        either: set[asyncio.Future[Any]] = {wanted, self.lost}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self.lost.done():
            return wanted.result()
        reason = self.lost.result()
        if wanted.done():
            wanted.exception()  # the same loss; looked at, so that asyncio does not report it
        raise HandshakeFailed(reason, credentials_refused=_refuses_credentials(reason))

    async def discard(self) -> None:
        """End a link that never came to be, and wait until nothing of it is left."""
        self.abort("given up")
        await asyncio.wait({self.lost}, timeout=CLOSE_SECONDS_MAX)
        self.connection_lost(None)


async def open_link(owner: Owner, settings: NatsSettings, server: Server, greeting: bytes) -> NatsTransport:
    """Connect to this server and return the link once the server has answered our greeting.

    The greeting follows CONNECT: the subscriptions that have to stand before anything else happens.
    Raises HandshakeFailed or OSError (TLS errors are among these); nothing is left behind then.
    """
    loop = asyncio.get_running_loop()
    link = NatsTransport(owner, settings)
    try:
        async with asyncio.timeout(settings.connect_timeout_seconds):
            await loop.create_connection(lambda: link, server.host, server.port)
            await link.handshake(server, greeting)
    except TimeoutError:
        await link.discard()
        waited = settings.connect_timeout_seconds
        raise HandshakeFailed(f"no answer within {waited:g} s", credentials_refused=False) from None
    except BaseException:
        await link.discard()
        raise
    return link


def _refuses_credentials(reason: str) -> bool:
    lowered = reason.lower()
    return "authorization violation" in lowered or "authentication" in lowered

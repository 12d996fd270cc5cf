"""One connection between two brokers, from its greeting until it breaks. Belongs to one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from tidelog_broker.peers.errors import PeerUnreachable, ProtocolBroken, WrongPeer
from tidelog_broker.peers.framing import (
    ALIVE,
    FRAME_BYTES_MAX,
    GREETING_BYTES_MAX,
    Frame,
    FrameBuffer,
    pack,
)
from tidelog_broker.peers.hello import ConnectionKind, Hello, Identity, Refusal, check, decode, encode
from tidelog_broker.tls.credentials import Credentials
from tidelog_broker.tls.following import PeerCertificate
from tidelog_broker.tls.names import NameInvalid

KEEPALIVE_SECONDS: Final = 0.1
"""An end that has sent nothing for so long sends that it is alive."""

SILENCE_SECONDS_END: Final = 2.0
"""A connection on which nothing was heard for so long counts as broken. It is as long as a session,
after which a broker that does not reach the controller is fenced, too. What it carried may be late
for ever, and a new connection works as soon as the network does."""

STALL_SECONDS: Final = 0.25
"""If this process itself stalled for so long, the silence meanwhile proves nothing."""

GREETING_SECONDS_MAX: Final = 2.0
"""How long the other end may take for its greeting."""

CLOSE_SECONDS_MAX: Final = 0.5
"""How long a closing connection may continue to send what it holds."""

WRITE_BUFFER_BYTES: Final = 4 << 20
"""Unsent bytes above which a connection is not writable."""

Bytes = bytes | bytearray | memoryview


class Receiver(Protocol):
    """The user of a connection. No method may raise or block."""

    def opened(self, connection: PeerConnection) -> None:
        """Both ends have greeted."""

    def received(self, connection: PeerConnection, header: bytes, payload: memoryview) -> None: ...

    def writable(self, connection: PeerConnection) -> None:
        """The connection was full and accepts more now."""

    def closed(self, connection: PeerConnection, reason: str) -> None:
        """The connection ended. Called once; nothing follows."""


Accept = Callable[[Hello], Receiver]
"""Returns the receiver of a connection with this greeting; raises `WrongPeer`."""


class PeerConnection(asyncio.BufferedProtocol):
    """One connection; `listener` and `dialing` make it."""

    def __init__(
        self,
        me: Callable[[], Identity],
        *,
        accept: Accept | None = None,
        hello: Hello | None = None,
        tls: Credentials | None = None,
        made: Callable[[PeerConnection], None] = lambda _: None,
    ) -> None:
        """Either waits for a dialer's hello, which `accept` judges, or sends `hello` itself.

        `tls`: the certificate at the other end must be that of the broker that greets, and its authority
        stays trusted; None: neither end uses TLS. `made` is called once it is connected, after the handshake.
        """
        self._loop = asyncio.get_running_loop()
        self._me = me
        self._accept = accept
        self._hello = hello
        self._tls = tls
        self._certificate: PeerCertificate | None = None
        self._made = made
        self._buffer = FrameBuffer(GREETING_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._early: list[Frame] = []
        """Frames that came together with the greeting, before the connection had a receiver."""
        self._full = False
        self._paused = False
        self._reason = ""
        """Why this end closed it."""
        self._ended = ""
        self._said = 0.0
        self._look_at = 0.0
        """When the timer below is due."""
        self.silent = False
        """It was given up, because nothing was heard."""
        self._timer: asyncio.TimerHandle | None = None
        self.theirs: Hello | None = None
        """The greeting of the other end; None: it has not come yet."""
        self.greeted: asyncio.Future[Hello] = self._loop.create_future()
        """Done with the greeting of the other end, or with the error in place of it."""
        self.gone: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection has ended."""
        self._heard = self._loop.time()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open" if self.theirs else "greeting"
        to = self.theirs.sender.broker_id if self.theirs else "?"
        return f"<PeerConnection {state} to broker {to}{' full' if self._full else ''}>"

    @property
    def peer(self) -> Identity:
        assert self.theirs is not None, "greeted"
        return self.theirs.sender

    @property
    def remote(self) -> str:
        """The address of the other end, as the operating system knows it; empty: it is closed."""
        if self._transport is None:
            return ""
        host, port, *_ = self._transport.get_extra_info("peername")
        return f"{host}:{port}"

    @property
    def encrypted(self) -> bool:
        """Whether it uses TLS; false before the greeting."""
        return self._certificate is not None

    @property
    def kind(self) -> ConnectionKind:
        hello = self.theirs if self._hello is None else self._hello
        assert hello is not None, "greeted"
        return hello.kind

    @property
    def closed(self) -> bool:
        return self._transport is None and self.greeted.done()

    @property
    def heard(self) -> float:
        """When the other end was last heard while this end listened; on the event loop's clock."""
        return self._loop.time() if self._paused else self._heard

    @property
    def writable(self) -> bool:
        """Whether more should be sent now; anything sent all the same is kept."""
        return self._transport is not None and not self._full

    def serve(self, receiver: Receiver) -> None:
        """Gives the connection to `receiver`; the dialer's side calls this after the greeting."""
        receiver.opened(self)
        early, self._early = self._early, []
        for header, payload in early:
            if header:
                receiver.received(self, header, payload)
        if self._transport is None:
            receiver.closed(self, self._ended)
        else:
            self._receiver = receiver
            self.resume_reading()

    def send(self, header: bytes, *payload: Bytes) -> None:
        """Sends a frame, or drops it if the connection is closed: its loss is told by `closed`."""
        if self._transport is None:
            return
        self._said = self._loop.time()
        head = pack(header, sum(len(part) for part in payload))
        if payload:
            self._transport.writelines([head, *payload])
        else:
            self._transport.write(head)

    def pause_reading(self) -> None:
        """Takes nothing more in; the other end notices by and by."""
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and self._paused:
            self._paused = False
            self._heard = self._loop.time()
            self._transport.resume_reading()

    def close(self, reason: str) -> None:
        """Ends it, as soon as what was sent is on its way."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.close()

    async def end(self, reason: str) -> None:
        """Closes it and waits until it has ended, which is soon."""
        self.close(reason)
        await asyncio.wait([self.gone], timeout=CLOSE_SECONDS_MAX)
        self.abort(reason)
        await asyncio.shield(self.gone)

    def abort(self, reason: str) -> None:
        """Ends it at once."""
        self._reason = self._reason or reason
        # When a dial is cancelled, uvloop closes the transport and never calls `connection_lost`.
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._heard = self._loop.time()
        self._timer = self._loop.call_later(GREETING_SECONDS_MAX, self._not_greeted)
        self._made(self)
        if self._hello is not None:
            self.send(encode(self._hello))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = self._loop.time()
        try:
            for header, payload in self._buffer.took(nbytes):
                if self._receiver is not None:
                    if header:
                        self._receiver.received(self, header, payload)
                elif self.theirs is not None:
                    self._early.append(Frame(header, payload))
                elif not self.greeted.done():
                    self._greet(header)
        except ProtocolBroken as error:
            self.abort(str(error))

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self._receiver is not None:
            self._receiver.writable(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._ended = reason = self._reason or (str(exc) if exc else "") or "closed by the other end"
        if not self.greeted.done():
            self.greeted.set_exception(
                PeerUnreachable(f"it closed the connection before it greeted: {reason}")
            )
            self.greeted.exception()  # it counts as seen, even if no call waits
        self.gone.set_result(None)
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.closed(self, reason)

    # --- the first words

    def _greet(self, header: bytes) -> None:
        try:
            hello = decode(header)
            check(hello, self._me())
            self._check_certificate(hello)
            if self._accept is not None:
                receiver = self._accept(hello)
        except WrongPeer as error:
            if self._accept is not None:
                self.send(encode(Refusal.of(error)))
            if not self.greeted.done():
                self.greeted.set_exception(error)
                self.greeted.exception()
            self.close(str(error))
            return
        self.theirs = hello
        self._buffer.frame_bytes_max = FRAME_BYTES_MAX
        if self._timer is not None:
            self._timer.cancel()
        if self._accept is not None:
            self.send(encode(Hello(self._me(), hello.kind, target=hello.sender.broker_id)))
        self._timer = self._loop.call_later(KEEPALIVE_SECONDS, self._keep_alive)
        if not self.greeted.done():
            self.greeted.set_result(hello)
        if self._accept is not None:
            self.serve(receiver)
        else:
            # Until it is served, which comes with the event loop's next turn.
            self.pause_reading()

    def _check_certificate(self, hello: Hello) -> None:
        if self._tls is None or self._transport is None:
            return
        try:
            connection = self._transport.get_extra_info("ssl_object")
            self._certificate = self._tls.check(connection, hello.sender.broker_id)
        except NameInvalid as error:
            raise WrongPeer(str(error)) from error

    def _not_greeted(self) -> None:
        self.abort(f"no greeting within {GREETING_SECONDS_MAX:g} s")

    def _keep_alive(self) -> None:
        if self._transport is None:
            return
        now = self._loop.time()
        if self._look_at and now - self._look_at > STALL_SECONDS:
            self._heard = now
        if now - self.heard > SILENCE_SECONDS_END:
            self.silent = True
            self.abort(f"nothing was heard for {SILENCE_SECONDS_END:g} s")
            return
        if self._tls and self._certificate and self._tls.is_withdrawn(self._certificate):
            self.abort("the authority of its certificate is not trusted any more")
            return
        due = self._said + KEEPALIVE_SECONDS
        if due <= now:
            self._said = now
            self._transport.write(ALIVE)
            due = now + KEEPALIVE_SECONDS
        self._look_at = due
        self._timer = self._loop.call_at(due, self._keep_alive)

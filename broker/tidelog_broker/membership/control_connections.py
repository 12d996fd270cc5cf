"""The control connections of a broker: it dials one to each other broker, and accepts one from each.

Raft messages and requests are sent on the dialed connection; the answer to a request comes back on the
same connection. Neighbours: `peers` opens and accepts connections, `wire` defines the messages, and
`quorum.transport` is the `ControlReceiver` that acts on them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import structlog

from tidelog.errors import ConnectionLost, ResourceExhausted, TimedOut
from tidelog_broker.core.raft.messages import Message
from tidelog_broker.errors import NotConnected
from tidelog_broker.log_limit import LogLimit
from tidelog_broker.membership.addresses import Address, AddressBook
from tidelog_broker.membership.wire import (
    Answer,
    Ask,
    ControlMessage,
    Reply,
    Request,
    decode,
    encode,
    failed,
    senders,
)
from tidelog_broker.peers.connection import Accept, PeerConnection, Receiver
from tidelog_broker.peers.dialing import dial
from tidelog_broker.peers.errors import ProtocolBroken, WrongPeer
from tidelog_broker.peers.hello import ConnectionKind, Hello, Identity
from tidelog_broker.peers.link import PeerLink
from tidelog_broker.peers.listener import PeerListener
from tidelog_broker.peers.watch import Evidence
from tidelog_broker.tls.credentials import Credentials

log = structlog.get_logger(__name__)

HEADER: Final = b"c"
"""The header of every control frame. The message is the payload, because it may be larger than a header."""

ASKED_MAX: Final = 1000
"""Requests of one connection that are answered at a time; more are refused (retriable)."""

SEED_SECONDS_MAX: Final = 1.0
"""How long a seed may take to identify itself."""


class ControlReceiver(Protocol):
    """Acts on what arrives on control connections. No method blocks or raises, unless it says so."""

    def check(self, identity: Identity) -> None:
        """Raises `WrongPeer` if the metadata log of that broker is not of this one's history (M2), or if its
        data directory was restored from a copy (R19)."""

    def directory_restored(self, reason: str) -> None:
        """Another broker reports that this broker's data directory was restored from a copy (R19)."""

    def received(self, message: Message, peer: Identity) -> None:
        """A Raft message arrived from `peer`."""

    async def answer(self, request: Request) -> Answer: ...

    def recognizes(self, identity: Identity) -> bool:
        """Whether the image allows that this is the broker with that id, and not another one with its id."""

    def opened(self, broker: int) -> None:
        """The connection to a broker is open."""

    def closed(self, broker: int) -> None:
        """The connection to a broker broke."""

    def evidence_changed(self, broker: int, run: bytes, evidence: Evidence | None) -> None:
        """The evidence against that run of a broker changed."""


class ControlConnections:
    """The control connections to all other brokers. Belongs to one event loop."""

    def __init__(
        self,
        me: Callable[[], Identity],
        receiver: ControlReceiver,
        addresses: AddressBook,
        rng: random.Random,
        *,
        tls: Credentials | None,
    ) -> None:
        self._me = me
        self._tls = tls
        self._receiver = receiver
        self._addresses = addresses
        self._rng = rng
        self._peers: dict[int, _Peer] = {}
        self._listener: PeerListener | None = None
        """None: `listen` was not called yet."""
        self._acceptors: Mapping[ConnectionKind, Accept] = {}
        self._dismissed: dict[asyncio.Task[None], None] = {}
        """Tasks that end connections to brokers that left the cluster."""
        self._stopped = False
        self._warnings = LogLimit(asyncio.get_running_loop().time)

    def __repr__(self) -> str:
        return f"<ControlConnections {list(self._peers.values())}>"

    async def listen(self, host: str, port: int, acceptors: Mapping[ConnectionKind, Accept]) -> int:
        """Accepts connections of other brokers; returns the port that was bound. Raises OSError.

        `acceptors` accept the connections of the other kinds.
        """
        self._acceptors = acceptors
        self._listener = PeerListener(self._me, self._accept, tls=self._tls)
        await self._listener.start(host, port)
        return self._listener.port

    async def stop(self, reason: str) -> None:
        self._stopped = True
        peers, self._peers = self._peers, {}
        await asyncio.gather(*(peer.stop(reason) for peer in peers.values()), *self._dismissed)
        if self._listener is not None:
            await self._listener.stop(reason)

    def learn(self, broker: int, address: Address) -> None:
        """Keeps the address of a broker, and dials it at once if the address is new."""
        changed = self._addresses.learn(broker, address)
        peer = self._peers.get(broker)
        if peer is not None and changed:
            peer.link.hurry()

    def want(self, brokers: Iterable[int]) -> None:
        """Keeps a connection to each of these brokers, and ends the connections to all others."""
        if self._stopped:
            return
        wanted = dict.fromkeys(brokers)
        for broker in wanted:
            if broker not in self._peers:
                self._peers[broker] = _Peer(
                    broker,
                    self._addresses,
                    self._me,
                    self._receiver,
                    self._rng,
                    self._warnings,
                    tls=self._tls,
                )
                self._peers[broker].link.start()
        for broker in [broker for broker in self._peers if broker not in wanted]:
            peer = self._peers.pop(broker)
            task = asyncio.create_task(peer.stop("this broker is no longer a member of the cluster"))
            self._dismissed[task] = None
            task.add_done_callback(self._dismissed.pop)

    @property
    def open(self) -> list[int]:
        """The brokers to which a connection is open now."""
        return [broker for broker, peer in self._peers.items() if peer.link.connection is not None]

    def send(self, broker: int, message: ControlMessage) -> None:
        """Sends a message; it is lost if there is no connection."""
        peer = self._peers.get(broker)
        connection = None if peer is None else peer.link.connection
        if connection is not None:
            connection.send(HEADER, encode(message))

    async def identify(self, address: Address) -> Identity:
        """Returns the identity of the broker that listens at `address`. Raises `PeerError`."""
        return await identify(address, self._me, self._tls)

    async def ask(self, broker: int, request: Request, seconds: float) -> Answer:
        """Raises `NotConnected` (not sent), `ConnectionLost` or `TimedOut` (both indefinite)."""
        peer = self._peers.get(broker)
        if peer is None or peer.link.connection is None:
            raise NotConnected(broker)
        return await peer.ask(peer.link.connection, request, seconds)

    def _accept(self, hello: Hello) -> Receiver:
        self._receiver.check(hello.sender)
        if hello.sender.host and self._receiver.recognizes(hello.sender):
            self.learn(hello.sender.broker_id, (hello.sender.host, hello.sender.port))
        if hello.kind is ConnectionKind.CONTROL:
            peer = self._peers.get(hello.sender.broker_id)
            if peer is not None:
                # Its process runs, so a dial will succeed.
                peer.link.hurry()
            return _Inbound(self._receiver, self._warnings)
        accept = self._acceptors.get(hello.kind)
        if accept is None:
            raise WrongPeer(f"this broker does not accept {hello.kind} connections")
        return accept(hello)


class _Peer:
    """The dialed connection to one broker, and the requests that wait for an answer on it."""

    def __init__(
        self,
        broker: int,
        addresses: AddressBook,
        me: Callable[[], Identity],
        receiver: ControlReceiver,
        rng: random.Random,
        warnings: LogLimit,
        *,
        tls: Credentials | None,
    ) -> None:
        self._broker = broker
        self._warnings = warnings
        self._addresses = addresses
        self._receiver = receiver
        self._run = b""
        """The incarnation that was connected last."""
        self._ids = 0
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self.link = PeerLink(broker, ConnectionKind.CONTROL, me, self, rng, tls=tls)

    def __repr__(self) -> str:
        return repr(self.link)

    async def stop(self, reason: str) -> None:
        await self.link.stop(reason)
        self._lose()

    async def ask(self, connection: PeerConnection, request: Request, seconds: float) -> Answer:
        self._ids += 1
        number = self._ids
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[number] = done
        connection.send(HEADER, encode(Ask(number, request)))
        try:
            async with asyncio.timeout(seconds):
                return await done
        except TimeoutError:
            raise TimedOut(f"broker {self._broker} did not answer within {seconds:g} s") from None
        finally:
            self._asked.pop(number, None)

    # --- of `peers.link.Owner`

    def address(self) -> Address | None:
        return self._addresses.get(self._broker)

    def directory_restored(self, reason: str) -> None:
        self._receiver.directory_restored(reason)

    def evidence(self, evidence: Evidence | None) -> None:
        self._receiver.evidence_changed(self._broker, self._run, evidence)

    def opened(self, connection: PeerConnection) -> None:
        self._run = connection.peer.incarnation
        self._receiver.opened(self._broker)

    def received(self, connection: PeerConnection, header: bytes, payload: memoryview) -> None:
        try:
            message = decode(payload)
        except ProtocolBroken as error:
            connection.abort(str(error))
            return
        if isinstance(message, Reply):
            done = self._asked.get(message.id)
            if done is not None and not done.done():
                done.set_result(message.answer)
        elif not isinstance(message, Ask):
            _receive(self._receiver, connection, message, self._warnings)

    def writable(self, connection: PeerConnection) -> None:
        """Nothing waits for this: Raft's window and the senders of requests bound what is sent."""

    def closed(self, connection: PeerConnection, reason: str) -> None:
        self._lose()
        self._receiver.closed(self._broker)

    def _lose(self) -> None:
        asked, self._asked = self._asked, {}
        for done in asked.values():
            if not done.done():
                done.set_exception(
                    ConnectionLost(f"the connection to broker {self._broker} broke before it answered")
                )
                done.exception()


class _Inbound:
    """A connection that another broker dialed."""

    def __init__(self, receiver: ControlReceiver, warnings: LogLimit) -> None:
        self._receiver = receiver
        self._warnings = warnings
        self._tasks: dict[asyncio.Task[None], None] = {}

    def opened(self, connection: PeerConnection) -> None: ...

    def received(self, connection: PeerConnection, header: bytes, payload: memoryview) -> None:
        try:
            message = decode(payload)
        except ProtocolBroken as error:
            connection.abort(str(error))
            return
        if not isinstance(message, Ask):
            _receive(self._receiver, connection, message, self._warnings)
        elif foreign := _foreign_senders(message.request, connection.peer):
            _end_impostor(connection, ", ".join(foreign), self._warnings)
        elif len(self._tasks) >= ASKED_MAX:
            refused = ResourceExhausted(
                f"{ASKED_MAX} requests from the asking broker already wait for an answer; try again",
                retry_after_ms=100,
            )
            connection.send(HEADER, encode(Reply(message.id, failed(refused))))
        else:
            task = asyncio.create_task(self._answer(connection, message))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    async def _answer(self, connection: PeerConnection, message: Ask) -> None:
        answer = await self._receiver.answer(message.request)
        connection.send(HEADER, encode(Reply(message.id, answer)))

    def writable(self, connection: PeerConnection) -> None: ...

    def closed(self, connection: PeerConnection, reason: str) -> None:
        """Requests that are being answered are carried out all the same; their answers are dropped."""


def _receive(
    receiver: ControlReceiver, connection: PeerConnection, message: Message | Reply, warnings: LogLimit
) -> None:
    """A vote or an acknowledgement counts only for the broker that greeted on the connection."""
    peer = connection.peer
    if isinstance(message, Reply):
        connection.abort("an answer arrived on a connection on which nothing was asked")
    elif (message.source.broker_id, message.source.directory_id) != (peer.broker_id, peer.directory_id):
        source = message.source
        _end_impostor(
            connection, f"broker {source.broker_id} on disk {source.directory_id.hex()[:8]}", warnings
        )
    else:
        try:
            # This broker may have learnt of a history, or of a later start, since the greeting.
            receiver.check(peer)
        except WrongPeer as error:
            connection.abort(str(error))
            return
        receiver.received(message, peer)


def _foreign_senders(request: Request, peer: Identity) -> list[str]:
    """In whose name the request is, other than of `peer`, which sent it."""
    return [
        f"broker {broker} in its run {incarnation.hex()[:8]}" if incarnation else f"broker {broker}"
        for broker, incarnation in sorted(senders(request))
        if broker != peer.broker_id or incarnation not in (b"", peer.incarnation)
    ]


def _end_impostor(connection: PeerConnection, claimed: str, warnings: LogLimit) -> None:
    """`claimed`: in whose name the message is."""
    peer = connection.peer
    left_out = warnings.left_out("impostor")
    if left_out is not None:
        log.warning(
            "a broker sent a message that is not in its own name; its connection ends",
            broker=peer.broker_id,
            run=peer.incarnation.hex()[:8],
            address=connection.remote,
            claimed=claimed,
            left_out=left_out,
        )
    connection.abort(f"broker {peer.broker_id} sent a message in the name of {claimed}")


async def identify(address: Address, me: Callable[[], Identity], tls: Credentials | None) -> Identity:
    """Returns the identity of the broker that listens at `address`. Raises `PeerError`."""
    connection = await dial(
        *address, me, ConnectionKind.CONTROL, target=None, timeout_s=SEED_SECONDS_MAX, tls=tls
    )
    identity = connection.peer
    connection.abort("the connection only asked for the identity")
    return identity

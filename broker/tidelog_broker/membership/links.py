"""The control connections of a broker: one that it dials to each other broker, and those that come in.

Raft messages and requests go out on the dialed one; answers come back on the connection of
their request. Neighbours: `peers` has the connections, `wire` the words,
`quorum_controller` is the `ControlHost` that does what they say.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import structlog

from tidelog.errors import ConnectionLost, ResourceExhausted, TimedOut
from tidelog_broker.core.raft.messages import Message
from tidelog_broker.errors import NotConnected
from tidelog_broker.membership.wire import Answer, Ask, Reply, Request, Word, decode, encode, failed
from tidelog_broker.peers.connection import Accept, PeerConnection, Receiver
from tidelog_broker.peers.dialing import dial
from tidelog_broker.peers.errors import ProtocolBroken, WrongPeer
from tidelog_broker.peers.hello import ConnectionKind, Hello, Identity
from tidelog_broker.peers.link import PeerLink
from tidelog_broker.peers.listener import PeerListener
from tidelog_broker.peers.watch import Evidence

log = structlog.get_logger(__name__)

HEADER: Final = b"c"
"""Of every control frame: words may be larger than a header, so they are the payload."""

ASKED_MAX: Final = 1000
"""Requests of one connection that are being answered; over it they are refused (retriable)."""

SEED_SECONDS_MAX: Final = 1.0
"""How long a seed may take to say who it is."""

Address = tuple[str, int]


class ControlHost(Protocol):
    """Who is at this end. Nothing here may block, nor raise if it does not say so."""

    def check(self, identity: Identity) -> None:
        """Raises `WrongPeer` if that broker's metadata log is not of this one's history (M2), or its data
        directory was put back from a copy (R19)."""

    def put_back(self, reason: str) -> None:
        """Another broker says so of this one's data directory."""

    def said(self, message: Message, peer: Identity) -> None:
        """Of Raft, from `peer`, whose connection it came on."""

    async def answer(self, request: Request) -> Answer: ...

    def believes(self, identity: Identity) -> bool:
        """Whether that may be the broker that it says it is, and not another one with its id."""

    def opened(self, broker: int) -> None:
        """The connection to a broker stands."""

    def closed(self, broker: int) -> None:
        """It broke."""

    def accused(self, broker: int, run: bytes, evidence: Evidence | None) -> None:
        """What is known against that run of a broker changed."""


class ControlLinks:
    """See the module. Of one event loop."""

    def __init__(self, me: Callable[[], Identity], host: ControlHost, rng: random.Random) -> None:
        self._me = me
        self._host = host
        self._rng = rng
        self._peers: dict[int, _Peer] = {}
        self._addresses: dict[int, Address] = {}
        self._listener = PeerListener(me, self._accept)
        self.lanes: dict[ConnectionKind, Accept] = {}
        """Who takes connections of other lanes."""
        self._dismissed: dict[asyncio.Task[None], None] = {}
        """Links that are ending."""
        self._stopped = False

    def __repr__(self) -> str:
        return f"<ControlLinks {list(self._peers.values())}>"

    async def listen(self, host: str, port: int) -> int:
        """Takes connections; the port that was bound. Raises OSError."""
        await self._listener.start(host, port)
        return self._listener.port

    async def stop(self, reason: str) -> None:
        self._stopped = True
        peers, self._peers = self._peers, {}
        await asyncio.gather(*(peer.stop(reason) for peer in peers.values()), *self._dismissed)
        await self._listener.stop(reason)

    def learn(self, broker: int, address: Address) -> None:
        """A broker is said to be there; the newest word counts."""
        known, self._addresses[broker] = self._addresses.get(broker), address
        peer = self._peers.get(broker)
        if peer is not None and known != address:
            peer.link.hurry()

    def want(self, brokers: Iterable[int]) -> None:
        """Keeps a connection to each of these, and to nobody else."""
        if self._stopped:
            return
        wanted = dict.fromkeys(brokers)
        for broker in wanted:
            if broker not in self._peers:
                self._peers[broker] = _Peer(broker, self, self._me, self._host, self._rng)
                self._peers[broker].link.start()
        for broker in [broker for broker in self._peers if broker not in wanted]:
            peer = self._peers.pop(broker)
            task = asyncio.create_task(peer.stop("this broker is not of the cluster any more"))
            self._dismissed[task] = None
            task.add_done_callback(self._dismissed.pop)

    def address(self, broker: int) -> Address | None:
        return self._addresses.get(broker)

    @property
    def open(self) -> list[int]:
        """The brokers that can be asked now."""
        return [broker for broker, peer in self._peers.items() if peer.link.connection is not None]

    def send(self, broker: int, word: Word) -> None:
        """Lost if there is no connection."""
        peer = self._peers.get(broker)
        connection = None if peer is None else peer.link.connection
        if connection is not None:
            connection.send(HEADER, encode(word))

    async def ask(self, broker: int, request: Request, seconds: float) -> Answer:
        """Raises `NotConnected` (not sent), `ConnectionLost` or `TimedOut` (both indefinite)."""
        peer = self._peers.get(broker)
        if peer is None or peer.link.connection is None:
            raise NotConnected(broker)
        return await peer.ask(peer.link.connection, request, seconds)

    def _accept(self, hello: Hello) -> Receiver:
        self._host.check(hello.sender)
        if hello.sender.host and self._host.believes(hello.sender):
            self.learn(hello.sender.broker_id, (hello.sender.host, hello.sender.port))
        if hello.lane is ConnectionKind.CONTROL:
            peer = self._peers.get(hello.sender.broker_id)
            if peer is not None:
                # It is there, so a dial will succeed.
                peer.link.hurry()
            return _Inbound(self._host)
        accept = self.lanes.get(hello.lane)
        if accept is None:
            raise WrongPeer(f"this broker takes no {hello.lane} connections yet; try again")
        return accept(hello)


class _Peer:
    """The dialed connection to one broker, and what was asked on it."""

    def __init__(
        self,
        broker: int,
        links: ControlLinks,
        me: Callable[[], Identity],
        host: ControlHost,
        rng: random.Random,
    ) -> None:
        self._broker = broker
        self._links = links
        self._host = host
        self._run = b""
        """The incarnation that was last connected."""
        self._ids = 0
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self.link = PeerLink(broker, ConnectionKind.CONTROL, me, self, rng)

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

    # --- of the link

    def address(self) -> Address | None:
        return self._links.address(self._broker)

    def put_back(self, reason: str) -> None:
        self._host.put_back(reason)

    def evidence(self, evidence: Evidence | None) -> None:
        self._host.accused(self._broker, self._run, evidence)

    def opened(self, connection: PeerConnection) -> None:
        self._run = connection.peer.incarnation
        self._host.opened(self._broker)

    def received(self, connection: PeerConnection, header: bytes, payload: memoryview) -> None:
        try:
            word = decode(payload)
        except ProtocolBroken as error:
            connection.abort(str(error))
            return
        if isinstance(word, Reply):
            done = self._asked.get(word.id)
            if done is not None and not done.done():
                done.set_result(word.answer)
        elif not isinstance(word, Ask):
            _said(self._host, connection, word)

    def writable(self, connection: PeerConnection) -> None:
        """What is sent is bounded by Raft's own window and by who asks."""

    def closed(self, connection: PeerConnection, reason: str) -> None:
        self._lose()
        self._host.closed(self._broker)

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

    def __init__(self, host: ControlHost) -> None:
        self._host = host
        self._tasks: dict[asyncio.Task[None], None] = {}

    def opened(self, connection: PeerConnection) -> None: ...

    def received(self, connection: PeerConnection, header: bytes, payload: memoryview) -> None:
        try:
            word = decode(payload)
        except ProtocolBroken as error:
            connection.abort(str(error))
            return
        if not isinstance(word, Ask):
            _said(self._host, connection, word)
        elif len(self._tasks) >= ASKED_MAX:
            refused = ResourceExhausted(f"{ASKED_MAX} requests are being answered", retry_after_ms=100)
            connection.send(HEADER, encode(Reply(word.id, failed(refused))))
        else:
            task = asyncio.create_task(self._answer(connection, word))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    async def _answer(self, connection: PeerConnection, word: Ask) -> None:
        answer = await self._host.answer(word.request)
        connection.send(HEADER, encode(Reply(word.id, answer)))

    def writable(self, connection: PeerConnection) -> None: ...

    def closed(self, connection: PeerConnection, reason: str) -> None:
        """What was asked is done all the same; nobody is there to be told."""


def _said(host: ControlHost, connection: PeerConnection, word: Message | Reply) -> None:
    """A vote or an acknowledgement counts for who greeted on the connection, and for nobody else."""
    peer = connection.peer
    if isinstance(word, Reply):
        connection.abort("an answer to what was not asked on this connection")
    elif (word.source.broker_id, word.source.directory_id) != (peer.broker_id, peer.directory_id):
        connection.abort(f"broker {peer.broker_id} speaks as {word.source}")
    else:
        try:
            # This end may have learnt of a history, or of a later start, since they greeted.
            host.check(peer)
        except WrongPeer as error:
            connection.abort(str(error))
            return
        host.said(word, peer)


async def who_is_there(address: Address, me: Callable[[], Identity]) -> Identity:
    """Who listens at an address that somebody wrote down. Raises `PeerError`."""
    connection = await dial(*address, me, ConnectionKind.CONTROL, target=None, timeout_s=SEED_SECONDS_MAX)
    identity = connection.peer
    connection.abort("it only asked who is there")
    return identity

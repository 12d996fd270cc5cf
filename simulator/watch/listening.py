"""Reads the messages between brokers and those between brokers and clients, and passes them to the checks.

Frames between brokers are read from the connection when they are sent; messages of clients at the broker's
RPC server. A message that is read here may still be lost on its way; a wrong message is a violation all the
same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from simulator.checks import Checks
from simulator.node import Key
from simulator.service import PEER_PORT
from simulator.watch.mirror import headers_of
from tidelog._connecting.framing import parse_fetch_answer
from tidelog.records import HEADER_BYTES, BatchHeader
from tidelog_broker.core.metadata.controller.reports import Evidence
from tidelog_broker.core.raft.messages import AppendResponse, VoteRequest, VoteResponse
from tidelog_broker.core.replication.messages import (
    Batches,
    Diverged,
    Durable,
    LeaderOffsets,
    Position,
    RangeHeld,
    Refused,
    StartOver,
)
from tidelog_broker.membership import wire as control_wire
from tidelog_broker.peers import hello
from tidelog_broker.replication.wire import Address, from_follower, from_leader
from tidelog_proto import common_pb2

if TYPE_CHECKING:
    from simulator.kernel.network import Address as Place
    from simulator.kernel.network import Observer
    from simulator.node import Node

FETCH: Final = "/tidelog.v1.Log/Fetch"
PRODUCE: Final = "/tidelog.v1.Log/Produce"
INIT_PRODUCER: Final = "/tidelog.v1.Log/InitProducer"
OFFSETS: Final = "/tidelog.v1.Log/Offsets"

UNEXPECTED_OFFSET: Final = "UNEXPECTED_OFFSET"


class Frames:
    """Splits bytes into frames of `peers.framing`: header and payload."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def take(self, data: bytes) -> list[tuple[bytes, bytes]]:
        self._bytes += data
        found = []
        while len(self._bytes) >= 8:
            length = int.from_bytes(self._bytes[:4], "little")
            header = int.from_bytes(self._bytes[4:8], "little")
            if len(self._bytes) < 4 + length:
                break
            if header:
                found.append(
                    (bytes(self._bytes[8 : 8 + header]), bytes(self._bytes[8 + header : 4 + length]))
                )
            del self._bytes[: 4 + length]
        return found


class PeerTraffic:
    """The frames of one connection between brokers."""

    def __init__(self, checks: Checks, dialer: Node | None, other: Node | None) -> None:
        """None: the end is not a broker of the run."""
        self._checks = checks
        self._dialer, self._other = dialer, other
        self._kind: hello.ConnectionKind | None = None
        self._run = b""
        """The dialer's incarnation."""
        self._from_dialer, self._from_other = Frames(), Frames()
        self._greeted = False
        """The other end has answered the greeting."""

    def dialer_said(self, data: bytes) -> None:
        with self._checks.kept():
            self._dialer_said(data)

    def other_said(self, data: bytes) -> None:
        with self._checks.kept():
            self._other_said(data)

    def _dialer_said(self, data: bytes) -> None:
        for header, payload in self._from_dialer.take(data):
            if self._kind is None:
                words = hello.decode(header)
                self._kind, self._run = words.kind, words.sender.incarnation
            elif self._kind is hello.ConnectionKind.CONTROL:
                self._control(self._dialer, self._other, payload)
            elif self._kind in (hello.ConnectionKind.REPLICA, hello.ConnectionKind.CATCH_UP):
                address, message = from_follower(header, memoryview(payload))
                self._follower(address, message)

    def _other_said(self, data: bytes) -> None:
        for header, payload in self._from_other.take(data):
            if not self._greeted:
                self._greeted = True
            elif self._kind is hello.ConnectionKind.CONTROL:
                self._control(self._other, self._dialer, payload)
            elif self._kind in (hello.ConnectionKind.REPLICA, hello.ConnectionKind.CATCH_UP):
                address, message = from_leader(header, memoryview(payload))
                self._leader(address, message)

    # --- control

    def _control(self, node: Node | None, other: Node | None, payload: bytes) -> None:
        """`node` sends a control message to `other`."""
        if node is None or node.assembly is None:
            return
        word = control_wire.decode(payload)
        if isinstance(word, AppendResponse | VoteRequest | VoteResponse):
            controller = node.assembly.controller
            self._checks.said(controller.me, controller._driver.node.log.last_index, word)
            if isinstance(word, VoteRequest) and not word.pre:
                self._checks.surroundings.votes_are_asked(node.id)
        elif isinstance(word, control_wire.Ask):
            self._asked(word.request)
        elif (
            isinstance(word, control_wire.Reply)
            and isinstance(word.answer, control_wire.Done)
            and other is not None
        ):
            self._checks.answered(other.id)

    def _asked(self, request: control_wire.Request) -> None:
        match request:
            case control_wire.Report():
                self._checks.reported(
                    request.reporter, request.reported_run, Evidence(request.evidence), self._checks.now_us()
                )
            case control_wire.Heartbeat():
                self._checks.beats(self._checks.brokers[request.broker_id], request)
                if request.clock_yields:
                    self._checks.clock_off(request.incarnation)
                for name in request.damaged:
                    self._checks.damaged(request.incarnation, name)
            case control_wire.Register():
                if request.suspects:
                    self._checks.mark("R6 suspects told")
                if request.lost:
                    self._checks.mark("2c lost replicas told")
            case control_wire.ChangeIsr():
                for proposal in request.proposals:
                    self._checks.proposed(proposal)
            case control_wire.Settled():
                for led in request.settled:
                    self._checks.settled(request.broker_id, (led.stream_id, led.partition), led.leader_epoch)
            case _:
                pass

    # --- replicas

    def _follower(self, address: Address, message: object) -> None:
        """The dialer sends a message as a follower."""
        if self._dialer is None or not isinstance(message, Position | Durable):
            return
        replica = self._dialer.replicas.get((address.stream_id, address.partition))
        if replica is not None:
            self._checks.told_leader(replica, message.start_offset)

    def _leader(self, address: Address, message: object) -> None:
        """The other end sends a message as a leader."""
        checks = self._checks
        match message:
            case Refused(refusal, _):
                checks.mark(f"R2 {refusal.value}")
            case StartOver():
                checks.mark("R1 start over")
            case Diverged():
                checks.mark("R1 diverged")
            case LeaderOffsets() if message.unclean:
                checks.mark("R5 unclean epoch told")
            case Batches() | RangeHeld():
                self._given(address, message)
            case _:
                pass

    def _given(self, address: Address, message: Batches | RangeHeld) -> None:
        node = self._other
        replica = None if node is None else node.replicas.get((address.stream_id, address.partition))
        if replica is None:
            return
        data = bytes(message.data)
        self._checks.given(replica.name, replica.node.id, replica.key, data)
        if isinstance(message, Batches):
            self._checks.sent(replica, message.leader_epoch, headers_of(data))


class Produced(NamedTuple):
    """A request of a Produce call that waits for its response."""

    key: Key
    acks: int
    header: BatchHeader
    expected: int | None
    """The offset that a conditional append expects (R9)."""


class ClientTraffic:
    """The requests and responses of one broker's RPC server (a `CallObserver`)."""

    def __init__(self, checks: Checks, node: Node) -> None:
        self._checks = checks
        self._node = node
        self._produced: dict[tuple[object, int], Produced] = {}
        """By call and request."""
        self._fetched: dict[object, Any] = {}
        self._floors: dict[object, list[tuple[Key, int]]] = {}
        """By call of Offsets: for each partition, the end of the acknowledged records when the request
        arrived."""

    def asked(self, call: object, path: str, request: Any) -> None:
        if path == PRODUCE:
            facts = request.facts
            key = (facts.stream_id, facts.partition)
            header = BatchHeader.unpack(bytes(request.batch[:HEADER_BYTES]))
            expected = facts.expected_offset if facts.HasField("expected_offset") else None
            self._produced[call, facts.request_id] = Produced(key, facts.acks, header, expected)
        elif path == FETCH:
            self._fetched[call] = request
        elif path == OFFSETS:
            keys = [(one.stream_id, one.partition) for one in request.partitions]
            self._floors[call] = [(key, self._checks.truth(key).acknowledged) for key in keys]

    def told(self, call: object, path: str, response: Any) -> None:
        with self._checks.kept():
            self._told(call, path, response)

    def _told(self, call: object, path: str, response: Any) -> None:
        if path == PRODUCE:
            self._produced_answer(call, response)
        elif path == FETCH:
            self._fetch_answer(call, response)
        elif path == INIT_PRODUCER:
            self._checks.producer_given(response.producer_id)
        elif path == OFFSETS:
            for (key, floor), one in zip(self._floors.pop(call, []), response.partitions, strict=True):
                if not one.HasField("error"):
                    self._checks.told_latest(self._node.id, key, one.leader_epoch, one.high_watermark, floor)

    def _produced_answer(self, call: object, response: Any) -> None:
        produced = self._produced.pop((call, response.request_id))
        checks, key, header = self._checks, produced.key, produced.header
        replica = self._node.replicas.get(key)
        if response.HasField("error"):
            code = common_pb2.ErrorCode.Name(response.error.code)
            checks.refused(code)
            if code == UNEXPECTED_OFFSET and replica is not None:
                checks.expectation_refused(replica, header)
            return
        receipt = response.receipt
        if receipt.duplicate:
            checks.mark("R8 repeat")
        elif produced.expected is not None:
            checks.expectation_met(key, header, receipt, produced.expected)
        if produced.acks == 0:
            checks.acknowledged(self._node.id, key, receipt.last_offset + 1)
        elif produced.acks == 1 and replica is not None:
            checks.held(replica, receipt.last_offset + 1)
        checks.counted(key, header, receipt)

    def _fetch_answer(self, call: object, response: Any) -> None:
        answer = parse_fetch_answer(response.SerializeToString())
        wanted = self._fetched[call].partitions[answer.facts.index]
        key = (wanted.stream_id, wanted.partition)
        data = bytes(answer.batches) if answer.batches is not None else b""
        if data:
            self._checks.given(f"partition {key[1]}", self._node.id, key, data)
            self._checks.read(self._node.id, key, headers_of(data)[-1].next_offset)
        elif answer.facts.HasField("error"):
            self._checks.unread(common_pb2.ErrorCode.Name(answer.facts.error.code))


def tap(checks: Checks, nodes: dict[str, Node]) -> Any:
    """The tap (`kernel.network.Tap`) for connections between brokers; `nodes`: by host."""

    def listen(source: str, target: Place) -> tuple[Observer | None, Observer | None]:
        if target[1] != PEER_PORT:
            return None, None
        traffic = PeerTraffic(checks, nodes.get(source), nodes.get(target[0]))
        return traffic.dialer_said, traffic.other_said

    return listen

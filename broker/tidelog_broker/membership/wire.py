"""The messages on a control connection: Raft, requests to the controller, and their answers.

They are MessagePack maps with a tag, like commands; unknown fields are skipped. Neighbours:
`control_connections` carries the bytes and pairs requests with their answers,
`quorum.request_handler` handles the requests.
"""

from __future__ import annotations

from typing import TypeAlias, cast

import msgspec

from tidelog.errors import TidelogError, error_from_code
from tidelog.model import Listener
from tidelog_broker.core.metadata.commands import ReplicaName, Suspect
from tidelog_broker.core.metadata.controller.handovers import Led
from tidelog_broker.core.metadata.controller.registration import Registration
from tidelog_broker.core.metadata.decisions.isr_changes import IsrProposal, Member
from tidelog_broker.core.raft.messages import Message
from tidelog_broker.errors import NotController
from tidelog_broker.peers.errors import ProtocolBroken


class _ControlMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    pass


# --- requests


class Register(_ControlMessage, frozen=True, omit_defaults=True, tag="register?"):
    """A `Registration` of `core.metadata`, with the same field names, and the time of the clock."""

    cluster_id: bytes
    broker_id: int
    incarnation: bytes
    directory_id: bytes
    listeners: tuple[Listener, ...] = ()
    rack: str = ""
    starts: int = 0
    feature_level_min: int = 1
    feature_level_max: int = 1
    suspects: tuple[Suspect, ...] = ()
    lost: tuple[ReplicaName, ...] = ()
    clock_us: int = 0
    """As in `Heartbeat`."""

    def registration(self) -> Registration:
        return Registration(*(getattr(self, name) for name in Registration._fields))

    @classmethod
    def of(cls, registration: Registration, clock_us: int = 0) -> Register:
        return cls(**registration._asdict(), clock_us=clock_us)


class Heartbeat(_ControlMessage, frozen=True, omit_defaults=True, tag="heart?"):
    broker_id: int
    incarnation: bytes
    stopping: bool = False
    """The broker asks that other brokers take over its leaderships."""
    unanswered: bool = msgspec.field(default=False, name="deaf")
    """No heartbeat was answered for a session. The broker would not hear that it is fenced, so this heartbeat
    does not count as a sign of life."""
    damaged: tuple[ReplicaName, ...] = ()
    """Its replicas with a damaged range (2c), or the first of them."""
    feature_level: int = 1
    """The newest feature level that its software understands."""
    clock_off: bool = False
    """Its clock is further from the cluster's clock than allowed (F7)."""
    clock_yields: bool = False
    """The clock has been off for some seconds: others should lead what this broker leads (R18)."""
    clock_us: int = 0
    """The time of its clock, µs since the epoch; 0: not given."""


class Report(_ControlMessage, frozen=True, omit_defaults=True, tag="report?"):
    """R14: the evidence of one broker against another."""

    reporter: int
    reporter_run: bytes
    reported: int
    reported_run: bytes
    evidence: str
    """A value of `core.metadata.controller.reports.Evidence`."""


class ChangeIsr(_ControlMessage, frozen=True, omit_defaults=True, tag="isr?"):
    """R4; the image shows the result."""

    proposals: tuple[IsrProposal, ...]


class LoseReplicas(_ControlMessage, frozen=True, omit_defaults=True, tag="lost?"):
    """A running broker set logs aside (2c)."""

    broker_id: int
    incarnation: bytes
    partitions: tuple[ReplicaName, ...]


class Settled(_ControlMessage, frozen=True, omit_defaults=True, tag="settled?"):
    """N5: another broker may lead these now, without leaving any writer in doubt."""

    broker_id: int
    incarnation: bytes
    settled: tuple[Led, ...]


class AllocateBlock(_ControlMessage, frozen=True, omit_defaults=True, tag="block?"):
    """A request for producer ids that the broker gives out."""

    broker_id: int
    count: int


class Confirm(_ControlMessage, frozen=True, omit_defaults=True, tag="confirm?"):
    """Asks for a version that has everything that is committed now (ReadIndex, M5)."""


class Known(_ControlMessage, frozen=True, omit_defaults=True, tag="known?"):
    """Asks whether the image shows a broker on a disk. A broker whose metadata log is empty sends it.

    Answered with a version of 0 if not."""

    broker_id: int
    directory_id: bytes


class Call(_ControlMessage, frozen=True, omit_defaults=True, tag="call?"):
    """A client's request, verbatim, from a broker that is not the controller."""

    rpc: str
    request: bytes


Request: TypeAlias = (
    Register
    | Heartbeat
    | Report
    | ChangeIsr
    | LoseReplicas
    | Settled
    | AllocateBlock
    | Confirm
    | Known
    | Call
)


def senders(request: Request) -> set[tuple[int, bytes]]:
    """The brokers in whose name the request is, as ids and incarnations.

    An empty incarnation: the request names none. No broker at all: it is answered whatever broker asks.
    """
    match request:
        case Register() | Heartbeat() | LoseReplicas() | Settled():
            return {(request.broker_id, request.incarnation)}
        case Report():
            return {(request.reporter, request.reporter_run)}
        case ChangeIsr():
            return {(one.proposer.broker, one.proposer.incarnation) for one in request.proposals}
        case AllocateBlock() | Known():
            return {(request.broker_id, b"")}
        case Confirm() | Call():
            return set()


# --- answers


class Done(_ControlMessage, frozen=True, omit_defaults=True, tag="done"):
    version: int = 0
    """The version of the image that shows the result, or a later version."""
    clock_us: int = 0
    """The cluster's clock, µs since the epoch, in answers to registrations and heartbeats; 0: not given, or
    the controller does not know it yet (R18)."""
    wished: tuple[Led, ...] = ()
    """Leaderships that the sender must settle, in answers to heartbeats."""


class Block(_ControlMessage, frozen=True, omit_defaults=True, tag="block"):
    first: int
    count: int


class Called(_ControlMessage, frozen=True, omit_defaults=True, tag="called"):
    response: bytes
    version: int


class NotControllerResponse(_ControlMessage, frozen=True, omit_defaults=True, tag="elsewhere"):
    """The broker is not the controller; None and no host: it does not know which broker is."""

    controller: int | None = None
    host: str = ""
    port: int = 0


class Failed(_ControlMessage, frozen=True, omit_defaults=True, tag="failed"):
    """A `TidelogError`, which keeps its type."""

    code: str
    message: str
    retry_after_ms: int | None = None
    details: dict[str, str] = {}


Answer: TypeAlias = Done | Block | Called | NotControllerResponse | Failed


class Ask(_ControlMessage, frozen=True, omit_defaults=True, tag="ask"):
    id: int
    """A number that the sender counts for each connection."""
    request: Request


class Reply(_ControlMessage, frozen=True, omit_defaults=True, tag="reply"):
    id: int
    answer: Answer


ControlMessage: TypeAlias = Message | Ask | Reply

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[ControlMessage] = msgspec.msgpack.Decoder(ControlMessage)


def encode(message: ControlMessage) -> bytes:
    if isinstance(message, Ask) and isinstance(message.request, ChangeIsr):
        # Brokers of earlier versions do not know assignments: an assignment of 0 is left out.
        message = Ask(message.id, ChangeIsr(tuple(_short(one) for one in message.request.proposals)))
    return _encoder.encode(message)


def _short(proposal: IsrProposal) -> IsrProposal:
    proposer, *members = (
        one if one.assignment else cast(Member, one[:2]) for one in (proposal.proposer, *proposal.isr)
    )
    return proposal._replace(proposer=proposer, isr=tuple(members))


def decode(data: bytes | memoryview) -> ControlMessage:
    """Raises `ProtocolBroken`."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, ValueError) as error:
        raise ProtocolBroken(f"a control message that this version does not understand ({error})") from error


def failed(error: TidelogError) -> Answer:
    """The answer that carries an error."""
    if isinstance(error, NotController):
        host, port = error.address or ("", 0)
        return NotControllerResponse(error.controller, host, port)
    return Failed(error.code, error.message, error.retry_after_ms, error.details)


def raised(answer: NotControllerResponse | Failed) -> TidelogError:
    """The error that an answer carries."""
    if isinstance(answer, NotControllerResponse):
        address = (answer.host, answer.port) if answer.host else None
        return NotController(answer.controller, address)
    return error_from_code(answer.code, answer.message, answer.details, answer.retry_after_ms)

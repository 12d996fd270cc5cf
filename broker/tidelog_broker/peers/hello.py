"""The greeting on a connection: which broker speaks, and what the connection is for.

Both ends identify themselves once, so that everything after it is known to come from that run of that
broker of that cluster on that disk (R2): another run is another connection.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tidelog.model import id_text
from tidelog_broker.model import Recovery
from tidelog_broker.peers.errors import DirectoryRestored, OtherHistory, ProtocolBroken, WrongPeer

VERSION = 1
"""The version of the frames and messages between brokers."""


class ConnectionKind(StrEnum):
    """What a connection carries."""

    CONTROL = "control"
    """Raft, heartbeats, registration, reports, ISR changes."""
    REPLICA = "replica"
    """Batches for followers that keep up."""
    CATCH_UP = "catch-up"
    """Batches for followers that are far behind, within a limit of bandwidth."""


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run of one broker."""

    broker_id: int
    cluster_id: bytes = b""
    """Empty: the broker is about to join a cluster, and does not know its id yet."""
    directory_id: bytes = b""
    incarnation: bytes = b""
    host: str = ""
    """The host of its peer listener; empty: it has none."""
    port: int = 0
    recoveries: tuple[Recovery, ...] | None = None
    """The history of its metadata log (M2); None: its log is empty, or its version does not say."""
    starts: int | None = None
    """How many starts its data directory has counted (R19). None: no directory, or an earlier version."""

    def __repr__(self) -> str:
        run = self.incarnation.hex()[:8]
        return f"<Identity broker={self.broker_id} incarnation={run} {self.host}:{self.port}>"


class Hello(msgspec.Struct, frozen=True, omit_defaults=True, tag="hello"):
    sender: Identity
    kind: ConnectionKind = msgspec.field(name="lane")
    version: int = VERSION
    target: int | None = None
    """The broker that the dialer wants to reach; None: any broker."""
    message: bytes = b""
    """For the user of the connection: facts that it needs before the first message."""


class Refusal(msgspec.Struct, frozen=True, omit_defaults=True, tag="refused"):
    """The answer in place of a hello: why the connection is refused."""

    reason: str
    recoveries: tuple[Recovery, ...] | None = None
    """Why, if not None: the metadata log at this end is of this other history (M2)."""
    restored: bool = msgspec.field(default=False, name="put_back")
    """Why: the data directory at the other end was restored from a copy (R19)."""

    @classmethod
    def of(cls, error: WrongPeer) -> Refusal:
        recoveries = error.recoveries if isinstance(error, OtherHistory) else None
        return cls(str(error), recoveries, isinstance(error, DirectoryRestored))


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Hello | Refusal] = msgspec.msgpack.Decoder(Hello | Refusal)


def encode(greeting: Hello | Refusal) -> bytes:
    return _encoder.encode(greeting)


def decode(data: bytes) -> Hello:
    """Raises `WrongPeer` for a refusal and `ProtocolBroken` for anything else."""
    try:
        greeting = _decoder.decode(data)
    except (msgspec.DecodeError, ValueError) as error:
        raise ProtocolBroken(f"the first frame is not the greeting of a broker ({error})") from error
    if isinstance(greeting, Refusal):
        if greeting.recoveries is not None:
            raise OtherHistory(greeting.reason, greeting.recoveries)
        if greeting.restored:
            raise DirectoryRestored(greeting.reason)
        raise WrongPeer(greeting.reason)
    return greeting


def check(hello: Hello, me: Identity) -> None:
    """Raises `WrongPeer` with a sentence for the administrator of the other broker."""
    them = hello.sender
    if hello.version != VERSION:
        raise WrongPeer(
            f"broker {them.broker_id} uses version {hello.version} of the protocol between brokers, this "
            f"one {VERSION}"
        )
    if them.cluster_id and me.cluster_id and them.cluster_id != me.cluster_id:
        raise WrongPeer(
            f"broker {them.broker_id} belongs to cluster {id_text(them.cluster_id)}, "
            f"this one to {id_text(me.cluster_id)}; check the addresses of peers"
        )
    if hello.target is not None and hello.target != me.broker_id:
        raise WrongPeer(f"this is broker {me.broker_id}, not {hello.target}; check the addresses of peers")
    if them.broker_id == me.broker_id and them.incarnation != me.incarnation:
        raise WrongPeer(f"both ends are broker {me.broker_id}; give each broker of a cluster its own id")

"""Encodes and decodes the messages between replicas, as frames between brokers.

The messages are those of `core.replication.messages`. A frame's header names the partition and the number
of the follower's role; its payload has batches with the bytes of the leader's file. The follower numbers its
roles, and the leader returns the number of the request. So a follower recognizes an answer to an earlier role
(docs/replication.md, R2). `links` has the connections.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from tidelog_broker.core.metadata.commands import FEATURE_LEVEL
from tidelog_broker.core.metadata.feature_levels import ASSIGNMENTS
from tidelog_broker.core.replication.messages import (
    Batches,
    Diverged,
    Durable,
    EpochMark,
    FromFollower,
    FromLeader,
    LeaderOffsets,
    Position,
    RangeHeld,
    RangeWanted,
    Refused,
    StartOver,
)
from tidelog_broker.peers.errors import ProtocolBroken

STREAM_ID_BYTES: Final = 16


class Address(NamedTuple):
    """The replica that sent a message or will receive it."""

    stream_id: bytes
    partition: int
    number: int
    """Number of the follower's role."""


class _BatchesHead(NamedTuple):
    """`Batches` without its data, which is the payload."""

    leader_epoch: int
    high_watermark: int
    start_offset: int
    offset: int
    unclean: tuple[EpochMark, ...]


class _RangeHead(NamedTuple):
    """`RangeHeld` without its data, which is the payload."""

    leader_epoch: int
    start: int


_Body: TypeAlias = (
    Position
    | Durable
    | _BatchesHead
    | LeaderOffsets
    | Diverged
    | StartOver
    | Refused
    | RangeWanted
    | _RangeHead
)

_KINDS: Final = (
    Position, Durable, _BatchesHead, LeaderOffsets, Diverged, StartOver, Refused, RangeWanted, _RangeHead,
)  # fmt: skip
"""The kinds of messages. The index is the number on the wire, which never changes."""


class _Header(msgspec.Struct, array_like=True):
    kind: int
    address: Address
    body: msgspec.Raw


_encoder = msgspec.msgpack.Encoder()
_header = msgspec.msgpack.Decoder(_Header)
_bodies: tuple[msgspec.msgpack.Decoder[_Body], ...] = tuple(msgspec.msgpack.Decoder(kind) for kind in _KINDS)
_numbers: dict[type, int] = {kind: number for number, kind in enumerate(_KINDS)}


_FIELDS_ONCE: Final[dict[type, int]] = {Position: 5, Durable: 3, StartOver: 3}
"""How many fields these had before the feature level `ASSIGNMENTS`. Earlier versions accept no more."""


def encode(
    address: Address,
    message: FromFollower | FromLeader | RangeWanted | RangeHeld,
    *,
    feature_level: int = FEATURE_LEVEL,
) -> bytes:
    """Encodes the header; the caller sends the data of `Batches` and `RangeHeld` as the payload.

    `feature_level`: of the cluster. Below `ASSIGNMENTS` a broker of an earlier version may read the frame.
    """
    body: Any = message
    if isinstance(message, RangeHeld):
        body = _RangeHead(message.leader_epoch, message.start)
    if isinstance(message, Batches):
        body = _BatchesHead(
            message.leader_epoch,
            message.high_watermark,
            message.start_offset,
            message.offset,
            message.unclean,
        )
    number = _numbers[type(body)]
    if feature_level < ASSIGNMENTS and type(body) in _FIELDS_ONCE:
        body = body[: _FIELDS_ONCE[type(body)]]
    return _encoder.encode((number, address, body))


def from_follower(
    header: bytes, payload: memoryview
) -> tuple[Address, FromFollower | RangeWanted | RangeHeld]:
    """Decodes a follower's message; raises `ProtocolBroken`."""
    address, body = _decode(header)
    if isinstance(body, _RangeHead):
        return address, RangeHeld(*body, payload)
    if not isinstance(body, Position | Durable | RangeWanted):
        raise ProtocolBroken(f"a follower never sends {type(body).__name__}")
    return address, body


def from_leader(header: bytes, payload: memoryview) -> tuple[Address, FromLeader | RangeWanted | RangeHeld]:
    """Decodes a leader's message; raises `ProtocolBroken`."""
    address, body = _decode(header)
    if isinstance(body, Position | Durable):
        raise ProtocolBroken(f"a leader never sends {type(body).__name__}")
    if isinstance(body, _RangeHead):
        return address, RangeHeld(*body, payload)
    if isinstance(body, _BatchesHead):
        epoch, high_watermark, start_offset, offset, unclean = body
        return address, Batches(epoch, high_watermark, start_offset, offset, payload, unclean)
    return address, body


def _decode(header: bytes) -> tuple[Address, _Body]:
    try:
        head = _header.decode(header)
        if not 0 <= head.kind < len(_bodies) or len(head.address.stream_id) != STREAM_ID_BYTES:
            raise ProtocolBroken(f"not a message between replicas: kind {head.kind}, {head.address}")
        body = _bodies[head.kind].decode(head.body)
    except (msgspec.DecodeError, ValueError) as error:
        raise ProtocolBroken(f"a frame between replicas cannot be read ({error})") from error
    return head.address, body

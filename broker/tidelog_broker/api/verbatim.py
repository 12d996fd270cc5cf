"""The messages that carry record batches, which the broker receives and sends without copying.

A batch is a view of the message in which it came, and is sent as it is stored in the log. See
`tidelog.large_field` for the reason why protobuf does not parse it.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import NamedTuple

from tidelog.errors import InvalidRequest
from tidelog.large_field import SMALL_MESSAGE_BYTES, cut, head_of, join
from tidelog_broker.api.calls import REQUEST_BYTES_MAX
from tidelog_proto import log_pb2

PIECE_BYTES = 1 << 20
"""Copied at a time by a thread that is not the event loop's."""


FACTS_BYTES_MAX = 64 << 10
"""Of what stands beside a large batch in its request: some numbers and an id."""


class ProduceMessage(NamedTuple):
    """A ProduceRequest, its ``batch`` apart."""

    facts: log_pb2.ProduceRequest
    """Everything but the batch."""
    batch: bytes | memoryview


def parse_produce(data: bytes) -> ProduceMessage:
    """The request in `data`, a large batch as a view of it.

    Raises protobuf's DecodeError, and `InvalidRequest` for what takes long to parse and has no batch to show.
    """
    if len(data) >= SMALL_MESSAGE_BYTES:
        found = cut(data, log_pb2.ProduceRequest.BATCH_FIELD_NUMBER)
        if found is not None and len(found.rest) <= FACTS_BYTES_MAX:
            facts = log_pb2.ProduceRequest.FromString(found.rest)
            # Of a field that is there twice the last counts, and protobuf finds it.
            if not facts.batch:
                return ProduceMessage(facts, memoryview(data)[found.start : found.end])
    if len(data) > REQUEST_BYTES_MAX:
        raise InvalidRequest(
            f"a ProduceRequest of {len(data)} bytes has no batch, two batches, or more than "
            f"{FACTS_BYTES_MAX} bytes beside the batch"
        )
    facts = log_pb2.ProduceRequest.FromString(data)
    return ProduceMessage(facts, facts.batch)


def size_of(answer: log_pb2.FetchResponse | VerbatimAnswer | EncodedAnswer) -> int:
    """About what it takes to send. Bytes."""
    if isinstance(answer, log_pb2.FetchResponse):
        return answer.ByteSize()
    return answer.bytes_to_send


class VerbatimAnswer:
    """What a FetchResponse with ``batches`` is to the door: something to serialize."""

    __slots__ = ("facts", "parts")

    def __init__(self, facts: log_pb2.FetchResponse, parts: Sequence[bytes | memoryview]) -> None:
        self.facts = facts
        """The message without its item."""
        self.parts = parts
        """The batches' bytes, in pieces."""

    @property
    def bytes_to_send(self) -> int:
        """About what it takes to send."""
        return sum(map(len, self.parts))

    def SerializeToString(self) -> bytes:  # noqa: N802 - as messages have it
        """The bytes of the whole FetchResponse; the batches are copied once."""
        return join(self.facts.SerializeToString(), log_pb2.FetchResponse.BATCHES_FIELD_NUMBER, self.parts)

    def drop(self) -> None:
        """Releases the batches: the receiver of the bytes has them now."""
        self.parts = ()

    def encoded(self) -> EncodedAnswer:
        """The same, serialized already: for a thread, where it is large."""
        return EncodedAnswer(
            self.facts.SerializeToString(), log_pb2.FetchResponse.BATCHES_FIELD_NUMBER, self.parts
        )


class EncodedAnswer:
    """A FetchResponse that a thread has serialized."""

    __slots__ = ("data",)

    def __init__(self, facts: bytes, field: int, parts: Sequence[bytes | memoryview]) -> None:
        """`facts`: the message without its item, serialized; `parts`: the item with the number `field`."""
        size = sum(map(len, parts))
        if size <= PIECE_BYTES:
            self.data = join(facts, field, parts)
            return
        # Copied in pieces: other threads wait for the interpreter's lock while one of them is copied.
        out = BytesIO()
        out.write(head_of(facts, field, size))
        for part in parts:
            view = memoryview(part)
            for at in range(0, len(view), PIECE_BYTES):
                out.write(view[at : at + PIECE_BYTES])
        self.data = out.getvalue()

    @property
    def bytes_to_send(self) -> int:
        """What it takes to send."""
        return len(self.data)

    def SerializeToString(self) -> bytes:  # noqa: N802 - as messages have it
        """The bytes, which are handed over: a second time there are none."""
        data, self.data = self.data, b""
        return data

"""The two messages that carry record batches, as the broker takes and gives them.

A batch is a view of the message it came in, and goes out as it lies in the log: see
`tidelog.large_field` for why protobuf is passed by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.large_field import SMALL_MESSAGE_BYTES, cut, join
from tidelog_proto import log_pb2


class ProduceMessage(NamedTuple):
    """A ProduceRequest, its ``batch`` apart."""

    facts: log_pb2.ProduceRequest
    """Everything but the batch."""
    batch: bytes | memoryview


def parse_produce(data: bytes) -> ProduceMessage:
    """The request in `data`, a large batch as a view of it; raises protobuf's DecodeError."""
    if len(data) >= SMALL_MESSAGE_BYTES:
        found = cut(data, log_pb2.ProduceRequest.BATCH_FIELD_NUMBER)
        if found is not None:
            facts = log_pb2.ProduceRequest.FromString(found.rest)
            # Of a field that is there twice the last counts, and protobuf finds it.
            if not facts.batch:
                return ProduceMessage(facts, memoryview(data)[found.start : found.end])
    facts = log_pb2.ProduceRequest.FromString(data)
    return ProduceMessage(facts, facts.batch)


class VerbatimAnswer:
    """What a FetchResponse with ``batches`` is to the door: something to serialize."""

    __slots__ = ("facts", "parts")

    def __init__(self, facts: log_pb2.FetchResponse, parts: Sequence[bytes | memoryview]) -> None:
        self.facts = facts
        """The message without its item."""
        self.parts = parts
        """The batches' bytes, in pieces."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - as messages have it
        """The bytes of the whole FetchResponse; the batches are copied once."""
        return join(self.facts.SerializeToString(), log_pb2.FetchResponse.BATCHES_FIELD_NUMBER, self.parts)

"""The client's side of the two messages that carry record batches, without protobuf's copies."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
from google.protobuf.message import DecodeError

from tidelog.errors import CorruptBatch
from tidelog.large_field import SMALL_MESSAGE_BYTES, cut, join
from tidelog_proto import log_pb2

PRODUCE_METHOD: Final = "/tidelog.v1.Log/Produce"
FETCH_METHOD: Final = "/tidelog.v1.Log/Fetch"

_PROJECTED: Final = log_pb2.FetchResponse.PROJECTED_FIELD_NUMBER
_LARGE_FIELDS: Final = (log_pb2.FetchResponse.BATCHES_FIELD_NUMBER, _PROJECTED)


class FetchAnswer(NamedTuple):
    """A FetchResponse, with its ``batches`` or ``projected`` apart."""

    facts: log_pb2.FetchResponse
    """The message without them."""
    batches: bytes | pa.Buffer
    """Whole record batches one after another; may be empty."""
    projected: bytes | pa.Buffer = b""
    """The same of projected batches."""


def produce_request(facts: log_pb2.ProduceRequest, batch: bytes) -> bytes:
    """The serialized request with the batch; ``batch`` in `facts` must be empty."""
    return join(facts.SerializeToString(), log_pb2.ProduceRequest.BATCH_FIELD_NUMBER, (batch,))


def parse_fetch_answer(data: bytes) -> FetchAnswer:
    """The answer in `data`; large batches are views of `data`.

    Raises `CorruptBatch` if the bytes are no protobuf message.
    """
    try:
        if len(data) >= SMALL_MESSAGE_BYTES:
            for field in _LARGE_FIELDS:
                found = cut(data, field)
                if found is not None:
                    facts = log_pb2.FetchResponse.FromString(found.rest)
                    item = pa.py_buffer(data).slice(found.start, found.end - found.start)
                    return FetchAnswer(facts, b"", item) if field == _PROJECTED else FetchAnswer(facts, item)
        facts = log_pb2.FetchResponse.FromString(data)
    except DecodeError:
        raise CorruptBatch(
            f"an answer of {len(data)} bytes is incomplete or not a protobuf message"
        ) from None
    return FetchAnswer(facts, facts.batches, facts.projected)

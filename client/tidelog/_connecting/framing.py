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


class FetchAnswer(NamedTuple):
    """A FetchResponse, with its ``batches`` apart."""

    facts: log_pb2.FetchResponse
    """The message without the batches."""
    batches: bytes | pa.Buffer
    """Whole record batches one after another; may be empty."""


def produce_request(facts: log_pb2.ProduceRequest, batch: bytes) -> bytes:
    """The serialized request with the batch; ``batch`` in `facts` must be empty."""
    return join(facts.SerializeToString(), log_pb2.ProduceRequest.BATCH_FIELD_NUMBER, (batch,))


def parse_fetch_answer(data: bytes) -> FetchAnswer:
    """The answer in `data`; large batches are a view of `data`.

    Raises `CorruptBatch` if the bytes are no protobuf message.
    """
    try:
        if len(data) >= SMALL_MESSAGE_BYTES:
            found = cut(data, log_pb2.FetchResponse.BATCHES_FIELD_NUMBER)
            if found is not None:
                facts = log_pb2.FetchResponse.FromString(found.rest)
                batches = pa.py_buffer(data).slice(found.start, found.end - found.start)
                return FetchAnswer(facts, batches)
        facts = log_pb2.FetchResponse.FromString(data)
    except DecodeError:
        raise CorruptBatch(
            f"an answer of {len(data)} bytes is incomplete or not a protobuf message"
        ) from None
    return FetchAnswer(facts, facts.batches)

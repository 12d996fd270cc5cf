"""The two messages that carry record batches, without a copy through protobuf.

Protobuf copies a bytes field twice each way, which for batches of a megabyte costs more
than everything else the client does with them. A field's place in a message is free, so
the batch is written behind, and cut out of, the rest of the message here; all other
fields stay protobuf's business.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
from google.protobuf.message import DecodeError

from tidelog.errors import CorruptBatch
from tidelog_proto import log_pb2

PRODUCE_METHOD: Final = "/tidelog.v1.Log/Produce"
FETCH_METHOD: Final = "/tidelog.v1.Log/Fetch"

_LENGTH_DELIMITED = 2
_PRODUCE_BATCH_TAG = bytes([log_pb2.ProduceRequest.BATCH_FIELD_NUMBER << 3 | _LENGTH_DELIMITED])
_FETCH_BATCHES_TAG = log_pb2.FetchResponse.BATCHES_FIELD_NUMBER << 3 | _LENGTH_DELIMITED

SMALL_ANSWER_BYTES: Final = 512
"""Below this an answer is left to protobuf: nothing to save."""


class FetchAnswer(NamedTuple):
    """A FetchResponse, its ``batches`` apart."""

    facts: log_pb2.FetchResponse
    """Everything but the batches."""
    batches: bytes | pa.Buffer
    """Whole record batches, one after the other; empty if there are none."""


def produce_request(facts: log_pb2.ProduceRequest, batch: bytes) -> bytes:
    """The serialized request: `facts`, whose ``batch`` is empty, and the batch."""
    return b"".join((facts.SerializeToString(), _PRODUCE_BATCH_TAG, _varint(len(batch)), batch))


def parse_fetch_answer(data: bytes) -> FetchAnswer:
    """The answer in `data`; its batches are a view of `data`.

    Raises `CorruptBatch` if the bytes are no protobuf message.
    """
    at, size = 0, len(data)
    try:
        if size < SMALL_ANSWER_BYTES:
            facts = log_pb2.FetchResponse.FromString(data)
            return FetchAnswer(facts, facts.batches)
        while at < size:
            start = at
            tag, at = _read_varint(data, at)
            if tag == _FETCH_BATCHES_TAG:
                length, at = _read_varint(data, at)
                end = at + length
                if end > size:
                    break
                rest = data[:start] + data[end:]
                return FetchAnswer(
                    log_pb2.FetchResponse.FromString(rest), pa.py_buffer(data).slice(at, length)
                )
            at = _skip(data, at, tag & 7)
        if at == size:
            return FetchAnswer(log_pb2.FetchResponse.FromString(data), b"")
    except (IndexError, DecodeError):
        pass
    raise CorruptBatch(f"an answer of {size} bytes is cut short or no protobuf message")


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise CorruptBatch("a number in an answer has more than 64 bits")


def _skip(data: bytes, at: int, wire_type: int) -> int:
    match wire_type:
        case 0:
            return _read_varint(data, at)[1]
        case 1:
            return at + 8
        case 2:
            length, at = _read_varint(data, at)
            return at + length
        case 5:
            return at + 4
    raise CorruptBatch(f"an answer has a field of wire type {wire_type}")

"""The answers JetStream clients wait for after a publish, as bytes.

It exists so that an unmodified ``js.publish()`` works against a Tidelog stream. The form and
the codes are JetStream's (nats-server's ``server/errors.json``, checked against nats-server
2.15); ``partition``, ``offset`` and ``epoch`` stand beside them for those who look. ``seq`` is
offset + 1, because JetStream counts from one. `recorder` says which failure happened;
``connection`` sends what is built here.
"""

import enum
import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from tidelog_broker.nats.headers import Finder

MESSAGE_ID = b"Nats-Msg-Id"
"""The publisher's name for the message: a second one within the window is a duplicate."""
EXPECTED_STREAM = b"Nats-Expected-Stream"
"""The stream the publisher believes it is writing to."""

message_id = Finder(MESSAGE_ID)
expected_stream = Finder(EXPECTED_STREAM)

UNSUPPORTED_HEADERS = (
    b"Nats-Expected-Last-Sequence",
    b"Nats-Expected-Last-Msg-Id",
    b"Nats-Expected-Last-Subject-Sequence",
    b"Nats-Expected-Last-Subject-Sequence-Subject",
    b"Nats-Rollup",
    b"Nats-TTL",
    b"Nats-Incr",
    b"Nats-Batch-Id",
    b"Nats-Batch-Sequence",
    b"Nats-Batch-Commit",
    b"Nats-Schedule",
    b"Nats-Schedule-Target",
    b"Nats-Schedule-TTL",
)
"""Headers that change what a publish means and that this version cannot honour. A message with one of
them is refused: its publisher asked for a condition, and must not be told it was met."""

_UNSUPPORTED = re.compile(rb"\r\n(" + b"|".join(map(re.escape, UNSUPPORTED_HEADERS)) + rb"):")


class Failure(enum.Enum):
    """Why a message was not recorded, by what its publisher can do about it."""

    TOO_LARGE = enum.auto()
    """The record is over the stream's limit. Final."""
    HEADERS_TOO_LARGE = enum.auto()
    """The header block is over 64 KiB. Final."""
    INVALID_MESSAGE = enum.auto()
    """The message cannot become a record, for instance because its headers are malformed. Final."""
    UNSUPPORTED_HEADER = enum.auto()
    """One of UNSUPPORTED_HEADERS is there. Final."""
    WRONG_STREAM = enum.auto()
    """Nats-Expected-Stream names another stream. Final."""
    OVERLOADED = enum.auto()
    """A limit on what is in flight was reached. Trying again later can succeed."""
    DISK_FULL = enum.auto()
    """There is no room. Trying again can succeed once there is."""
    STORAGE_FAILED = enum.auto()
    """Writing failed. Whether the record survives is not known."""
    STOPPING = enum.auto()
    """The broker is stopping or not ready yet. Trying again can succeed."""


class ApiError(NamedTuple):
    """One of JetStream's errors."""

    code: int
    """In the manner of HTTP: 400 for what the publisher must change, 429 and 503 for what may pass."""
    err_code: int
    """JetStream's own number, which clients branch on."""
    description: str


API_ERRORS: dict[Failure, ApiError] = {
    Failure.TOO_LARGE: ApiError(400, 10054, "message size exceeds maximum allowed"),
    Failure.HEADERS_TOO_LARGE: ApiError(400, 10097, "header size exceeds maximum allowed of 64k"),
    Failure.INVALID_MESSAGE: ApiError(400, 10003, "bad request"),
    Failure.UNSUPPORTED_HEADER: ApiError(400, 10003, "bad request"),
    Failure.WRONG_STREAM: ApiError(400, 10060, "expected stream does not match"),
    Failure.OVERLOADED: ApiError(429, 10167, "too many requests"),
    Failure.DISK_FULL: ApiError(503, 10023, "insufficient resources"),
    Failure.STORAGE_FAILED: ApiError(503, 10077, "storing the message failed"),
    Failure.STOPPING: ApiError(503, 10008, "JetStream system temporarily unavailable"),
}
"""A wrong expected sequence (10071) is deliberately not used for unsupported headers: clients answer it
by reading and trying again, for ever."""


def unsupported_header(block: bytes) -> bytes | None:
    """Return the first header of a raw block that this version cannot honour, or None."""
    found = _UNSUPPORTED.search(block)
    return found[1] if found else None


def publication(subject: bytes, payload: bytes) -> bytes:
    """Return the protocol bytes that publish this payload. The subject is not checked."""
    return b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload)


class Acknowledger:
    """Builds the answers of one partition in one leader epoch.

    Everything but the two numbers of a message is put together once, here.
    """

    __slots__ = ("_prefix", "_stream")

    def __init__(self, stream: str, partition: int, epoch: int) -> None:
        self._stream = stream
        name = json.dumps(stream).encode()
        self._prefix = b'{"stream":%b,"partition":%d,"epoch":%d,"offset":' % (name, partition, epoch)

    def __repr__(self) -> str:
        return f"<Acknowledger {self._stream}>"

    def accepted(self, offset: int) -> bytes:
        """Return the answer to a message that became the record at this offset."""
        return b'%b%d,"seq":%d}' % (self._prefix, offset, offset + 1)

    def duplicate(self, offset: int) -> bytes:
        """Return the answer to a message whose id was recorded before, at this offset."""
        return b'%b%d,"seq":%d,"duplicate":true}' % (self._prefix, offset, offset + 1)

    def refused(self, failure: Failure, detail: str = "") -> bytes:
        """Return the answer to a message that was not recorded; a detail follows JetStream's description."""
        error = API_ERRORS[failure]
        described = f"{error.description}: {detail}" if detail else error.description
        body = {
            "error": {"code": error.code, "err_code": error.err_code, "description": described},
            "stream": self._stream,
            "seq": 0,
        }
        return json.dumps(body, separators=(",", ":")).encode()

    def publications(self, replies: Sequence[bytes | None], offsets: Sequence[int]) -> list[bytes]:
        """Return the protocol bytes that answer messages which became the records at these offsets.

        A message without a reply subject gets none.
        """
        # One piece of formatting for a message: this is most of what answering costs. The length of
        # an answer follows from how many digits its two numbers have.
        fixed = len(self.accepted(0)) - 2
        pattern = b'PUB %%b %%d\r\n%b%%d,"seq":%%d}\r\n' % self._prefix.replace(b"%", b"%%")
        answers = []
        for reply, offset in zip(replies, offsets, strict=True):
            if reply:
                digits = len(str(offset)) + len(str(offset + 1))
                answers.append(pattern % (reply, fixed + digits, offset, offset + 1))
        return answers

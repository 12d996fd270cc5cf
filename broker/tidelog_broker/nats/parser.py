"""Turns the bytes a NATS server sends into messages and control signals, and does no I/O.

It exists because every recorded message passes here: client libraries that hand over one
message per callback stop at a few hundred thousand a second, decode subjects as UTF-8, and
fold repeated headers together. This parser works on whole chunks of bytes and hands over
lists. ``transport`` feeds it; ``headers`` reads the header blocks it cuts out but does not open.

The rules, as tests/nats/test_parser.py cites them:

- P1 What comes out does not depend on where the input was cut into chunks.
- P2 What was complete before the first bad byte is handed over; after it, nothing is.
- P3 At most one incomplete protocol element is kept, never longer than the limits say.
"""

import enum
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from tidelog_broker.nats.errors import ProtocolError

CONTROL_LINE_BYTES_MAX = 64 * 1024
"""Longest accepted line, without its CRLF. A server limits a client's lines to 4 KiB by default; INFO
lists every server of a cluster and may be longer."""

PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
"""Largest accepted message, headers and payload together: what a NATS server can at most be set to."""

_SIZES_REMEMBERED_MAX = 4096
"""Entries in the table that spares the conversion of sizes seen before."""

_SIZE_DIGITS_MAX = 10
_SID_DIGITS_MAX = 19

Message: TypeAlias = tuple[bytes, bytes | None, bytes | None, bytes]
"""(subject, reply, headers, payload). Reply is None when no answer is wanted; headers is the raw block or
None. A plain tuple and not a named one: making named tuples would cost a quarter of the throughput."""


@dataclass(frozen=True, slots=True)
class Info:
    """The server describes itself: first thing on a connection, and again whenever something changed."""

    fields: dict[str, Any]
    """The JSON object as sent."""


@dataclass(frozen=True, slots=True)
class ServerError:
    """A ``-ERR`` line. Whether it ends the connection is decided by ``transport``."""

    text: str
    """Without the quotes around it."""


class Signal(enum.Enum):
    """The control lines that carry nothing."""

    PING = "PING"
    PONG = "PONG"
    OK = "+OK"


Control: TypeAlias = Info | ServerError | Signal


class Parsed(NamedTuple):
    """What one chunk completed."""

    messages: dict[int, list[Message]]
    """Messages by subscription id, in the order of arrival within each."""
    control: list[Control]
    """Control lines in the order of arrival. Every message that came before one of them is in
    ``messages`` of this chunk or of an earlier one."""
    error: ProtocolError | None
    """Set once the input stopped making sense; the parser is of no further use then."""


class Parser:
    """An incremental parser for one connection."""

    __slots__ = ("_error", "_line_max", "_payload_max", "_pending", "_sizes", "_wanted")

    def __init__(
        self,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        control_line_bytes_max: int = CONTROL_LINE_BYTES_MAX,
    ) -> None:
        self._payload_max = payload_bytes_max
        self._line_max = control_line_bytes_max
        self._pending = bytearray()
        self._wanted = 0
        """Bytes `_pending` needs before parsing makes sense again; 0: until a line ends."""
        self._sizes: dict[bytes, int] = {}
        self._error: ProtocolError | None = None

    def __repr__(self) -> str:
        state = f"failed: {self._error.reason}" if self._error else f"pending={len(self._pending)}"
        return f"<Parser {state}>"

    @property
    def pending_bytes(self) -> int:
        """How much of an incomplete element is being kept."""
        return len(self._pending)

    def feed(self, data: bytes) -> Parsed:
        """Take the next bytes from the server and return what they complete."""
        if self._error is not None:
            return Parsed({}, [], self._error)
        pending = self._pending
        if pending:
            pending += data
            if self._wanted:
                if len(pending) < self._wanted:
                    return Parsed({}, [], None)
            elif b"\n" not in data and len(pending) <= self._line_max:
                return Parsed({}, [], None)
            data = bytes(pending)
            pending.clear()
        messages: dict[int, list[Message]] = {}
        control: list[Control] = []
        try:
            rest = self._parse(data, messages, control)
        except ProtocolError as error:
            self._error = error
            return Parsed(messages, control, error)
        if rest < len(data):
            pending += data[rest:] if rest else data
        return Parsed(messages, control, None)

    def _parse(self, data: bytes, messages: dict[int, list[Message]], control: list[Control]) -> int:
        """Parse all complete elements; return where the incomplete one begins."""
        # Names are bound to locals and checks are merged because this loop runs once per recorded
        # message and is most of what receiving one costs.
        find = data.find
        size_of = self._sizes.get
        appends: dict[bytes, Callable[[Message], None]] = {}
        line_max, length, start = self._line_max, len(data), 0
        self._wanted = 0
        while True:
            eol = find(b"\r\n", start)
            if eol < 0:
                if length - start > line_max + 1:
                    raise ProtocolError(f"line longer than {line_max} bytes", data[start:])
                return start
            if eol - start > line_max:
                raise ProtocolError(f"line longer than {line_max} bytes", data[start:])
            fields = data[start:eol].split(b" ")
            verb = fields[0]
            if verb == b"MSG":
                head = None
                if len(fields) == 4:
                    _, subject, sid, total = fields
                    reply = None
                elif len(fields) == 5 and fields[3]:
                    _, subject, sid, reply, total = fields
                else:
                    raise ProtocolError("MSG takes subject, sid, reply or none, and size", data[start:eol])
            elif verb == b"HMSG":
                if len(fields) == 5:
                    _, subject, sid, head, total = fields
                    reply = None
                elif len(fields) == 6 and fields[3]:
                    _, subject, sid, reply, head, total = fields
                else:
                    raise ProtocolError("HMSG takes subject, sid, reply or none, two sizes", data[start:eol])
            else:
                control.append(_control(data[start:eol]))
                start = eol + 2
                continue
            size = size_of(total)
            if size is None:
                size = self._size(total, data[start:eol])
            body = eol + 2
            end = body + size
            if data[end : end + 2] != b"\r\n":
                line = data[start:eol]
                self._check_head(sid, head, size, line)
                if end + 2 <= length:
                    raise ProtocolError("payload does not end where its size says", line)
                self._wanted = end + 2 - start
                return start
            if head is not None:
                payload = body + self._header_size(head, size, data[start:eol])
            append = appends.get(sid)
            if append is None:
                append = appends[sid] = messages.setdefault(_sid(sid, data[start:eol]), []).append
            if head is None:
                append((subject, reply, None, data[body:end]))
            else:
                append((subject, reply, data[body:payload], data[payload:end]))
            start = end + 2

    def _check_head(self, sid: bytes, head: bytes | None, size: int, line: bytes) -> None:
        """Refuse a bad line before its payload is waited for, in the order of a whole one (P1, P3)."""
        if head is not None:
            self._header_size(head, size, line)
        _sid(sid, line)

    def _header_size(self, raw: bytes, size: int, line: bytes) -> int:
        head = self._sizes.get(raw)
        if head is None:
            head = self._size(raw, line)
        if head > size:
            raise ProtocolError("headers larger than the whole message", line)
        return head

    def _size(self, raw: bytes, line: bytes) -> int:
        if not raw.isdigit() or len(raw) > _SIZE_DIGITS_MAX:
            raise ProtocolError("size is not a number", line)
        size = int(raw)
        if size > self._payload_max:
            raise ProtocolError(f"message of {size} bytes is over the limit of {self._payload_max}", line)
        if len(self._sizes) >= _SIZES_REMEMBERED_MAX:
            self._sizes.clear()
        self._sizes[raw] = size
        return size


def _sid(raw: bytes, line: bytes) -> int:
    if not raw.isdigit() or len(raw) > _SID_DIGITS_MAX:
        raise ProtocolError("subscription id is not a number", line)
    return int(raw)


def _control(line: bytes) -> Control:
    verb, _, rest = line.partition(b" ")
    match verb:
        case b"PING":
            return Signal.PING
        case b"PONG":
            return Signal.PONG
        case b"+OK":
            return Signal.OK
        case b"-ERR":
            return ServerError(rest.strip().strip(b"'").decode("utf-8", "backslashreplace"))
        case b"INFO":
            try:
                fields = json.loads(rest)
            except (ValueError, RecursionError):
                raise ProtocolError("INFO is not JSON", line) from None
            if not isinstance(fields, dict):
                raise ProtocolError("INFO is not a JSON object", line)
            return Info(fields)
        case _:
            raise ProtocolError("not a line of the NATS protocol", line)

"""NATS header blocks: to a list of fields and back, and one field found without reading the rest.

It exists because order and repeats of headers are part of a record and a dictionary would lose
both, and because the recording path needs ``Nats-Msg-Id`` of every message and nothing else.
``parser`` cuts the block out, ``jetstream`` names the headers that mean something.

What NATS does, and therefore what this module does (the behaviour of JetStream was observed on
nats-server 2.15, the form is that of the client protocol's documentation):

- H1 A block is ``NATS/1.0``, an optional status, CRLF, lines ``name:value`` CRLF, and a last CRLF.
- H2 Names are case-sensitive. Only the exact bytes between a CRLF and the colon are the name.
- H3 Of a repeated header, the first one counts where only one can.
- H4 Spaces and tabs between the colon and the value are not part of the value; those after it are.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from tidelog_broker.nats.errors import HeadersInvalid

HEADERS_BYTES_MAX = 65_535
"""Largest header block, as in JetStream ("header size exceeds maximum allowed of 64k"). Bytes."""

_VERSION = b"NATS/1.0"
_BLANKS = b" \t"
_BROKEN_LINE = re.compile(rb"[\r\n]")


class Status(NamedTuple):
    """The status in the first line of a block, for example 503 when nothing listens to a request."""

    code: int
    description: bytes
    """Empty when there is none."""


def parse(block: bytes) -> list[tuple[bytes, bytes]]:
    """Return the (name, value) pairs of a raw block in their order, repeats included.

    A status in the first line is passed over; ``status`` returns it. Bytes are not decoded.
    Raises HeadersInvalid when the block is not of the form H1 or larger than HEADERS_BYTES_MAX.
    """
    first, lines = _lines(block)
    _status(first)
    fields = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon:
            raise HeadersInvalid("header line without a colon", line)
        if not name or name[0] in _BLANKS:
            raise HeadersInvalid("header line without a name", line)
        if _BROKEN_LINE.search(line):
            raise HeadersInvalid("line break inside a header", line)
        fields.append((name, value.lstrip(_BLANKS)))
    return fields


def status(block: bytes) -> Status | None:
    """Return the status of a raw block, or None when its first line has none. Raises HeadersInvalid."""
    first, _ = _lines(block)
    return _status(first)


def render(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the raw block of these fields; ``parse`` gives them back, but for H4.

    Raises HeadersInvalid for a field that would read as something else: an empty name, a name
    with a colon or starting with a blank, a line break anywhere, too much of it all.
    """
    parts = [_VERSION]
    for name, value in fields:
        if not name or b":" in name or name[0] in _BLANKS:
            raise HeadersInvalid("not a header name", name)
        if _BROKEN_LINE.search(name) or _BROKEN_LINE.search(value):
            raise HeadersInvalid("line break inside a header", name + b": " + value)
        parts.append(b"%b: %b" % (name, value))
    block = b"\r\n".join(parts) + b"\r\n\r\n"
    if len(block) > HEADERS_BYTES_MAX:
        raise HeadersInvalid(f"headers of {len(block)} bytes, the limit is {HEADERS_BYTES_MAX}", block)
    return block


class Finder:
    """Finds the value of one header in raw blocks; made once per name.

    It does not judge the block: what is not of the form H1 is searched by the same rules.
    """

    __slots__ = ("_mark", "_name")

    def __init__(self, name: bytes) -> None:
        self._name = name
        self._mark = b"\r\n" + name + b":"

    def __repr__(self) -> str:
        return f"<Finder {self._name!r}>"

    def __call__(self, block: bytes) -> bytes | None:
        """Return the first value of the header (H3), or None when the block does not have it."""
        at = block.find(self._mark)
        if at < 0:
            return None
        at += len(self._mark)
        end = block.find(b"\r\n", at)
        return (block[at:end] if end >= 0 else block[at:]).lstrip(_BLANKS)


def _lines(block: bytes) -> tuple[bytes, list[bytes]]:
    if len(block) > HEADERS_BYTES_MAX:
        raise HeadersInvalid(f"headers of {len(block)} bytes, the limit is {HEADERS_BYTES_MAX}", block)
    if not block.startswith(_VERSION):
        raise HeadersInvalid("header block does not start with NATS/1.0", block)
    if not block.endswith(b"\r\n\r\n"):
        raise HeadersInvalid("header block does not end with an empty line", block[-16:])
    first, *lines = block[:-4].split(b"\r\n")
    return first, lines


def _status(first: bytes) -> Status | None:
    rest = first[len(_VERSION) :]
    if not rest:
        return None
    if rest[0] not in _BLANKS or _BROKEN_LINE.search(rest):
        raise HeadersInvalid("header block does not start with NATS/1.0", first)
    code, _, description = rest.strip(_BLANKS).partition(b" ")
    if not code:
        return None
    if not code.isdigit() or len(code) != 3:
        raise HeadersInvalid("status is not a number of three digits", first)
    return Status(int(code), description.strip(_BLANKS))

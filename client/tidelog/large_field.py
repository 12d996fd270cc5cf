"""One large bytes field of a protobuf message, written and found without protobuf's copies.

Protobuf copies a bytes field twice each way, which for batches of a megabyte costs more
than everything else that is done with them. A field's place in a message is free: the
large one is written behind the others and cut out of them here, and all others stay
protobuf's business. Used by both ends of Produce and Fetch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

SMALL_MESSAGE_BYTES: Final = 4096
"""Below this a message is better left to protobuf: the copies cost less than looking."""

FIELDS_BEFORE_MAX: Final = 64
"""A field that stands behind more others is not looked for: no message of ours has so many."""

_LENGTH_DELIMITED = 2
_NUMBER_BITS_MAX = 63


class Cut(NamedTuple):
    """Where the large field of a message lies."""

    rest: bytes
    """The message without it."""
    start: int
    end: int


class Field(NamedTuple):
    """Where one field of a message lies."""

    number: int
    begin: int
    """Of its tag."""
    start: int
    """Of what is in it: behind its tag, and behind its length if it has one."""
    end: int


def join(message: bytes, field: int, parts: Sequence[bytes | memoryview]) -> bytes:
    """The serialized `message`, which lacks the bytes field number `field`, with it."""
    return b"".join((head_of(message, field, sum(map(len, parts))), *parts))


def head_of(message: bytes, field: int, size: int) -> bytes:
    """What stands in front of a large field of `size` bytes: the rest of the message, tag and length."""
    return b"".join((message, _varint(field << 3 | _LENGTH_DELIMITED), _varint(size)))


def cut(data: bytes, field: int) -> Cut | None:
    """Where the bytes field number `field` of the message in `data` lies.

    None: it is not among the first fields, or the bytes are no message; protobuf knows what to say then.
    """
    tag_wanted = field << 3 | _LENGTH_DELIMITED
    at, size = 0, len(data)
    try:
        for _ in range(FIELDS_BEFORE_MAX):
            if at >= size:
                break
            start = at
            tag, at = _read_varint(data, at)
            if tag == tag_wanted:
                length, at = _read_varint(data, at)
                end = at + length
                return None if end > size else Cut(data[:start] + data[end:], at, end)
            at = _skip(data, at, tag & 7)
    except (IndexError, ValueError):
        pass
    return None


def fields(data: bytes, start: int, end: int) -> Iterator[Field]:
    """The fields of the message that lies in ``data[start:end]``. Raises ValueError if it is none."""
    at = start
    while at < end:
        begin = at
        try:
            tag, at = _read_varint(data, at)
            content = _read_varint(data, at)[1] if tag & 7 == _LENGTH_DELIMITED else at
            at = _skip(data, at, tag & 7)
        except IndexError:
            at = end + 1
        if at > end:
            raise ValueError("a field is cut short")
        yield Field(tag >> 3, begin, content, at)


def _varint(number: int) -> bytes:
    """Protobuf's variable-length form of a number that is not negative."""
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
        if shift > _NUMBER_BITS_MAX:
            raise ValueError("a number has more than 64 bits")


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
    raise ValueError(f"wire type {wire_type} is not in use")

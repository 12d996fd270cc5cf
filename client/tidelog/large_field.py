"""Writes and finds one large bytes field of a protobuf message without protobuf's copies.

Protobuf copies a bytes field twice in each direction. For batches of a megabyte this costs more than all
other work. Fields of a message may be in any order: the large field is written behind the others and cut
out of them here; protobuf does the rest. Both ends of Produce and Fetch use it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

SMALL_MESSAGE_BYTES: Final = 4096
"""Smaller messages are left to protobuf, because its copies cost less than a search."""

FIELDS_BEFORE_MAX: Final = 64
"""The search ends after this number of other fields; our messages have fewer."""

_LENGTH_DELIMITED = 2
_NUMBER_BITS_MAX = 63


class Cut(NamedTuple):
    """The place of the large field in a message."""

    rest: bytes
    """The message without the field."""
    start: int
    end: int


class Field(NamedTuple):
    """The place of one field in a message."""

    number: int
    begin: int
    """The begin of its tag."""
    start: int
    """The begin of its content: behind its tag, and behind its length if it has one."""
    end: int


def join(message: bytes, field: int, parts: Sequence[bytes | memoryview]) -> bytes:
    """The serialized `message` with the bytes field number `field`, which `message` must not have."""
    return b"".join((head_of(message, field, sum(map(len, parts))), *parts))


def head_of(message: bytes, field: int, size: int) -> bytes:
    """The bytes before a large field of `size` bytes: the other fields, its tag and its length."""
    return b"".join((message, _varint(field << 3 | _LENGTH_DELIMITED), _varint(size)))


def cut(data: bytes, field: int) -> Cut | None:
    """The place of the bytes field number `field` of the message in `data`.

    None: it is not among the first fields, or the bytes are not a message; then protobuf must parse them.
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
    """The fields of the message in ``data[start:end]``. Raises ValueError if it is not a message."""
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
    """Protobuf's variable-length encoding of a number that is not negative."""
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

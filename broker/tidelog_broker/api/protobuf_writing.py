"""Writes fields of protobuf messages as bytes, for messages that cost too much as objects (`plain_records`).

Numbers are written two of protobuf's seven-bit digits at a time, from tables: a timestamp has eight.
"""

from __future__ import annotations

from typing import Final

_U64_MAX = (1 << 64) - 1

_ONE: Final = tuple(bytes((digit,)) for digit in range(1 << 7))
"""A last digit."""

_TWO: Final = tuple(bytes((pair & 0x7F | 0x80, pair >> 7)) for pair in range(1 << 14))
"""Two digits, the second of which is the last."""

_TWO_OF_MORE: Final = tuple(bytes((pair & 0x7F | 0x80, pair >> 7 | 0x80)) for pair in range(1 << 14))


def varint(number: int) -> bytes:
    """Protobuf's variable-length form of a number, of a negative one as its 64-bit complement."""
    if 0 <= number < 1 << 7:
        return _ONE[number]
    number &= _U64_MAX
    out = b""
    while number >= 1 << 14:
        out += _TWO_OF_MORE[number & 0x3FFF]
        number >>= 14
    return out + (_ONE[number] if number < 1 << 7 else _TWO[number])


def number_tag(field: int) -> bytes:
    """What stands in front of the varint of an integer field (not of a zigzag or fixed one)."""
    return varint(field << 3)


def bytes_tag(field: int) -> bytes:
    """What stands in front of the length, as a varint, of bytes, text or a message."""
    return varint(field << 3 | 2)

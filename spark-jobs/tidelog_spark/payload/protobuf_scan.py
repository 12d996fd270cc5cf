"""Walks over the bytes of a protobuf message and counts what it would take in memory.

An empty message of many fields takes two bytes in a value and thousands in memory. The walk builds no object.
It checks only what it needs: the library refuses other values that are not protobuf.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tidelog_spark.payload.decoded import BadValue
from tidelog_spark.payload.limits import DECODED_BYTES_MAX, OBJECT_BYTES

Scan = Callable[[bytes], int]
"""The most bytes that a value takes in memory; raises `BadValue` if the walk cannot read it."""

_VARINT, _FIXED64, _BYTES, _GROUP, _END, _FIXED32 = range(6)
_FIXED: Final = {
    FieldDescriptor.TYPE_FIXED32: 4, FieldDescriptor.TYPE_SFIXED32: 4, FieldDescriptor.TYPE_FLOAT: 4,
    FieldDescriptor.TYPE_FIXED64: 8, FieldDescriptor.TYPE_SFIXED64: 8, FieldDescriptor.TYPE_DOUBLE: 8,
}  # fmt: skip
_VARINT_BYTES_MAX: Final = 10
_WALKED: Final = 64
"""A walk is worth its time only if the value may take more than this part of the bound."""


@dataclass(slots=True)
class _Shape:
    """What the walk must know of a message type."""

    cost: int
    """Of a message without content."""
    messages: dict[int, _Shape] = field(default_factory=dict)
    packed: dict[int, int] = field(default_factory=dict)
    """By field number: the fewest bytes of an item of a repeated number."""


_NOTHING: Final = _Shape(0)
"""A group that the message type does not have; its content is skipped."""


def scanner(descriptor: Descriptor) -> Scan:
    """The walk over values of a message type that does not contain itself."""
    shape = _shape(descriptor)
    dearest = _dearest(shape)

    def scan(value: bytes) -> int:
        # No byte makes more than one message or number, so most values need no walk.
        most = (len(value) + 1) * dearest
        return most if most <= DECODED_BYTES_MAX // _WALKED else _message(value, 0, len(value), shape)

    return scan


def _shape(descriptor: Descriptor) -> _Shape:
    messages, packed = {}, {}
    for one in descriptor.fields:
        if one.message_type is not None:
            messages[one.number] = _shape(one.message_type)
        elif one.is_repeated and one.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            packed[one.number] = _FIXED.get(one.type, 1)
    # A null message has a cell for each field of it.
    nulls = sum(inner.cost for inner in messages.values())
    return _Shape(OBJECT_BYTES * (1 + len(descriptor.fields)) + nulls, messages, packed)


def _dearest(shape: _Shape) -> int:
    return max([shape.cost, *map(_dearest, shape.messages.values())])


def _message(value: bytes, at: int, end: int, shape: _Shape) -> int:
    """The cost of the message between two places."""
    found = shape.cost
    outer: list[_Shape] = []
    while at < end:
        tag, at = _varint(value, at, end)
        number, wire = tag >> 3, tag & 7
        if wire == _BYTES:
            size, at = _varint(value, at, end)
            if size > end - at:
                raise _broken(at)
            if number in shape.messages:
                found += _message(value, at, at + size, shape.messages[number])
            elif number in shape.packed:
                found += OBJECT_BYTES * (1 + size // shape.packed[number])
            else:
                found += OBJECT_BYTES + size
            at += size
            continue
        # What is left counts as a number, known or not.
        found += OBJECT_BYTES
        if wire == _VARINT:
            _, at = _varint(value, at, end)
        elif wire in (_FIXED32, _FIXED64):
            at += 4 if wire == _FIXED32 else 8
        elif wire == _GROUP:
            outer.append(shape)
            shape = shape.messages.get(number, _NOTHING)
            found += shape.cost
        elif wire == _END and outer:
            shape = outer.pop()
        else:
            raise _broken(at)
    return found


def _varint(value: bytes, at: int, end: int) -> tuple[int, int]:
    found = 0
    for size in range(_VARINT_BYTES_MAX):
        if at + size >= end:
            break
        octet = value[at + size]
        found |= (octet & 127) << 7 * size
        if octet < 128:
            return found, at + size + 1
    raise _broken(at)


def _broken(at: int) -> BadValue:
    return BadValue(f"the value is not a message of this type: it is broken at byte {at}")

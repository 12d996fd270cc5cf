"""Walks over the bytes of an Avro datum: is it exactly what the specification allows, and what would it cost?

fastavro is lenient: it counts the branch -1 of a union from the end, and lets a number of more than 64 bits
wrap. The walk is strict, and it builds no object. It reads the plain schema of `avro_schema`, in which
each type takes at least one byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tidelog_spark.payload.decoded import BadValue
from tidelog_spark.payload.limits import CELL_BYTES, OBJECT_BYTES

Scan = Callable[[bytes], int]
"""The most bytes that a datum takes in memory; raises `BadValue` if it is not a datum of the schema."""

_Step = Callable[[bytes, int], tuple[int, int]]
"""From a place in the value to the place behind the datum there, and the cost of the datum in bytes."""

_SIZES: Final = {"float": 4, "double": 8}
_LONG_BYTES_MAX: Final = 10


def scanner(plain: Any) -> Scan:
    """The walk over data of a plain schema."""
    step, _ = _compiled(plain)

    def scan(value: bytes) -> int:
        try:
            end, cost = step(value, 0)
        except IndexError:
            end, cost = len(value) + 1, 0
        if end > len(value):
            raise BadValue(f"the value of {len(value)} bytes ends before the Avro datum does")
        if end < len(value):
            raise BadValue(f"the value has {len(value) - end} bytes after the Avro datum")
        return cost

    return scan


def _compiled(plain: Any) -> tuple[_Step, int]:
    """The step of a plain schema, and the cells that a null takes in its columns."""
    if isinstance(plain, list):
        return _union(plain)
    kind = plain if isinstance(plain, str) else plain["type"]
    match kind:
        case "record":
            return _record([_compiled(field["type"]) for field in plain["fields"]])
        case "array":
            return _blocks(_compiled(plain["items"])[0]), 1
        case "map":
            inner, _ = _compiled(plain["values"])

            def entry(value: bytes, at: int) -> tuple[int, int]:
                end, cost = _counted(value, at)
                end, more = inner(value, end)
                return end, cost + more

            return _blocks(entry), 1
        case "string" | "bytes":
            return _counted, 1
        case "int" | "long":
            return _number, 1
        case "boolean":
            return _boolean, 1
    return _fixed(_SIZES[kind] if kind in _SIZES else plain["size"]), 1


def _record(parts: list[tuple[_Step, int]]) -> tuple[_Step, int]:
    steps = [step for step, _ in parts]

    def record(value: bytes, at: int) -> tuple[int, int]:
        cost = OBJECT_BYTES
        for step in steps:
            at, more = step(value, at)
            cost += more
        return at, cost

    return record, 1 + sum(cells for _, cells in parts)


def _union(plain: list[Any]) -> tuple[_Step, int]:
    null = plain.index("null") if "null" in plain else None
    step, cells = _compiled(next(branch for branch in plain if branch != "null"))
    null_cost = cells * CELL_BYTES

    def union(value: bytes, at: int) -> tuple[int, int]:
        branch, at = _long(value, at)
        if not 0 <= branch < len(plain):
            raise BadValue(f"the value has branch {branch} of a union with {len(plain)} branches")
        return (at, null_cost) if branch == null else step(value, at)

    return union, cells


def _blocks(item: _Step) -> _Step:
    def blocks(value: bytes, at: int) -> tuple[int, int]:
        cost = OBJECT_BYTES
        while True:
            count, at = _long(value, at)
            if not count:
                return at, cost
            end = None
            if count < 0:
                size, at = _long(value, at)
                count, end = -count, at + size
            for _ in range(count):
                # An item takes at least one byte, so a count that is too large ends at the end of the value.
                at, more = item(value, at)
                cost += more
            if end is not None and at != end:
                raise BadValue(f"a block of an array or map ends at byte {at}, but its size says {end}")

    return blocks


def _long(value: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    octet = value[at]
    if octet < 128:
        return (octet >> 1) ^ -(octet & 1), at + 1
    found = octet & 127
    for size in range(1, _LONG_BYTES_MAX):
        octet = value[at + size]
        found |= (octet & 127) << 7 * size
        if octet < 128:
            if found >> 64:
                break
            return (found >> 1) ^ -(found & 1), at + size + 1
    raise BadValue(f"the number at byte {at} has more than 64 bits")


def _number(value: bytes, at: int) -> tuple[int, int]:
    return _long(value, at)[1], OBJECT_BYTES


def _boolean(value: bytes, at: int) -> tuple[int, int]:
    if value[at] > 1:
        raise BadValue(f"byte {at} is {value[at]}; a boolean must be 0 or 1")
    return at + 1, OBJECT_BYTES


def _counted(value: bytes, at: int) -> tuple[int, int]:
    size, at = _long(value, at)
    if size < 0:
        raise BadValue(f"the text or bytes at byte {at} have the length {size}")
    if at + size > len(value):
        raise IndexError
    return at + size, OBJECT_BYTES + size


def _fixed(size: int) -> _Step:
    def fixed(value: bytes, at: int) -> tuple[int, int]:
        if at + size > len(value):
            raise IndexError
        return at + size, OBJECT_BYTES + size

    return fixed

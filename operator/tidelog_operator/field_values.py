"""Parses field values of manifests: durations, sizes, and names out of a fixed set."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, TypeVar

from kubernetes.utils.quantity import parse_quantity

_PART = re.compile(r"([0-9]+)(ms|s|m|h|d)")
_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Choice = TypeVar("Choice", bound=StrEnum)


def duration_ms(text: str) -> int:
    """Returns ``1h30m`` in milliseconds; raises `ValueError`."""
    parts = _PART.findall(text)
    if "".join(f"{number}{unit}" for number, unit in parts) != text or not parts:
        raise ValueError(f"{text!r} is not a duration. Write it like 7d, 36h or 1h30m")
    return sum(int(number) * _MS[unit] for number, unit in parts)


def size_bytes(quantity: str | int) -> int:
    """Returns ``1.5Gi`` in bytes, as Kubernetes reads it; raises `ValueError`."""
    return int(parse_quantity(quantity))


def choice(kind: type[Choice], field: str, value: str) -> Choice:
    """Returns the member of `kind` with this value; raises `ValueError`."""
    known = {one.value: one for one in kind}
    if value not in known:
        raise ValueError(f"{field} is {value!r}, but must be one of {', '.join(known)}")
    return known[value]

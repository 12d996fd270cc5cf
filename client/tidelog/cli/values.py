"""Durations, sizes, times, positions and counts, as people write and read them.

Pure: text to values and back. A wrong text ends the command with a sentence that says what would be right.
Times without a zone are in the local time zone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tidelog.cli.errors import Exit, fail
from tidelog.model import OFFSET_MAX

UNLIMITED = "unlimited"

CHARACTERS_MAX = 60
"""A longer text is not taken for a number; Python would refuse to convert it."""

_FIRST_MOMENT = datetime(1, 1, 2, tzinfo=UTC)
"""Near the first time that Python knows. Earlier times are moved to it."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d|w)")
_DURATION_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", re.IGNORECASE)
_SIZE_BYTES = {
    "": 1,
    **{f"{letter}": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("kmgt", 1)},
}


def duration_us(text: str) -> int | None:
    """Microseconds in ``1h30m``, ``7d``, ``500ms``; None: the text is not a duration."""
    if len(text) > CHARACTERS_MAX:
        return None
    total, at = 0.0, 0
    for part in _DURATION.finditer(text):
        if part.start() != at:
            return None
        total += float(part[1]) * _DURATION_US[part[2]]
        at = part.end()
    return round(total) if at and at == len(text) else None


def duration_ms(text: str, option: str) -> int:
    """Milliseconds for an option; ends the command if the text is not a duration."""
    found = duration_us(text.strip())
    if found is None:
        fail(f"{option}: {text!r} is not a duration; write it like 7d, 12h, 1h30m or 500ms", Exit.USAGE)
    return found // 1000


def size_bytes(text: str, option: str) -> int:
    """Bytes for an option: ``512MiB``, ``1GB``, ``4096``; ends the command if the text is not a size."""
    found = _SIZE.fullmatch(text.strip()) if len(text) <= CHARACTERS_MAX else None
    unit = found[2].lower() if found is not None else ""
    if found is None or unit not in _SIZE_BYTES:
        fail(f"{option}: {text!r} is not a size; write it like 512MiB, 1GB or 4096", Exit.USAGE)
    count: int = round(float(found[1]) * _SIZE_BYTES[unit])
    return count


def printable(data: bytes) -> str:
    """Bytes for a message, in quotes; those that are not UTF-8 as ``\\xe9``."""
    return f"'{data.decode(errors='backslashreplace')}'"


def show_bytes(count: float) -> str:
    """``3.2 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def show_duration_ms(count: int) -> str:
    """``7d``, ``1h30m``, ``250ms``."""
    left, parts = count, []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        whole, left = divmod(left, size)
        if whole:
            parts.append(f"{whole}{unit}")
    return "".join(parts) or "0ms"


def show_time_us(count: int) -> str:
    """ISO 8601 in UTC with microseconds."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=count)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Point:
    """A position in a log as the user gives it. Exactly one of the three fields is set."""

    name: str | None = None
    """``earliest`` or ``latest``."""
    offset: int | None = None
    time: datetime | None = None


def point(text: str, option: str) -> Point:
    """``earliest``, ``latest``, an offset, a time, or a duration ago; ends the command at any other text."""
    text = text.strip()
    if text in ("earliest", "latest"):
        return Point(name=text)
    if text.isdecimal() and len(text) <= CHARACTERS_MAX and int(text) <= OFFSET_MAX:
        return Point(offset=int(text))
    if text.isdecimal():
        fail(f"{option}: the offset {text:.40} is too large; the largest is {OFFSET_MAX}", Exit.USAGE)
    ago = duration_us(text.removeprefix("-"))
    try:
        if ago is not None:
            return Point(time=max(datetime.now(UTC) - timedelta(microseconds=ago), _FIRST_MOMENT))
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.astimezone()
    except OverflowError:
        fail(f"{option}: {text!r} is before the earliest time that a record can have", Exit.USAGE)
    except ValueError:
        fail(
            f"{option}: {text!r} is not a position; write earliest, latest, an offset (1200), "
            "a time (2026-01-31T12:00:00Z) or how long ago (15m)",
            Exit.USAGE,
        )
    return Point(time=max(moment, _FIRST_MOMENT))

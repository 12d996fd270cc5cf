"""Durations, sizes, moments and positions, as people write them on a command line.

Pure: text to values, with one sentence about what would be right. Naive times are in the
local time zone, as a shell's user means them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tidelog.cli.errors import Exit, fail
from tidelog.model import OFFSET_MAX

UNLIMITED = "unlimited"

CHARACTERS_MAX = 60
"""A longer text is no number of anything; Python would refuse to convert it."""

_FIRST_MOMENT = datetime(1, 1, 2, tzinfo=UTC)
"""Near the first that Python has; earlier ones are moved there."""

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
    """Microseconds in ``1h30m``, ``7d``, ``500ms``; None: it is no duration."""
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
    """Milliseconds for an option; ends the command if it is none."""
    found = duration_us(text.strip())
    if found is None:
        fail(f"{option}: {text!r} is no duration; write it like 7d, 12h, 1h30m or 500ms", Exit.USAGE)
    return found // 1000


def size_bytes(text: str, option: str) -> int:
    """Bytes for an option: ``512MiB``, ``1GB``, ``4096``; ends the command if it is none."""
    found = _SIZE.fullmatch(text.strip()) if len(text) <= CHARACTERS_MAX else None
    unit = found[2].lower() if found is not None else ""
    if found is None or unit not in _SIZE_BYTES:
        fail(f"{option}: {text!r} is no size; write it like 512MiB, 1GB or 4096", Exit.USAGE)
    count: int = round(float(found[1]) * _SIZE_BYTES[unit])
    return count


def count_of(number: int, what: str, several: str = "") -> str:
    """``1 record``, ``2 records``; `several` is the plural where it is not `what` with an s."""
    return f"{number} {what if number == 1 else several or what + 's'}"


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
    """A place in a log as the user gives it: exactly one of the three."""

    name: str | None = None
    """earliest or latest."""
    offset: int | None = None
    time: datetime | None = None


def point(text: str, option: str) -> Point:
    """``earliest``, ``latest``, an offset, a moment, or a duration ago; ends the command otherwise."""
    text = text.strip()
    if text in ("earliest", "latest"):
        return Point(name=text)
    if text.isdecimal() and len(text) <= CHARACTERS_MAX and int(text) <= OFFSET_MAX:
        return Point(offset=int(text))
    if text.isdecimal():
        fail(f"{option}: offsets end at {OFFSET_MAX}, {text:.40} lies beyond", Exit.USAGE)
    ago = duration_us(text.removeprefix("-"))
    try:
        if ago is not None:
            return Point(time=max(datetime.now(UTC) - timedelta(microseconds=ago), _FIRST_MOMENT))
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.astimezone()
    except OverflowError:
        fail(f"{option}: {text!r} lies before all records", Exit.USAGE)
    except ValueError:
        fail(
            f"{option}: {text!r} is no position; write earliest, latest, an offset (1200), "
            "a time (2026-01-31T12:00:00Z) or how long ago (15m)",
            Exit.USAGE,
        )
    return Point(time=max(moment, _FIRST_MOMENT))

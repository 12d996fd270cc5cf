"""Moments as records carry them: microseconds since the Unix epoch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tidelog.errors import InvalidRequest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def as_us(moment: datetime) -> int:
    """Exact; a naive datetime is refused, because it names no moment."""
    if moment.tzinfo is None:
        raise InvalidRequest(f"the time {moment.isoformat()} has no time zone; give it one")
    return (moment - _EPOCH) // _MICROSECOND

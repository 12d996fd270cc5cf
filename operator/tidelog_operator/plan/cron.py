"""Schedules in the form of cron, and when they are due. Pure.

Kubernetes' CronJob controller begins the runs. This module only predicts it, for the status, and it refuses
schedules that never come. The rule is that of the controller: a schedule is due in every minute whose time of
day and date, in its zone, match all fields. So a time of day that a clock change leaves out does not come on
that day, and one that the change repeats comes twice.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

DAYS_AHEAD_MAX: Final = 9 * 366
"""How far a schedule is searched: 29 February may be eight years away."""

_ITEM = re.compile(r"(?P<first>[*?]|\w+)(?:-(?P<last>\w+))?(?:/(?P<step>[0-9]+))?")


class ScheduleError(ValueError):
    """A schedule that cannot be read; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    lowest: int
    highest: int
    names: tuple[str, ...] = ()
    """Names of values, the first one for the lowest value."""

    def read(self, text: str) -> frozenset[int]:
        return frozenset(itertools.chain.from_iterable(self._item(one) for one in text.split(",")))

    def _item(self, text: str) -> range:
        found = _ITEM.fullmatch(text)
        if found is None:
            raise ScheduleError(f"{text!r} is not a value for the {self.name} of a schedule")
        first, last, step = found["first"], found["last"], int(found["step"] or 1)
        if first in "*?":
            if last is not None:
                raise ScheduleError(f"{text!r} has a range that begins with {first!r}")
            low, high = self.lowest, self.highest
        else:
            low = self._number(first)
            high = self._number(last) if last is not None else self.highest if found["step"] else low
        if low > high:
            raise ScheduleError(f"{text!r} is a range whose end comes before its beginning")
        if step < 1:
            raise ScheduleError(f"{text!r} has a step of 0")
        return range(low, high + 1, step)

    def _number(self, text: str) -> int:
        if text.upper() in self.names:
            return self.lowest + self.names.index(text.upper())
        if not text.isdecimal() or not self.lowest <= int(text) <= self.highest:
            raise ScheduleError(
                f"{text!r} is not between {self.lowest} and {self.highest}, the values for the {self.name}"
            )
        return int(text)


_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, MONTHS),
    _Field("day of the week", 0, 6, DAYS),
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The values of each field."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    either_day: bool
    """Whether a matching day of the month or of the week is enough: neither field is a star."""

    def after(self, time: datetime, zone: tzinfo) -> datetime | None:
        """Returns the first due time after `time`, in UTC; None: there is none in the coming years."""
        first = time.astimezone(zone).date()
        for ahead in range(DAYS_AHEAD_MAX):
            # The day before the last one that Python knows is far enough.
            day = first + timedelta(days=ahead)
            if self._matches(day):
                found = next((one for one in self._times(day, zone) if one > time), None)
                if found is not None:
                    return found
        return None

    def _matches(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return in_month or in_week if self.either_day else in_month and in_week

    def _times(self, day: date, zone: tzinfo) -> Iterator[datetime]:
        """Yields the due times of a day, ordered."""
        for hour in sorted(self.hours):
            found = set()
            for minute, fold in itertools.product(self.minutes, (0, 1)):
                wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone, fold=fold)
                there = wall.astimezone(UTC)
                # A time that a clock change leaves out comes back as another one.
                if there.astimezone(zone).replace(tzinfo=None) == wall.replace(tzinfo=None):
                    found.add(there)
            yield from sorted(found)


def read_schedule(text: str) -> Schedule:
    """Parses a schedule. Raises `ScheduleError`."""
    fields = MACROS.get(text, text).split(" ")
    if len(fields) != len(_FIELDS):
        raise ScheduleError(f"{text!r} has {len(fields)} fields instead of five")
    minutes, hours, days, months, weekdays = (
        one.read(field) for one, field in zip(_FIELDS, fields, strict=True)
    )
    return Schedule(
        minutes, hours, days, months, weekdays, either_day=not (_has_star(fields[2]) or _has_star(fields[4]))
    )


def _has_star(field: str) -> bool:
    """Whether a day field restricts nothing by itself; `*/2` does."""
    return any(item.removesuffix("/1") in ("*", "?") for item in field.split(","))


def read_zone(name: str) -> tzinfo:
    """Returns the time zone; empty: UTC. Raises `ScheduleError`."""
    if name in ("", "UTC", "Etc/UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        raise ScheduleError(
            f"{name!r} is not a time zone that the operator knows. Use a name of the IANA time zone "
            "database, for example Europe/Berlin"
        ) from error

"""Schedules, and when they are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_operator.plan.cron import Schedule, ScheduleError, read_schedule, read_zone

BERLIN = "Europe/Berlin"
LORD_HOWE = "Australia/Lord_Howe"
"""Its clocks change by half an hour."""


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "due"),
    [
        ("15 3 * * *", "", "2026-01-01T03:15", "2026-01-02T03:15"),
        ("@hourly", "", "2026-01-01T03:15", "2026-01-01T04:00"),
        ("0 12 * * MON-fri", "", "2026-01-02T12:00", "2026-01-05T12:00"),
        ("0 0 13 * FRI", "", "2026-01-03T00:00", "2026-01-09T00:00"),
        ("0 0 */2 * FRI", "", "2026-01-02T00:00", "2026-01-03T00:00"),
        ("0 0 29 2 *", "", "2026-01-01T00:00", "2028-02-29T00:00"),
        ("30 2 * * *", BERLIN, "2026-03-28T02:00", "2026-03-30T00:30"),
        ("30 2 * * *", BERLIN, "2026-10-25T00:30", "2026-10-25T01:30"),
        ("0 9 * * *", BERLIN, "2026-07-01T00:00", "2026-07-01T07:00"),
    ],
)
def test_a_schedule_is_due_next_at(schedule: str, zone: str, after: str, due: str) -> None:
    found = read_schedule(schedule).after(datetime.fromisoformat(after).replace(tzinfo=UTC), read_zone(zone))

    assert found == datetime.fromisoformat(due).replace(tzinfo=UTC)


@given(
    st.sampled_from(["*/7 1-3 * * *", "30 1,2 * * *", "0 2 1-10 4,10 SUN", "45 1 * * 0"]),
    st.sampled_from([BERLIN, LORD_HOWE, "Etc/UTC"]),
    st.sampled_from(["2026-03-28", "2026-04-04", "2026-10-03", "2026-10-24"]),
    st.integers(0, 2 * 1440),
)
def test_the_next_time_is_the_first_minute_that_matches(
    schedule: str, zone: str, day: str, minute: int
) -> None:
    start = datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(minutes=minute)
    read = read_schedule(schedule)

    found = read.after(start, read_zone(zone))

    assert found is not None
    minutes = (start + timedelta(minutes=one) for one in range(1, 1440 * 3))
    slow = next((one for one in minutes if _matches(read, one.astimezone(read_zone(zone)))), None)
    assert found == slow or (slow is None and found > start + timedelta(days=3) - timedelta(minutes=2))


def _matches(one: Schedule, wall: datetime) -> bool:
    days = wall.day in one.days, wall.isoweekday() % 7 in one.weekdays
    day = any(days) if one.either_day else all(days)
    return wall.minute in one.minutes and wall.hour in one.hours and wall.month in one.months and day


@pytest.mark.parametrize(
    ("schedule", "sentence"),
    [
        ("* * * *", "has 4 fields instead of five"),
        ("60 * * * *", "'60' is not between 0 and 59, the values for the minute"),
        ("* * * * MOON", "'MOON' is not between 0 and 6, the values for the day of the week"),
        ("5-1 * * * *", "a range whose end comes before its beginning"),
        ("*/0 * * * *", "has a step of 0"),
        ("*-3 * * * *", "a range that begins with '*'"),
        ("1,,2 * * * *", "'' is not a value for the minute"),
    ],
)
def test_a_wrong_schedule_is_refused_with_a_sentence(schedule: str, sentence: str) -> None:
    with pytest.raises(ScheduleError) as error:
        read_schedule(schedule)

    assert sentence in str(error.value)


def test_a_date_that_does_not_exist_never_comes() -> None:
    assert read_schedule("0 0 30 2 *").after(datetime(2026, 1, 1, tzinfo=UTC), UTC) is None

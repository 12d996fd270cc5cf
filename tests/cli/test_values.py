"""Values as people write them, and the other small pure parts."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.demo import chart as _chart
from tidelog.cli.errors import CommandError, Exit, exit_code
from tidelog.cli.records.record_json import from_json, to_json
from tidelog.cli.values import (
    duration_ms,
    duration_us,
    point,
    show_bytes,
    show_duration_ms,
    show_time_us,
    size_bytes,
)
from tidelog.errors import (
    InvalidRequest,
    NotLeader,
    OffsetOutOfRange,
    StorageFailed,
    StreamNotFound,
    Unavailable,
    VersionConflict,
)
from tidelog.model import Record


@pytest.mark.parametrize(
    ("text", "ms"),
    [("7d", 604_800_000), ("1h30m", 5_400_000), ("500ms", 500), ("1.5 s", 1500), ("2w", 1_209_600_000)],
)
def test_durations_are_read(text: str, ms: int) -> None:
    assert duration_ms(text, "--x") == ms


@pytest.mark.parametrize("text", ["", "7", "d", "7x", "7d!", "-7d", "1h 30"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="--x") as caught:
        duration_ms(text, "--x")
    assert caught.value.code == Exit.USAGE


@given(st.integers(min_value=0, max_value=10**12))
def test_a_shown_duration_reads_back_as_itself(ms: int) -> None:
    assert duration_us(show_duration_ms(ms)) == ms * 1000


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4096", 4096),
        ("1KiB", 1024),
        ("1kB", 1000),
        ("1.5MiB", 1_572_864),
        ("2g", 2_000_000_000),
        ("10 GiB", 10 << 30),
    ],
)
def test_sizes_are_read(text: str, count: int) -> None:
    assert size_bytes(text, "--x") == count


@pytest.mark.parametrize("text", ["", "big", "1XB", "-1", "1ib"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="--x"):
        size_bytes(text, "--x")


def test_sizes_and_times_are_shown_for_people() -> None:
    assert [show_bytes(count) for count in (0, 1023, 1536, 5 << 30, 3 << 40)] == [
        "0 B", "1023 B", "1.5 KiB", "5.0 GiB", "3.0 TiB",
    ]  # fmt: skip
    assert show_time_us(1) == "1970-01-01T00:00:00.000001Z"


def test_points_are_names_offsets_moments_or_durations_ago() -> None:
    assert point("earliest", "--from").name == "earliest"
    assert point(" 1200 ", "--from").offset == 1200
    assert point("2026-01-31T12:00:00Z", "--from").time == datetime(2026, 1, 31, 12, tzinfo=UTC)
    ago = point("15m", "--from").time
    assert ago is not None
    assert timedelta(minutes=14) < datetime.now(UTC) - ago < timedelta(minutes=16)


def test_a_moment_without_a_zone_is_local_time() -> None:
    found = point("2026-01-31 12:00", "--from").time

    assert found == datetime(2026, 1, 31, 12).astimezone()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StreamNotFound("x"), Exit.NOT_FOUND),
        (VersionConflict("x"), Exit.CONFLICT),
        (OffsetOutOfRange("x"), Exit.OUT_OF_RANGE),
        (InvalidRequest("x"), Exit.USAGE),
        (Unavailable("x"), Exit.UNAVAILABLE),
        (NotLeader("x"), Exit.UNAVAILABLE),
        (StorageFailed("x"), Exit.FAILED),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exit_codes_follow_what_the_caller_can_do(error: Exception, code: Exit) -> None:
    assert exit_code(error) == code  # type: ignore[arg-type]


anything = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)


@given(
    value=anything,
    key=anything,
    subject=st.none() | text,
    headers=st.lists(st.tuples(text, anything), max_size=3).map(tuple),
    timestamp_us=st.integers(min_value=0, max_value=10**16),
)
def test_a_record_comes_back_from_its_json(
    value: bytes | None,
    key: bytes | None,
    subject: str | None,
    headers: tuple[tuple[str, bytes | None], ...],
    timestamp_us: int,
) -> None:
    record = Record(7, key, value, headers, subject, timestamp_us, 1, 2, "orders", 0)

    found = from_json(json.dumps(to_json(record)))

    assert (found.value, found.key, found.headers, found.subject) == (value, key, headers, subject)
    assert found.timestamp == record.timestamp


@pytest.mark.parametrize(
    "line",
    ["", "[]", "7", '{"valu": 1}', '{"value_base64": "%%"}', '{"value": "x", "headers": 7}',
     '{"value": "x", "timestamp": "noon"}',
     '{"value": "x", "timestamp": "2026-01-31T12:00:00"}', '{"value": "x", "subject": 5}'],
)  # fmt: skip
def test_json_that_is_no_record_is_refused_with_what_would_be_right(line: str) -> None:
    with pytest.raises(InvalidRequest):
        from_json(line)


def test_a_json_value_that_is_no_text_is_kept_as_json() -> None:
    assert from_json('{"value": {"a": [1, 2]}}').value == b'{"a":[1,2]}'


def test_a_chart_grows_from_the_bottom_and_never_over_its_top() -> None:
    assert _chart.columns([0, 50, 100, 1000], top=100, height=2, unit="%") == ["100% ┤  ██", "  0% ┤ ███"]
    assert _chart.columns([6.25], top=100, height=2, width=2) == ["100 ┤  ", "  0 ┤▁▁"]

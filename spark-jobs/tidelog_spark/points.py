"""Where a read starts and ends in each partition, as the options say it: edges, offsets, timestamps. Pure.

Three options name a start, and three an end. As in Spark's Kafka connector a timestamp for all partitions
comes before timestamps by partition, and these before offsets. `positions` finds the offsets in the logs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from tidelog.errors import InvalidRequest
from tidelog_spark.option_values import Given

TIMESTAMP_MS_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""

SPARK_KEY_OFFSETS: Final = {-2: "earliest", -1: "latest"}
"""The numbers that the Kafka connector uses inside its JSON."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Edge(StrEnum):
    """An end of a log."""

    EARLIEST = "earliest"
    """The log start offset."""
    LATEST = "latest"
    """The high watermark at the moment of the request."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The first record with this timestamp or a later one."""

    timestamp_ms: int
    """Milliseconds since the Unix epoch, as in Spark's Kafka connector."""

    def __str__(self) -> str:
        return str(self.timestamp_ms)

    @property
    def datetime(self) -> datetime:
        return _EPOCH + timedelta(milliseconds=self.timestamp_ms)


Point = Edge | Moment | int
"""The start or the end of a read in one partition. An int is an offset."""

Points = Edge | Moment | Mapping[str, Mapping[int, Point]]
"""One point for all partitions, or stream → partition → point."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The start or the end of a read, and the option that says it."""

    option: str
    points: Points

    @property
    def is_start(self) -> bool:
        return self.option.startswith("starting")

    def at(self, stream: str, partition: int) -> Point:
        """The point in one partition; `check_streams` and `positions` check that there is one."""
        return self.points[stream][partition] if isinstance(self.points, Mapping) else self.points


def starting(values: Given) -> Bound | None:
    """The start; None: not given."""
    return _first("starting", values)


def ending(values: Given) -> Bound | None:
    """The end; None: not given."""
    return _first("ending", values)


def _first(prefix: str, values: Given) -> Bound | None:
    """The bound of the first option in the order of precedence. The others are checked, too."""
    found = [
        _timestamp(f"{prefix}Timestamp", values),
        _by_partition(f"{prefix}OffsetsByTimestamp", values),
        _offsets(f"{prefix}Offsets", values),
    ]
    return next((bound for bound in found if bound is not None), None)


def _timestamp(name: str, values: Given) -> Bound | None:
    right = "milliseconds since 1970, before the year 10000"
    number = values.number(name, at_least=0, at_most=TIMESTAMP_MS_MAX, right=right)
    return None if number is None else Bound(name, Moment(number))


def _by_partition(name: str, values: Given) -> Bound | None:
    if name not in values:
        return None
    example = '{"orders": {"0": 1767225600000, "1": 1767225600000}}'
    right = f"JSON like '{example}' (milliseconds since 1970)"

    def moment(value: object) -> Point | None:
        return Moment(value) if type(value) is int and 0 <= value <= TIMESTAMP_MS_MAX else None

    return Bound(name, _points(name, values, right, moment))


def _offsets(name: str, values: Given) -> Bound | None:
    text = values.text(name)
    if text is None:
        return None
    if text.lower() in (Edge.EARLIEST, Edge.LATEST):
        return Bound(name, Edge(text.lower()))
    example = '{"orders": {"0": 120, "1": "earliest"}}'
    right = f"'earliest', 'latest' or JSON like '{example}'"
    return Bound(name, _points(name, values, right, _offset))


def _offset(value: object) -> Point | None:
    if value in (Edge.EARLIEST, Edge.LATEST):
        return Edge(str(value))
    if type(value) is not int:
        return None
    if value in SPARK_KEY_OFFSETS:
        return Edge(SPARK_KEY_OFFSETS[value])
    return value if 0 <= value < 1 << 63 else None


def _points(
    name: str, values: Given, right: str, point: Callable[[object], Point | None]
) -> dict[str, dict[int, Point]]:
    """stream → partition → point, from JSON."""
    wrong = values.wrong(name, right)
    found = values.json(name, right)
    if not isinstance(found, dict) or not found:
        raise wrong
    points: dict[str, dict[int, Point]] = {}
    for stream, partitions in found.items():
        if not isinstance(partitions, dict):
            raise wrong
        points[stream] = {}
        for number, value in partitions.items():
            place = point(value)
            if place is None or not (number.isascii() and number.isdigit()):
                raise wrong
            points[stream][int(number)] = place
    return points


def check_streams(bound: Bound | None, streams: tuple[str, ...]) -> None:
    """Raises `InvalidRequest` unless a bound by partition names exactly the streams that are read."""
    if bound is None or not isinstance(bound.points, Mapping):
        return
    for stream in bound.points:
        if stream not in streams:
            raise InvalidRequest(
                f"{bound.option} names the stream {stream!r}, which is not read; remove it or subscribe to it"
            )
    for stream in streams:
        if stream not in bound.points:
            raise InvalidRequest(
                f"{bound.option} lacks the stream {stream!r}; name every stream that is read"
            )


def check_order(start: Bound | None, end: Bound | None) -> None:
    """Raises `InvalidRequest` if a timestamp for all partitions is later than that of the end."""
    if start is None or end is None:
        return
    begin, last = start.points, end.points
    if isinstance(begin, Moment) and isinstance(last, Moment) and begin.timestamp_ms > last.timestamp_ms:
        raise InvalidRequest(
            f"{start.option} is {begin}, which is later than {end.option} ({last}); "
            "the end must not lie before the start"
        )

"""The options of `spark.read.format("tidelog")`, checked before any request to a broker.

The names and values are those of Spark's Kafka connector where the two do the same thing. An unknown
option, or one of the other kind of read, is refused: a misspelt `startingOffset` must not read a stream
from the wrong offset. Pure: it turns strings into values. `positions` turns starts and ends into offsets;
`source` passes the options on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from tidelog.errors import InvalidRequest
from tidelog_spark import payload

SERVERS: Final = "tidelog.bootstrap.servers"
RECORDS_PER_PARTITION_DEFAULT: Final = 1_000_000
"""Less than a second of work for one core, but so much that the start of a task does not matter."""

SPARK_KEY_OFFSETS: Final = {-2: "earliest", -1: "latest"}
"""The numbers that the Kafka connector uses inside its JSON."""


class Edge(StrEnum):
    """An end of a log."""

    EARLIEST = "earliest"
    """The log start offset."""
    LATEST = "latest"
    """The high watermark at the moment of the request."""


Point = Edge | int
"""The start or the end of a read in one partition."""

Points = Edge | Mapping[str, Mapping[int, Point]]
"""One edge for all partitions, or stream → partition → point."""


@dataclass(frozen=True, slots=True)
class Options:
    """The checked options of one read. Picklable: planner and tasks get it from the driver."""

    servers: tuple[str, ...]
    """host:port of one or more brokers; the cluster names the others."""
    streams: tuple[str, ...]
    """In the given order, each once."""
    assigned: Mapping[str, tuple[int, ...]] | None
    """With `assign`: stream → its partitions to read. None: all of them."""
    starting: Points | None
    """None: not given. Then a batch starts at the earliest record, a streaming query at the latest."""
    ending: Points | None
    """None: not given, which means the latest."""
    offsets_per_trigger_max: int | None
    """The most offsets of all partitions together in one micro-batch; None: no limit."""
    partitions_min: int | None
    """The fewest Spark partitions, if there are so many records; None: not given."""
    records_per_partition_max: int
    """A longer range of a stream's partition is read by several tasks."""
    fail_on_data_loss: bool
    headers: bool
    """Whether the schema has a column for headers."""
    payload: payload.Payload | None = None
    """How values are decoded; None: they stay bytes."""


def parse(given: Mapping[str, str]) -> Options:
    """The options in `given`, whose names are compared without case.

    Raises `InvalidRequest` with one sentence about the first value that is not allowed.
    """
    known = {name.lower(): name for name in _NAMES}
    values: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() not in known:
            raise InvalidRequest(f"option {name!r} is not known; the options are {', '.join(_NAMES)}")
        values[known[name.lower()]] = value
    streams, assigned = _chosen(values)
    options = Options(
        servers=_servers(values),
        streams=streams,
        assigned=assigned,
        starting=_points("startingOffsets", values),
        ending=_points("endingOffsets", values),
        offsets_per_trigger_max=_positive("maxOffsetsPerTrigger", values),
        partitions_min=_positive("minPartitions", values),
        records_per_partition_max=_positive("maxRecordsPerPartition", values)
        or RECORDS_PER_PARTITION_DEFAULT,
        fail_on_data_loss=_boolean("failOnDataLoss", values, default=True),
        headers=_boolean("includeHeaders", values, default=False),
        payload=payload.parse_payload(values),
    )
    for name, points in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        _check_streams(name, points, streams)
    return options


def check_batch(options: Options) -> Options:
    """The options; raises `InvalidRequest` if a batch read cannot have them."""
    if options.offsets_per_trigger_max is not None:
        raise InvalidRequest(
            "maxOffsetsPerTrigger is for spark.readStream; use endingOffsets to bound a batch"
        )
    if options.starting is Edge.LATEST:
        raise InvalidRequest(
            "startingOffsets is 'latest', so the batch would be empty; use 'earliest' or offsets"
        )
    if options.ending is Edge.EARLIEST:
        raise InvalidRequest(
            "endingOffsets is 'earliest', so the batch would be empty; use 'latest' or offsets"
        )
    return options


def check_stream(options: Options) -> Options:
    """The options; raises `InvalidRequest` if a streaming read cannot have them."""
    if options.ending is not None:
        raise InvalidRequest(
            "endingOffsets is for spark.read; a streaming query ends with Trigger.AvailableNow or stop()"
        )
    return options


_NAMES: Final = (
    SERVERS,
    "subscribe",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    *payload.NAMES,
)


def _servers(values: Mapping[str, str]) -> tuple[str, ...]:
    servers = tuple(part.strip() for part in values.get(SERVERS, "").split(",") if part.strip())
    if not servers:
        raise InvalidRequest(
            f"option {SERVERS} is missing; give the address of a broker, for example localhost:9210"
        )
    return servers


def _chosen(values: Mapping[str, str]) -> tuple[tuple[str, ...], Mapping[str, tuple[int, ...]] | None]:
    if ("subscribe" in values) == ("assign" in values):
        both = "both subscribe and assign are given" if "assign" in values else "no stream is named"
        raise InvalidRequest(
            f"{both}; give subscribe (as in 'orders,payments') or assign (as in '{{\"orders\": [0, 1]}}')"
        )
    if "subscribe" in values:
        streams = tuple(
            dict.fromkeys(part.strip() for part in values["subscribe"].split(",") if part.strip())
        )
        if not streams:
            raise InvalidRequest(
                "subscribe names no stream; give one or more names, for example 'orders,payments'"
            )
        return streams, None
    text = values["assign"]
    wrong = InvalidRequest(f"assign is {text[:200]!r}; it must look like '{{\"orders\": [0, 1]}}'")
    found = _json(text, wrong)
    if not isinstance(found, dict) or not found:
        raise wrong
    assigned: dict[str, tuple[int, ...]] = {}
    for stream, partitions in found.items():
        if not isinstance(partitions, list) or not partitions:
            raise wrong
        if not all(type(number) is int and number >= 0 for number in partitions):
            raise wrong
        assigned[stream] = tuple(sorted(set(partitions)))
    return tuple(assigned), assigned


def _points(name: str, values: Mapping[str, str]) -> Points | None:
    text = values.get(name)
    if text is None:
        return None
    stripped = text.strip()
    if stripped.lower() in (Edge.EARLIEST, Edge.LATEST):
        return Edge(stripped.lower())
    example = '{"orders": {"0": 120, "1": "earliest"}}'
    wrong = InvalidRequest(
        f"{name} is {text[:200]!r}; it must be 'earliest', 'latest' or JSON like '{example}'"
    )
    found = _json(stripped, wrong)
    if not isinstance(found, dict) or not found:
        raise wrong
    points: dict[str, dict[int, Point]] = {}
    for stream, partitions in found.items():
        if not isinstance(partitions, dict):
            raise wrong
        points[stream] = {
            _partition(number, wrong): _point(value, wrong) for number, value in partitions.items()
        }
    return points


def _partition(text: str, wrong: InvalidRequest) -> int:
    if not (text.isascii() and text.isdigit()):
        raise wrong
    return int(text)


def _point(value: object, wrong: InvalidRequest) -> Point:
    if value in (Edge.EARLIEST, Edge.LATEST):
        return Edge(str(value))
    if type(value) is int:
        if value in SPARK_KEY_OFFSETS:
            return Edge(SPARK_KEY_OFFSETS[value])
        if 0 <= value < 1 << 63:
            return value
    raise wrong


def _check_streams(name: str, points: Points | None, streams: tuple[str, ...]) -> None:
    if points is None or isinstance(points, Edge):
        return
    for stream in points:
        if stream not in streams:
            raise InvalidRequest(
                f"{name} names the stream {stream!r}, which is not read; remove it or subscribe to it"
            )
    for stream in streams:
        if stream not in points:
            raise InvalidRequest(f"{name} lacks the stream {stream!r}; name every stream that is read")


def _json(text: str, wrong: InvalidRequest) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_no_repeats(wrong))
    except (ValueError, RecursionError):
        raise wrong from None


def _no_repeats(wrong: InvalidRequest) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise wrong
        return found

    return build


def _positive(name: str, values: Mapping[str, str]) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit()) or not 0 < int(stripped[:20]) < 1 << 62:
        raise InvalidRequest(f"{name} is {text[:200]!r}; it must be a whole number of at least 1")
    return int(stripped)


def _boolean(name: str, values: Mapping[str, str], *, default: bool) -> bool:
    text = values.get(name)
    if text is None:
        return default
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise InvalidRequest(f"{name} is {text[:200]!r}; it must be 'true' or 'false'")
    return lowered == "true"

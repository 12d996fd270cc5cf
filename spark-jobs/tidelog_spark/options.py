"""The options of `spark.read.format("tidelog")`, checked before any request to a broker.

The names and values are those of Spark's Kafka connector where the two do the same thing. An unknown
option, or one of the other kind of read, is refused: a misspelt `startingOffset` must not read a stream
from the wrong offset. Pure: it turns strings into values (`option_values`, `points`, `pruning`,
`payload`). `positions` turns
starts and ends into offsets; `source` passes the options on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.errors import InvalidRequest
from tidelog_spark.option_values import Given
from tidelog_spark.payload import NAMES as PAYLOAD_NAMES
from tidelog_spark.payload import Payload, parse_payload
from tidelog_spark.points import Bound, Edge, check_order, check_streams, ending, starting
from tidelog_spark.pruning import Pruning, pruning
from tidelog_spark.refused_options import refusal
from tidelog_spark.servers import NAMES as SERVER_NAMES
from tidelog_spark.servers import Servers, servers_in

RECORDS_PER_PARTITION_DEFAULT: Final = 1_000_000
"""Less than a second of work for one core, but so much that the start of a task does not matter."""

TRIGGER_DELAY_S_DEFAULT: Final = 900.0
FETCH_RETRIES_DEFAULT: Final = 3
FETCH_RETRY_INTERVAL_MS_DEFAULT: Final = 10
FETCH_TIMEOUT_MS_DEFAULT: Final = 60_000

NAMES: Final = (
    *SERVER_NAMES,
    "subscribe",
    "subscribePattern",
    "assign",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "columns",
    "subjectFilter",
    "key",
    "keys",
    *PAYLOAD_NAMES,
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "fetchTimeoutMs",
)

_STREAMING_ONLY: Final = {
    "maxOffsetsPerTrigger": "use endingOffsets to bound a batch",
    "minOffsetsPerTrigger": "a batch reads the records that exist; remove it",
    "maxTriggerDelay": "a batch does not wait; remove it",
    "maxBytesPerTrigger": "use endingOffsets to bound a batch",
}
_BATCH_ONLY: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The streams and partitions of a read: names, or a pattern."""

    streams: tuple[str, ...]
    """In the given order, each once; empty with a pattern."""
    pattern: str | None = None
    """A regular expression (RE2) for whole names of streams."""
    assigned: Mapping[str, tuple[int, ...]] | None = None
    """With `assign`: stream → its partitions to read. None: all of them."""

    def __str__(self) -> str:
        return ",".join(self.streams) if self.pattern is None else self.pattern


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """The size of one micro-batch. None: no limit."""

    offsets_max: int | None = None
    bytes_max: int | None = None
    """Bytes of batches as they are stored."""
    offsets_min: int | None = None
    """A micro-batch waits for so many unread offsets …"""
    delay_s_max: float = TRIGGER_DELAY_S_DEFAULT
    """… but not longer than this since the micro-batch before it."""

    @property
    def any(self) -> bool:
        return (self.offsets_max, self.bytes_max, self.offsets_min) != (None, None, None)


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """How the ranges are cut for tasks."""

    partitions_min: int | None = None
    """The fewest Spark partitions, if there are so many records."""
    records_max: int = RECORDS_PER_PARTITION_DEFAULT
    """A longer range of a stream's partition is read by several tasks."""
    bytes_max: int | None = None
    """The same in bytes of batches as they are stored."""


@dataclass(frozen=True, slots=True)
class Retries:
    """What happens when brokers do not answer."""

    times: int = FETCH_RETRIES_DEFAULT
    """How often a request of the planner for offsets is repeated, after the client's own repetitions."""
    interval_s: float = FETCH_RETRY_INTERVAL_MS_DEFAULT / 1000
    fetch_timeout_s: float = FETCH_TIMEOUT_MS_DEFAULT / 1000
    """How long a task waits for records while no broker answers."""


@dataclass(frozen=True, slots=True)
class Options:
    """The checked options of one read. Picklable: planner and tasks get it from the driver."""

    servers: Servers
    chosen: Chosen
    starting: Bound | None = None
    """None: not given. Then a batch starts at the earliest record, a streaming query at the latest."""
    ending: Bound | None = None
    """None: not given, which means the latest."""
    latest_if_no_record: bool = False
    """Where no record has the starting timestamp: start at the end, instead of an error."""
    trigger: TriggerLimits = TriggerLimits()
    task: TaskLimits = TaskLimits()
    retries: Retries = Retries()
    fail_on_data_loss: bool = True
    headers: bool = False
    """Whether the schema has a column for headers."""
    pruning: Pruning = field(default_factory=Pruning)
    payload: Payload | None = None
    """How values are decoded; None: they stay bytes."""


def parse_batch(given: Mapping[str, str]) -> Options:
    """The options of a batch read; raises `InvalidRequest` with one sentence about the first wrong value."""
    values = Given(given, NAMES, refusal)
    for name, instead in _STREAMING_ONLY.items():
        if name in values:
            raise InvalidRequest(f"{name} is for spark.readStream; {instead}")
    options = _parse(values)
    _check_not(options.starting, Edge.LATEST, "use 'earliest', offsets or a timestamp")
    _check_not(options.ending, Edge.EARLIEST, "use 'latest', offsets or a timestamp")
    check_order(options.starting, options.ending)
    return options


def parse_stream(given: Mapping[str, str]) -> Options:
    """The options of a streaming read; raises `InvalidRequest` as `parse_batch` does."""
    values = Given(given, NAMES, refusal)
    for name in _BATCH_ONLY:
        if name in values:
            raise InvalidRequest(
                f"{name} is for spark.read; a streaming query ends with Trigger.AvailableNow or stop()"
            )
    return _parse(values)


def parse(given: Mapping[str, str]) -> Options:
    """The options of a read whose kind is not known yet."""
    return _parse(Given(given, NAMES, refusal))


def _parse(values: Given) -> Options:
    chosen = _chosen(values)
    bounds: dict[str, Any] = {"starting": starting(values), "ending": ending(values)}
    for bound in bounds.values():
        if chosen.pattern is None:
            check_streams(bound, chosen.streams)
    headers = values.boolean("includeHeaders", default=False)
    payload = parse_payload(values)
    strategy = values.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), default="error")
    return Options(
        servers=servers_in(values),
        chosen=chosen,
        **bounds,
        latest_if_no_record=strategy == "latest",
        trigger=_trigger(values),
        task=TaskLimits(
            values.number("minPartitions"),
            values.number("maxRecordsPerPartition") or RECORDS_PER_PARTITION_DEFAULT,
            values.number("maxBytesPerPartition"),
        ),
        retries=_retries(values),
        fail_on_data_loss=values.boolean("failOnDataLoss", default=True),
        headers=headers,
        pruning=pruning(values, headers=headers, bad_records=payload is not None and payload.has_column),
        payload=payload,
    )


def _trigger(values: Given) -> TriggerLimits:
    most, fewest = values.number("maxOffsetsPerTrigger"), values.number("minOffsetsPerTrigger")
    delay_s = values.seconds("maxTriggerDelay")
    if fewest is not None and most is not None and fewest > most:
        raise InvalidRequest(
            f"minOffsetsPerTrigger is {fewest}, which is more than maxOffsetsPerTrigger ({most}); "
            "no micro-batch can have both"
        )
    if fewest is None and delay_s is not None:
        raise InvalidRequest(
            "maxTriggerDelay has an effect only with minOffsetsPerTrigger; give both, or remove it"
        )
    return TriggerLimits(
        most,
        values.number("maxBytesPerTrigger"),
        fewest,
        TRIGGER_DELAY_S_DEFAULT if delay_s is None else delay_s,
    )


def _retries(values: Given) -> Retries:
    times = values.number("fetchOffset.numRetries", at_least=0)
    interval_ms = values.number("fetchOffset.retryIntervalMs", at_least=0)
    timeout_ms = values.number("fetchTimeoutMs")
    return Retries(
        FETCH_RETRIES_DEFAULT if times is None else times,
        (FETCH_RETRY_INTERVAL_MS_DEFAULT if interval_ms is None else interval_ms) / 1000,
        (timeout_ms or FETCH_TIMEOUT_MS_DEFAULT) / 1000,
    )


def _check_not(bound: Bound | None, edge: Edge, instead: str) -> None:
    if bound is not None and bound.points is edge:
        raise InvalidRequest(f"{bound.option} is {edge.value!r}, so the batch would be empty; {instead}")


def _chosen(values: Given) -> Chosen:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in values]
    if len(ways) != 1:
        found = f"{' and '.join(ways)} are given together" if ways else "no stream is named"
        raise InvalidRequest(
            f"{found}; give subscribe (as in 'orders,payments'), subscribePattern (as in 'orders[.].*') "
            "or assign (as in '{\"orders\": [0, 1]}')"
        )
    if ways == ["assign"]:
        return _assigned(values)
    if ways == ["subscribePattern"]:
        pattern = values.text("subscribePattern")
        if not pattern:
            raise values.wrong("subscribePattern", "a regular expression, for example 'orders[.].*'")
        return Chosen((), pattern)
    streams = values.names("subscribe")
    if not streams:
        raise InvalidRequest(
            "subscribe names no stream; give one or more names, for example 'orders,payments'"
        )
    return Chosen(streams)


def _assigned(values: Given) -> Chosen:
    right = "JSON like '{\"orders\": [0, 1]}'"
    found = values.json("assign", right)
    wrong = values.wrong("assign", right)
    if not isinstance(found, dict) or not found:
        raise wrong
    assigned: dict[str, tuple[int, ...]] = {}
    for stream, partitions in found.items():
        if not isinstance(partitions, list) or not partitions:
            raise wrong
        if not all(type(number) is int and number >= 0 for number in partitions):
            raise wrong
        assigned[stream] = tuple(sorted(set(partitions)))
    return Chosen(tuple(assigned), assigned=assigned)

"""A stream's configuration: the settings in a request, the settings of a stream, and their bounds.

`StreamSettings` holds the settings in a request (None: not given), `StreamConfig` those of a stream
(every field has a value). The rules for both are here, so that a client refuses early what a broker
would refuse. `names` has the rules for names and subjects.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import SupportsIndex

from tidelog.errors import InvalidRequest
from tidelog.model.names import validate_subject_pattern
from tidelog.records.limits import BATCH_BYTES_HARD_MAX, SEGMENT_BYTES_HARD_MAX

PARTITIONS_MAX = 10_000
"""Partitions of one stream."""

REPLICATION_FACTOR_DEFAULT = 3
"""In a cluster with fewer brokers: the number of brokers."""

REPLICATION_FACTOR_MAX = 15

SECOND_MS = 1000
DAY_MS = 24 * 60 * 60 * SECOND_MS
DURATION_MS_MAX = 100 * 366 * DAY_MS


def _check_type(name: str, value: object, right: type) -> None:
    """Raises `InvalidRequest` unless `value` is None or of the right type; a bool is no int."""
    if value is None:
        return
    fits = isinstance(value, SupportsIndex) if right is int else isinstance(value, right)
    if not fits or isinstance(value, bool):
        article = "an" if right is int else "a"
        raise InvalidRequest(
            f"{name} is {value!r} ({type(value).__name__}); it must be {article} {right.__name__}", field=name
        )


class Durability(StrEnum):
    """The promise of an acknowledgement."""

    FSYNC = "fsync"
    """The record is on disk."""
    PAGE_CACHE = "page-cache"
    """The record is in the operating system's page cache: it survives the process, not the machine."""


class NatsAck(StrEnum):
    """Whether a NATS message with a reply subject is answered."""

    ALWAYS = "always"
    NEVER = "never"
    """For a subject with request/reply traffic between applications: Tidelog must not answer it."""


@dataclass(frozen=True, slots=True)
class Retention:
    """When records are deleted. Each bound is per partition; None: no bound."""

    age_ms: int | None = None
    """Since the append time of the last batch of a segment; segments are deleted as a whole."""
    bytes: int | None = None
    """Bytes on disk."""
    messages: int | None = None

    def __post_init__(self) -> None:
        for name in ("age_ms", "bytes", "messages"):
            _check_type(f"retention.{name}", getattr(self, name), int)


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """The settings of a stream, each with a value.

    The defaults are those that a user of Kafka or JetStream expects; a default that could surprise says
    why. A stream keeps the values of its creation when a later version changes a default.
    """

    subject: str = ""
    """The NATS subject pattern to record; empty: none."""
    partitions: int = 1
    replication_factor: int = REPLICATION_FACTOR_DEFAULT
    min_insync_replicas: int = 2
    """The replication factor caps it: a stream with one copy needs one replica in sync."""
    durability: Durability = Durability.FSYNC
    retention: Retention = Retention(age_ms=7 * DAY_MS)
    """A week, as in Kafka: a disk that fills up stops every stream on it."""
    segment_bytes: int = 1 << 30
    """A segment is closed before it grows larger than this. Bytes."""
    segment_age_ms: int = 7 * DAY_MS
    """A segment is closed when its first batch is this old."""
    batch_bytes_max: int = 1 << 20
    """The largest record batch, header included. Bytes."""
    timestamp_ahead_ms_max: int = 60 * 60 * SECOND_MS
    """How far in the future the timestamp of a record may be. An hour tolerates wrong clocks, and
    refuses seconds that are sent as milliseconds before they break searches by time."""
    nats_ack: NatsAck = NatsAck.ALWAYS
    dedupe_window_ms: int = 120 * SECOND_MS
    """How long a partition remembers message ids (two minutes, as in JetStream); 0: not at all."""
    dedupe_count_max: int = 100_000
    """The most message ids that a partition remembers; 0: none."""

    @property
    def min_insync_effective(self) -> int:
        """min(configured, replication factor): the minimum that rule R3 uses."""
        return min(self.min_insync_replicas, self.replication_factor)


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The settings in a request to create or alter a stream; None: not given.

    A new stream gets the default for a setting that is not given; an existing stream keeps its value. A
    given `retention` replaces the old one as a whole; `subject=""` removes the subject.
    """

    subject: str | None = None
    partitions: int | None = None
    replication_factor: int | None = None
    min_insync_replicas: int | None = None
    durability: Durability | None = None
    retention: Retention | None = None
    segment_bytes: int | None = None
    segment_age_ms: int | None = None
    batch_bytes_max: int | None = None
    timestamp_ahead_ms_max: int | None = None
    nats_ack: NatsAck | None = None
    dedupe_window_ms: int | None = None
    dedupe_count_max: int | None = None

    def __post_init__(self) -> None:
        _check_type("subject", self.subject, str)
        _check_type("retention", self.retention, Retention)
        for name, *_ in _BOUNDS:
            _check_type(name, getattr(self, name), int)

    def given(self) -> dict[str, object]:
        """The given settings, by name."""
        pairs = ((name, getattr(self, name)) for name in _SETTING_NAMES)
        return {name: value for name, value in pairs if value is not None}

    def on(self, config: StreamConfig) -> StreamConfig:
        """`config` with the given settings instead of its own, checked; raises `InvalidRequest`."""
        changed = replace(config, **self.given())  # type: ignore[arg-type]
        validate_config(changed)
        if (
            self.replication_factor is not None
            and self.min_insync_replicas is not None
            and self.min_insync_replicas > self.replication_factor
        ):
            raise InvalidRequest(
                f"min_insync_replicas is {self.min_insync_replicas}, more than replication_factor "
                f"({self.replication_factor}); no write could be acknowledged by so many replicas",
                field="min_insync_replicas",
            )
        return changed

    def for_new_stream(self, brokers: int) -> StreamConfig:
        """The configuration of a new stream with these settings, in a cluster of `brokers` brokers."""
        copies = max(1, min(REPLICATION_FACTOR_DEFAULT, brokers))
        return self.on(StreamConfig(replication_factor=copies))

    def differing(self, config: StreamConfig) -> dict[str, tuple[object, object]]:
        """The given settings with another value in `config`: name → (value in `config`, given value)."""
        return {
            name: (getattr(config, name), value)
            for name, value in self.given().items()
            if getattr(config, name) != value
        }


_SETTING_NAMES = tuple(item.name for item in fields(StreamSettings))
assert tuple(item.name for item in fields(StreamConfig)) == _SETTING_NAMES

_BOUNDS: tuple[tuple[str, int, int, str], ...] = (
    ("partitions", 1, PARTITIONS_MAX, ""),
    ("replication_factor", 1, REPLICATION_FACTOR_MAX, ""),
    ("min_insync_replicas", 1, 15, ""),
    ("segment_bytes", 4096, SEGMENT_BYTES_HARD_MAX, " bytes"),
    ("segment_age_ms", SECOND_MS, DURATION_MS_MAX, " ms"),
    ("batch_bytes_max", 3072, BATCH_BYTES_HARD_MAX, " bytes"),
    ("timestamp_ahead_ms_max", 0, DURATION_MS_MAX, " ms"),
    ("dedupe_window_ms", 0, 7 * DAY_MS, " ms"),
    ("dedupe_count_max", 0, 10_000_000, ""),
)
"""Field, smallest, largest, unit."""

_RETENTION_BOUNDS: tuple[tuple[str, int, int, str], ...] = (
    ("age_ms", 1, DURATION_MS_MAX, " ms"),
    ("bytes", 1, 1 << 62, " bytes"),
    ("messages", 1, 1 << 62, ""),
)


def validate_config(config: StreamConfig) -> None:
    """Raises `InvalidRequest` with one sentence about the first field that is not allowed."""
    if config.subject:
        validate_subject_pattern(config.subject)
    for name, low, high, unit in _BOUNDS:
        _check_bounds(name, getattr(config, name), low, high, unit)
    for name, low, high, unit in _RETENTION_BOUNDS:
        value = getattr(config.retention, name)
        if value is not None:
            _check_bounds(f"retention.{name}", value, low, high, unit)
    if config.batch_bytes_max > config.segment_bytes:
        raise InvalidRequest(
            f"batch_bytes_max is {config.batch_bytes_max}, more than segment_bytes ({config.segment_bytes}); "
            "a batch never spans segments",
            field="batch_bytes_max",
        )


def _check_bounds(name: str, value: int, low: int, high: int, unit: str) -> None:
    if not low <= value <= high:
        raise InvalidRequest(f"{name} is {value}; it must lie in {low}–{high}{unit}", field=name)

"""The nouns that client, CLI, Spark and broker share, as values: no I/O, no wire format.

`StreamSettings` is what somebody asks for (absent: not said), `StreamConfig` what a
stream has (every field filled); the rules for both stand here, so that a client can
refuse early what a broker would refuse anyway. `wire` turns these values into protobuf
messages and back; `placement` decides where replicas go.

Identifiers (stream, cluster, incarnation, directory) are 16 bytes in RFC 9562 order;
`id_text` and `id_bytes` convert to and from the usual form with hyphens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from tidelog.errors import InvalidRequest
from tidelog.records.limits import BATCH_BYTES_HARD_MAX, SEGMENT_BYTES_HARD_MAX

STREAM_NAME_MAX = 200
INTERNAL_PREFIX = "__"
"""Names that start so belong to the brokers."""

SUBJECT_BYTES_MAX = 1024
"""A longer NATS subject pattern is refused."""

RESERVED_SUBJECTS = ("$", "_INBOX.")
"""Subjects that begin so are recorded by name only, never by a wildcard (N6)."""

PARTITIONS_MAX = 10_000
"""Of one stream."""

REPLICATION_FACTOR_DEFAULT = 3
"""Or as many brokers as there are, if they are fewer."""

LABELS_MAX = 64
LABEL_BYTES_MAX = 512
"""Of a label's name and value together."""

SECOND_MS = 1000
DAY_MS = 24 * 60 * 60 * SECOND_MS
DURATION_MS_MAX = 100 * 366 * DAY_MS

_STREAM_NAME = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,199}")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Durability(StrEnum):
    """What an acknowledgement promises."""

    FSYNC = "fsync"
    """The record is on disk."""
    PAGE_CACHE = "page-cache"
    """The record is in the operating system's page cache: it survives the process, not the machine."""


class NatsAck(StrEnum):
    """Whether a NATS message with a reply subject is answered."""

    ALWAYS = "always"
    NEVER = "never"
    """The subject carries request/reply traffic of others, who must not be answered by us."""


@dataclass(frozen=True, slots=True)
class Retention:
    """When records may be forgotten; each bound is per partition, None: no bound."""

    age_ms: int | None = None
    """Since the append time of a batch."""
    bytes: int | None = None
    """On disk."""
    messages: int | None = None


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """Settings of a stream, every one of them filled in.

    The defaults are what somebody from Kafka or JetStream would expect; those that
    could surprise say why. A stream keeps the values it was created with when a later
    version changes a default.
    """

    subject: str = ""
    """The NATS subject pattern to record; empty: none."""
    partitions: int = 1
    replication_factor: int = REPLICATION_FACTOR_DEFAULT
    min_insync_replicas: int = 2
    """Capped by the replication factor: one copy of a stream on one broker needs one."""
    durability: Durability = Durability.FSYNC
    retention: Retention = Retention(age_ms=7 * DAY_MS)
    """A week, as in Kafka: a disk that fills up stops every stream on it."""
    segment_bytes: int = 1 << 30
    """A segment is closed when it would grow past this. Bytes."""
    segment_age_ms: int = 7 * DAY_MS
    """A segment is closed when its first batch is this old."""
    batch_bytes_max: int = 1 << 20
    """The largest record batch, header included. Bytes."""
    timestamp_ahead_ms_max: int = 60 * 60 * SECOND_MS
    """How far in the future a record's timestamp may lie. An hour forgives clocks, and
    catches seconds sent as milliseconds before they poison a search by time."""
    nats_ack: NatsAck = NatsAck.ALWAYS
    dedupe_window_ms: int = 120 * SECOND_MS
    """How long message ids are remembered (two minutes, as in JetStream); 0: not at all."""
    dedupe_count_max: int = 100_000
    """How many message ids a partition remembers at most; 0: none."""

    @property
    def min_insync_effective(self) -> int:
        """min(configured, replication factor), the number that rule R3 counts against."""
        return min(self.min_insync_replicas, self.replication_factor)


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What a request says about a stream's configuration; None: it says nothing.

    Creating takes defaults for what is not said, altering leaves it as it is. A given
    `retention` replaces the old one as a whole; `subject=""` takes the subject away.
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

    def given(self) -> dict[str, object]:
        """The fields that are said, by name."""
        pairs = ((name, getattr(self, name)) for name in _SETTING_NAMES)
        return {name: value for name, value in pairs if value is not None}

    def on(self, config: StreamConfig) -> StreamConfig:
        """`config` with the given fields replaced, checked; raises `InvalidRequest`."""
        changed = replace(config, **self.given())  # type: ignore[arg-type]
        if (
            self.replication_factor is not None
            and self.min_insync_replicas is not None
            and self.min_insync_replicas > self.replication_factor
        ):
            raise InvalidRequest(
                f"min_insync_replicas is {self.min_insync_replicas}, more than the replication factor of "
                f"{self.replication_factor}; no write could ever be acknowledged by that many",
                field="min_insync_replicas",
            )
        validate_config(changed)
        return changed

    def for_new_stream(self, brokers: int) -> StreamConfig:
        """The configuration of a stream created with these settings among `brokers` brokers."""
        copies = max(1, min(REPLICATION_FACTOR_DEFAULT, brokers))
        return self.on(StreamConfig(replication_factor=copies))

    def differing(self, config: StreamConfig) -> dict[str, tuple[object, object]]:
        """Given fields that are not so in `config`: name → (in `config`, given)."""
        return {
            name: (getattr(config, name), value)
            for name, value in self.given().items()
            if getattr(config, name) != value
        }


_SETTING_NAMES = tuple(item.name for item in fields(StreamSettings))
assert tuple(item.name for item in fields(StreamConfig)) == _SETTING_NAMES

_BOUNDS: tuple[tuple[str, int, int, str], ...] = (
    ("partitions", 1, PARTITIONS_MAX, ""),
    ("replication_factor", 1, 15, ""),
    ("min_insync_replicas", 1, 15, ""),
    ("segment_bytes", 4096, SEGMENT_BYTES_HARD_MAX, " bytes"),
    ("segment_age_ms", SECOND_MS, DURATION_MS_MAX, " ms"),
    ("batch_bytes_max", 1024, BATCH_BYTES_HARD_MAX, " bytes"),
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
    """Raises `InvalidRequest` with one sentence about the first field that cannot be right."""
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


def validate_stream_name(name: str, *, internal: bool = False) -> None:
    """Raises `InvalidRequest` unless `name` may name a stream; `internal` ones may start with ``__``."""
    if _STREAM_NAME.fullmatch(name) is None:
        raise InvalidRequest(
            f"{name[: STREAM_NAME_MAX + 1]!r} cannot name a stream: a name has 1–{STREAM_NAME_MAX} letters, "
            "digits, '.', '_' or '-', and starts with a letter, a digit or '_'",
            field="name",
        )
    if name.startswith(INTERNAL_PREFIX) and not internal:
        raise InvalidRequest(
            f"{name!r} cannot name a stream: what starts with {INTERNAL_PREFIX!r} belongs to the brokers",
            field="name",
        )


def validate_subject_pattern(subject: str) -> None:
    """Raises `InvalidRequest` unless `subject` is a NATS subject that may be subscribed to."""
    wrong = _subject_mistake(subject)
    if wrong:
        raise InvalidRequest(
            f"{subject[:SUBJECT_BYTES_MAX]!r} is not a NATS subject: {wrong}", field="subject"
        )


def _subject_mistake(subject: str) -> str:
    if not subject:
        return "it is empty"
    if len(subject.encode("utf-8", "surrogatepass")) > SUBJECT_BYTES_MAX:
        return f"it has more than {SUBJECT_BYTES_MAX} bytes"
    if _UNPRINTABLE.search(subject):
        return "it holds a space or a control character"
    if not subject.isprintable():
        return "it holds a character that cannot be printed"
    tokens = subject.split(".")
    for position, token in enumerate(tokens):
        if not token:
            return "between two dots, before the first and after the last there must be a token"
        if token == ">" and position < len(tokens) - 1:
            return "'>' may only be its last token"
        if len(token) > 1 and ("*" in token or ">" in token):
            return f"'*' and '>' must stand alone in a token, not as in {token!r}"
    if subject.startswith(RESERVED_SUBJECTS) and ("*" in tokens or ">" in tokens):
        return "wildcards never record what begins with '$' or '_INBOX.', so it would record nothing"
    return ""


def validate_labels(labels: Mapping[str, str]) -> None:
    """Raises `InvalidRequest` if there are too many labels or one is too long or has no name."""
    if len(labels) > LABELS_MAX:
        raise InvalidRequest(f"{len(labels)} labels; a stream has at most {LABELS_MAX}", field="labels")
    for name, value in labels.items():
        if not name:
            raise InvalidRequest("a label has no name; give it one", field="labels")
        if len(name.encode()) + len(value.encode()) > LABEL_BYTES_MAX:
            raise InvalidRequest(
                f"the label {name[:40]!r} has more than {LABEL_BYTES_MAX} bytes with its value",
                field="labels",
            )


def id_text(identifier: bytes) -> str:
    """``xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`` for 16 bytes."""
    digits = identifier.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def id_bytes(text: str) -> bytes:
    """16 bytes for 32 hexadecimal digits, with hyphens or without; raises `InvalidRequest`."""
    digits = text.replace("-", "")
    try:
        if len(digits) == 32:
            return bytes.fromhex(digits)
    except ValueError:
        pass
    raise InvalidRequest(f"{text[:50]!r} is not an identifier; it has 32 hexadecimal digits")


@dataclass(frozen=True, slots=True)
class Listener:
    """An address that clients can reach, by the name of its listener."""

    name: str
    host: str
    port: int

    @property
    def target(self) -> str:
        """``host:port`` as gRPC takes it, IPv6 in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    broker_id: int
    incarnation: bytes
    """UUID of one run of the broker process."""
    directory_id: bytes
    """UUID of its data directory."""
    listeners: tuple[Listener, ...] = ()
    rack: str = ""
    state: str = "active"
    """active, stopping, cordoned or fenced."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    partition: int
    leader: int | None
    """None: no leader."""
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    """Broker ids, the preferred leader first."""
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StreamDescription:
    name: str
    stream_id: bytes
    config: StreamConfig
    version: int
    """Grows with every change of the stream; the token for `expected_version`."""
    created_us: int
    """Microseconds since the Unix epoch."""
    partitions: tuple[PartitionDescription, ...]
    """In order: `partitions[n].partition == n`."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: bytes
    metadata_version: int
    controller: int | None
    """None: none known."""
    voters: tuple[int, ...]
    brokers: tuple[BrokerDescription, ...]
    software_version: str
    stream_count: int
    partition_count: int


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """One copy of a partition, as the broker that holds it sees it."""

    name: str
    stream_id: bytes
    partition: int
    broker_id: int
    leader: bool
    state: str
    """online, damaged or quarantined."""
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    durable_offset: int
    """Everything below is on disk."""
    bytes: int
    segments: int
    damaged: tuple[tuple[int, int], ...] = ()
    """Ranges that cannot be read: first offset, first offset after."""
    suspect: bool = False
    """Recovery cut a tail that held a valid batch behind an invalid one (2b)."""


Headers = tuple[tuple[str, bytes | None], ...]
"""In order; names may repeat; None: a header without a value."""


class Record(NamedTuple):
    """A record as a reader gets it.

    A named tuple and not a dataclass, because readers make millions: `Record._make`
    costs a fifth of a frozen dataclass's constructor.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    """None: a tombstone."""
    headers: Headers
    subject: str | None
    timestamp_us: int
    """Microseconds since the Unix epoch, the producer's clock."""
    leader_epoch: int
    append_time_us: int
    """The leader's clock; never goes back within a partition."""
    stream: str
    partition: int

    @property
    def timestamp(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.timestamp_us)

    def header(self, name: str) -> bytes | None:
        """The value of the first header of that name; None if there is none or it has no value."""
        return next((value for key, value in self.headers if key == name), None)

    def __repr__(self) -> str:
        value = "tombstone" if self.value is None else f"{len(self.value)} bytes"
        key = "" if self.key is None else f" key={self.key[:32]!r}"
        return f"<Record {self.stream}/{self.partition} offset={self.offset}{key} {value}>"


class Receipt(NamedTuple):
    """The promise that records are committed, and where: offsets `offset` to `last_offset`."""

    partition: int
    offset: int
    """Of the first record."""
    last_offset: int
    leader_epoch: int
    append_time_us: int
    duplicate: bool = False
    """They were in the log already: the offsets are those of the first copy."""

    def __repr__(self) -> str:
        offsets = f"{self.offset}" if self.offset == self.last_offset else f"{self.offset}–{self.last_offset}"
        again = " duplicate" if self.duplicate else ""
        return f"<Receipt partition={self.partition} offset={offsets} epoch={self.leader_epoch}{again}>"


class Position(NamedTuple):
    """Where a reader stands (R13)."""

    offset: int
    """The next record to read."""
    leader_epoch: int | None = None
    """Of the last record read; None: none was, only the offset is checked."""

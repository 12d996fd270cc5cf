"""What a client can be told: options of producers, readers and connections, with their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from tidelog._connecting.retry import RetryPolicy
from tidelog.errors import InvalidRequest
from tidelog.records import Compression
from tidelog_proto import common_pb2

ACKS: Final[Mapping[str, common_pb2.Acks.ValueType]] = {
    "all": common_pb2.ACKS_ALL,
    "leader": common_pb2.ACKS_LEADER,
    "none": common_pb2.ACKS_NONE,
}

COMPRESSION: Final[Mapping[str, Compression]] = {
    "none": Compression.NONE,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}

SILENCE_S_MAX: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer batches, waits and repeats."""

    acks: Literal["all", "leader", "none"] = "all"
    """all: a receipt means committed (R7); leader: durable on the leader; none: accepted."""
    idempotent: bool = True
    """Repeats never make duplicates (R8). False: what was in flight when a connection
    broke is reported as `ConnectionLost` instead of being repeated."""
    compression: Literal["none", "lz4", "zstd"] = "none"
    """Of the batches, by Arrow's own buffer compression."""
    linger_ms: float = 5.0
    """How long a batch waits for more records. An awaited `send` with nothing in flight
    does not wait."""
    batch_bytes: int = 1 << 20
    """A batch is sent when it would grow past this; the stream's `batch_bytes_max` caps it."""
    buffer_bytes_max: int = 64 << 20
    """Bytes of all records accepted and not yet acknowledged."""
    delivery_timeout_s: float = 60.0
    """From sealing a batch to its receipt, all repetitions included."""
    request_timeout_s: float = 15.0
    """How long one attempt may take at the broker."""
    inflight_batches_max: int = 5
    """Unanswered batches per partition; the broker's own bound caps it (R8)."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSION:
            raise InvalidRequest(f"compression is {self.compression!r}; it must be none, lz4 or zstd")
        if self.acks not in ACKS:
            raise InvalidRequest(f"acks is {self.acks!r}; it must be all, leader or none")
        for name, low in (
            ("batch_bytes", 4096),
            ("buffer_bytes_max", 64 << 10),
            ("inflight_batches_max", 1),
        ):
            if getattr(self, name) < low:
                raise InvalidRequest(f"{name} is {getattr(self, name)}; it must be at least {low}")
        for name in ("delivery_timeout_s", "request_timeout_s"):
            if getattr(self, name) <= 0:
                raise InvalidRequest(f"{name} is {getattr(self, name)}; it must be positive")
        if self.linger_ms < 0:
            raise InvalidRequest(f"linger_ms is {self.linger_ms}; it cannot be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """How a reader fetches, and what it does when records it should read are gone."""

    follow: bool = True
    """Wait for new records at the end. False: stop at the high watermark of the start."""
    on_truncated: Literal["error", "rewind", "earliest", "latest"] = "error"
    """When the position is not in the log any more (`OffsetOutOfRange`, `LogTruncated`):
    raise; go back to where the histories part, or forward to the log's start; begin at
    the log's start; skip to its end."""
    response_bytes_max: int = 1 << 20
    """Of one answer; a single larger batch still comes whole."""
    answers_ahead_max: int = 4
    """Answers received and not yet asked for."""
    heartbeat_ms: int = 1_000
    """How often an idle broker says that it is still there."""
    silence_timeout_s: float = 3.0
    """A broker that says nothing for so long is given up, and asked again or another one in its place;
    twice as long each further time, up to `SILENCE_S_MAX`, for one that is only slow."""
    retry_timeout_s: float = 60.0
    """How long to go on after retriable errors without hearing anything of the log."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def __post_init__(self) -> None:
        if self.on_truncated not in ("error", "rewind", "earliest", "latest"):
            raise InvalidRequest(
                f"on_truncated is {self.on_truncated!r}; it must be error, rewind, earliest or latest"
            )
        for name in ("response_bytes_max", "answers_ahead_max", "heartbeat_ms", "silence_timeout_s"):
            if getattr(self, name) <= 0:
                raise InvalidRequest(f"{name} is {getattr(self, name)}; it must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How a client connects, and how long its requests may take."""

    connect_timeout_s: float = 5.0
    """How long to look for a broker that answers."""
    request_timeout_s: float = 15.0
    """Of one attempt of a request."""
    retry_timeout_s: float = 30.0
    """Of a request with all its repetitions."""
    listener: str = ""
    """The name of the brokers' listener to use. Empty: that of an address that was given, which is right
    unless the address is of something in front of the brokers, like a load balancer."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)

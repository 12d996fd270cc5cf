"""What a client can be told: options of producers, readers and connections, with their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from tidelog._arguments import check_bool, check_choice, check_int, check_number, check_str, wrong_type
from tidelog._connecting.retry import RetryPolicy
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
        check_choice("acks", self.acks, ACKS)
        check_bool("idempotent", self.idempotent)
        check_choice("compression", self.compression, COMPRESSION)
        check_number("linger_ms", self.linger_ms, at_least=0)
        check_int("batch_bytes", self.batch_bytes, at_least=4096)
        check_int("buffer_bytes_max", self.buffer_bytes_max, at_least=64 << 10)
        check_number("delivery_timeout_s", self.delivery_timeout_s, above=0)
        check_number("request_timeout_s", self.request_timeout_s, above=0)
        check_int("inflight_batches_max", self.inflight_batches_max, at_least=1)
        _check_policy(self.retry)


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
        check_bool("follow", self.follow)
        check_choice("on_truncated", self.on_truncated, ("error", "rewind", "earliest", "latest"))
        check_int("response_bytes_max", self.response_bytes_max, at_least=1)
        check_int("answers_ahead_max", self.answers_ahead_max, at_least=1)
        check_int("heartbeat_ms", self.heartbeat_ms, at_least=1)
        check_number("silence_timeout_s", self.silence_timeout_s, above=0)
        check_number("retry_timeout_s", self.retry_timeout_s)
        _check_policy(self.retry)


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

    def __post_init__(self) -> None:
        check_number("connect_timeout_s", self.connect_timeout_s)
        check_number("request_timeout_s", self.request_timeout_s)
        check_number("retry_timeout_s", self.retry_timeout_s)
        check_str("listener", self.listener)
        _check_policy(self.retry)


def _check_policy(retry: object) -> None:
    """Raises `InvalidRequest` unless `retry` is a `RetryPolicy`."""
    if not isinstance(retry, RetryPolicy):
        raise wrong_type("retry", retry, "a RetryPolicy")

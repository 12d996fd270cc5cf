"""The options of producers, readers and clients, with their defaults and bounds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from tidelog._arguments import check_bool, check_choice, check_int, check_number, check_str, wrong_type
from tidelog._connecting.retry import RetryPolicy
from tidelog._connecting.tls import Tls
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
"""The longest time that a reader waits for a silent broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer batches records, and how long it waits and repeats."""

    acks: Literal["all", "leader", "none"] = "all"
    """The meaning of a receipt. all: the record is committed (R7); leader: it is durable on the leader; none:
    the leader has accepted it."""
    idempotent: bool = True
    """Repeated batches are never stored twice (R8). False: batches that were in flight when a connection
    broke fail with `ConnectionLost` and are not repeated."""
    compression: Literal["none", "lz4", "zstd"] = "none"
    """The compression of batches: Arrow's buffer compression."""
    linger_ms: float = 5.0
    """How long a batch waits for more records. An awaited `send` does not wait when nothing is in flight."""
    batch_bytes: int = 1 << 20
    """A batch is sent before it grows larger than this. The stream's `batch_bytes_max` caps it."""
    buffer_bytes_max: int = 64 << 20
    """The bytes of all records that are accepted and not yet acknowledged."""
    delivery_timeout_s: float = 60.0
    """The time from sealing a batch to its receipt, including all repetitions."""
    request_timeout_s: float = 15.0
    """The time that one attempt may take at the broker."""
    inflight_batches_max: int = 5
    """Unanswered batches per partition. The broker's bound caps it (R8)."""
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
    """How a reader fetches, and what it does when its position is no longer in the log."""

    follow: bool = True
    """At the end, wait for new records. False: stop at the high watermark that was found at the start."""
    on_truncated: Literal["error", "rewind", "earliest", "latest"] = "error"
    """What to do when the position is no longer in the log (`OffsetOutOfRange`, `LogTruncated`). error:
    raise it; rewind: go back to the point where the histories diverge, or forward to the log's start;
    earliest: go to the log's start; latest: skip to its end."""
    response_bytes_max: int = 1 << 20
    """The size of one answer. A batch that is larger is still sent whole."""
    answers_ahead_max: int = 4
    """Answers that are received before the consumer asks for them."""
    heartbeat_ms: int = 1_000
    """How often an idle broker sends a heartbeat."""
    silence_timeout_s: float = 3.0
    """When a broker sends nothing for this long, the reader ends the call and asks again, possibly another
    broker. The time doubles with each further silence, up to `SILENCE_S_MAX`, because the broker may only
    be slow."""
    retry_timeout_s: float = 60.0
    """How long to repeat after retriable errors while no answer about the log arrives."""
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
    """How a client connects, and the time limits of its requests."""

    connect_timeout_s: float = 5.0
    """How long to wait for the first broker that answers."""
    request_timeout_s: float = 15.0
    """The time of one attempt of a request."""
    retry_timeout_s: float = 30.0
    """The time of a request with all its repetitions."""
    listener: str = ""
    """The name of the brokers' listener to use. Empty: the listener of the given address. Set it when the
    address belongs to something in front of the brokers, for example a load balancer."""
    tls: Tls | None = None
    """The files for connections with TLS. None: without TLS."""
    token: str = field(default="", repr=False)
    """The token that is sent with each call, for a cluster with authentication. Without TLS, programs on the
    way can read it."""
    token_file: str | os.PathLike[str] = ""
    """The path of a file that holds the token; it is read again when it changes. Give it or `token`."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def __post_init__(self) -> None:
        check_number("connect_timeout_s", self.connect_timeout_s)
        check_number("request_timeout_s", self.request_timeout_s)
        check_number("retry_timeout_s", self.retry_timeout_s)
        check_str("listener", self.listener)
        if self.tls is not None and not isinstance(self.tls, Tls):
            raise wrong_type("tls", self.tls, "a Tls")
        check_str("token", self.token)
        if not isinstance(self.token_file, str | os.PathLike):
            raise wrong_type("token_file", self.token_file, "a path")
        if self.token and self.token_file:
            raise InvalidRequest("give either token or token_file", argument="token")
        _check_policy(self.retry)


def _check_policy(retry: object) -> None:
    """Raises `InvalidRequest` unless `retry` is a `RetryPolicy`."""
    if not isinstance(retry, RetryPolicy):
        raise wrong_type("retry", retry, "a RetryPolicy")

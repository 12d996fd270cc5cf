"""What a cluster says of itself: its brokers, streams and partitions, and the copies of a partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.model.configuration import StreamConfig


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
    """A broker, as the cluster's metadata knows it."""

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
    """A partition: who leads it, and who has it."""

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
    """A stream as it is set up now."""

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
    """A cluster and its brokers."""

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
    """online, damaged, quarantined, or uncreated (its folder could not be made yet)."""
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

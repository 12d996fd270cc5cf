"""A cluster as it describes itself: brokers, streams, partitions, and the replicas of a partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.model.configuration import StreamConfig


@dataclass(frozen=True, slots=True)
class Listener:
    """An address that clients can connect to, and the name of its listener."""

    name: str
    host: str
    port: int

    @property
    def target(self) -> str:
        """``host:port`` as gRPC needs it, with an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker in the cluster's metadata."""

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
    """A partition, its leader and its replicas. Brokers are given by their ids."""

    partition: int
    leader: int | None
    """None: no leader."""
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    """Broker ids, the preferred leader first. During a reassignment: the replicas that will remain, then
    those that will be removed."""
    isr: tuple[int, ...]
    eligible: tuple[int, ...] = ()
    """Replicas that are not in sync but surely hold every committed record, while the ISR is below its
    minimum (R6)."""
    adding: tuple[int, ...] = ()
    """The replicas that a reassignment adds."""
    removing: tuple[int, ...] = ()
    """The replicas that are removed when the reassignment ends."""

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def lagging(self) -> tuple[int, ...]:
        """Replicas that are not in sync, without those that a reassignment adds."""
        return tuple(
            broker for broker in self.replicas if broker not in self.isr and broker not in self.adding
        )


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """A stream: its configuration, its partitions and their leaders."""

    name: str
    stream_id: bytes
    config: StreamConfig
    version: int
    """Grows with every change of the stream; give it as `expected_version`."""
    created_us: int
    """Microseconds since the Unix epoch."""
    partitions: tuple[PartitionDescription, ...]
    """In order: `partitions[n].partition == n`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""
    """The owner that claimed the stream, for example a Kubernetes object; empty: none."""


@dataclass(frozen=True, slots=True)
class BrokerStanding:
    """The state of a broker in its cluster."""

    broker_id: int
    state: str
    """active, stopping, cordoned, draining or fenced; of several states the most serious."""
    cordoned: bool = False
    voter: bool = False
    vote: str = ""
    """What a command asked for: wanted, unwanted, or empty (no command)."""
    replicas: int = 0
    leaders: int = 0
    out_of_sync: int = 0
    """Replicas on this broker that are not in sync."""
    version: int = 0
    """Grows with every command about the broker; give it as `expected_version`."""


@dataclass(frozen=True, slots=True)
class PartitionVersion:
    """The state of a partition on which a decision is based."""

    stream_id: bytes
    epoch: int
    """Its `partition_epoch`."""


@dataclass(frozen=True, slots=True)
class PartitionStanding:
    """A partition with the name of its stream and its minimum of in-sync replicas."""

    name: str
    stream_id: bytes
    partition: PartitionDescription
    min_insync: int
    """The in-sync replicas that a write with acks=all needs."""

    @property
    def label(self) -> str:
        """``orders/0``."""
        return f"{self.name}/{self.partition.partition}"


@dataclass(frozen=True, slots=True)
class StopHindrance:
    """A partition that is harmed if a broker stops now."""

    name: str
    partition: int
    reason: str
    blocks: bool
    """True: the broker must wait. False: waiting does not help."""


@dataclass(frozen=True, slots=True)
class StopAnswer:
    """Whether a broker may stop."""

    ready: bool
    hindrances: tuple[StopHindrance, ...]
    """The first ones; those that block come before the others."""
    hindrance_count: int


@dataclass(frozen=True, slots=True)
class DrainAnswer:
    """The progress of the drain of a broker."""

    replicas_left: int
    begun: int
    """Partitions that this request began to move."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster and its brokers."""

    cluster_id: bytes
    metadata_version: int
    controller: int | None
    """None: not known."""
    voters: tuple[int, ...]
    brokers: tuple[BrokerDescription, ...]
    software_version: str
    stream_count: int
    partition_count: int
    standings: tuple[BrokerStanding, ...] = ()
    """One for each of `brokers`, in their order."""
    under_replicated_count: int = 0
    """Partitions with a replica that is not in sync, without replicas that a reassignment adds."""
    leaderless_count: int = 0
    below_minimum_count: int = 0
    """Partitions with fewer in-sync replicas than the minimum: writes with acks=all are refused."""
    reassigning_count: int = 0
    troubled: tuple[PartitionStanding, ...] = ()
    """Partitions that are under-replicated or without a leader, by name; the first 1,000."""
    throttle_bytes_per_second: int = 0
    """The rate at which one broker sends to replicas on another that are far behind; 0: as each broker is
    configured."""


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """A replica, described by the broker that holds it."""

    name: str
    stream_id: bytes
    partition: int
    broker_id: int
    leader: bool
    state: str
    """online, damaged, quarantined, uncreated (its folder could not be created yet), halted (it failed
    unexpectedly, and stays so until its broker restarts), or unreachable (its broker did not answer)."""
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    durable_offset: int
    """All records below this offset are on disk."""
    bytes: int
    segments: int
    damaged: tuple[tuple[int, int], ...] = ()
    """Ranges of offsets that cannot be read: first offset, and first offset behind the range."""
    suspect: bool = False
    """Recovery cut off a tail that had a valid batch behind an invalid one (2b)."""
    role: str = ""
    """leader, follower, idle (the replica waits for its role), or lost."""
    leader_epoch: int = 0
    """The epoch of this role."""
    in_sync: bool = False
    """The replica is in the ISR."""
    lag: int | None = None
    """Records that the leader has and this replica lacks; None: not known."""

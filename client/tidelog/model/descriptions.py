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
    """Broker ids, the preferred leader first. While a reassignment is on its way: those that shall be,
    then those that leave."""
    isr: tuple[int, ...]
    eligible: tuple[int, ...] = ()
    """Not in sync, yet sure to hold everything committed, while the ISR is below its minimum (R6)."""
    adding: tuple[int, ...] = ()
    """Of the replicas: those that a reassignment brings."""
    removing: tuple[int, ...] = ()
    """Of the replicas: those that leave when it ends."""

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas once a reassignment has ended."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def lagging(self) -> tuple[int, ...]:
        """Replicas that are not in sync, besides those that a reassignment brings."""
        return tuple(
            broker for broker in self.replicas if broker not in self.isr and broker not in self.adding
        )


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
    owner: str = ""
    """Who has claimed it, such as an object of Kubernetes; empty: nobody."""


@dataclass(frozen=True, slots=True)
class BrokerStanding:
    """What a broker is to its cluster now."""

    broker_id: int
    state: str
    """active, stopping, cordoned, draining or fenced: the weightiest of what it is."""
    cordoned: bool = False
    voter: bool = False
    vote: str = ""
    """What was said by command: wanted, unwanted, or nothing."""
    replicas: int = 0
    leaders: int = 0
    out_of_sync: int = 0
    """Replicas there that are not in sync."""
    version: int = 0
    """Grows with every command about it; the token for `expected_version`."""


@dataclass(frozen=True, slots=True)
class PartitionVersion:
    """What a decision about a partition rests on."""

    stream_id: bytes
    epoch: int
    """Its `partition_epoch`."""


@dataclass(frozen=True, slots=True)
class PartitionStanding:
    """A partition by the name of its stream, and how many of it have to be in sync."""

    name: str
    stream_id: bytes
    partition: PartitionDescription
    min_insync: int
    """For acks=all."""

    @property
    def label(self) -> str:
        """``orders/0``."""
        return f"{self.name}/{self.partition.partition}"


@dataclass(frozen=True, slots=True)
class StopHindrance:
    """A partition that the stop of a broker would harm."""

    name: str
    partition: int
    reason: str
    blocks: bool
    """False: waiting would not help."""


@dataclass(frozen=True, slots=True)
class StopAnswer:
    """Whether a broker may stop."""

    ready: bool
    hindrances: tuple[StopHindrance, ...]
    """The first of them, those that block before the others."""
    hindrance_count: int


@dataclass(frozen=True, slots=True)
class DrainAnswer:
    """How far the drain of a broker has come."""

    replicas_left: int
    begun: int
    """Partitions that began to move by this request."""


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
    standings: tuple[BrokerStanding, ...] = ()
    """One for each of `brokers`, in their order."""
    under_replicated_count: int = 0
    """Partitions of which some replica is not in sync, besides those that a reassignment brings."""
    leaderless_count: int = 0
    below_minimum_count: int = 0
    """Partitions with fewer in sync than the minimum: acks=all is refused."""
    reassigning_count: int = 0
    troubled: tuple[PartitionStanding, ...] = ()
    """Under-replicated or without a leader, by name; the first 1,000."""
    throttle_bytes_per_second: int = 0
    """How fast replicas that are far behind are fed, from one broker to another; 0: as each broker is set."""


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """One copy of a partition, as the broker that holds it sees it."""

    name: str
    stream_id: bytes
    partition: int
    broker_id: int
    leader: bool
    state: str
    """online, damaged, quarantined, uncreated (its folder could not be made yet), halted (it failed
    unexpectedly, until its broker restarts), or unreachable (its broker did not answer)."""
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
    role: str = ""
    """leader, follower, idle (it waits for its role), or lost."""
    leader_epoch: int = 0
    """Of its role."""
    in_sync: bool = False
    """It is in the ISR."""
    lag: int | None = None
    """Records that its leader has and it has not; None: not known."""

"""The image: all metadata of a cluster as one immutable value (DESIGN section 6).

`apply` makes the next one; whoever holds an old one keeps it whole. Nothing here is
changed in place, dicts included.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from tidelog.model import (
    BrokerDescription,
    Listener,
    PartitionDescription,
    StreamConfig,
    StreamDescription,
    id_text,
)
from tidelog_broker.core.metadata.persistent import PersistentMap


class BrokerState(StrEnum):
    """What is shown of a broker that may be several of these at once: the weightiest."""

    FENCED = "fenced"
    STOPPING = "stopping"
    CORDONED = "cordoned"
    ACTIVE = "active"


class Vote(StrEnum):
    """What was said by command about a broker's vote on the metadata (`quorum_plan`)."""

    ANY = ""
    """Nothing."""
    WANTED = "wanted"
    """It is to vote, rather than those of whom nothing was said."""
    UNWANTED = "unwanted"
    """It is not to vote, as soon as another one can instead."""


class BrokerImage(msgspec.Struct, frozen=True, omit_defaults=True):
    id: int
    incarnation: bytes
    """UUID of the run of its process that registered."""
    directory_id: bytes
    listeners: tuple[Listener, ...] = ()
    rack: str = ""
    solo_epoch: int = 0
    """The leader epoch of what it leads while it is a cluster without a quorum (R10): its
    start counter. 0: a quorum gives the epochs."""
    starts: int = 0
    """How often its process had started on this disk, by its own count; 0: it did not say."""
    fenced: bool = False
    """Lost its session: in no ISR, leads nothing."""
    stopping: bool = False
    """On its way out: hands leadership over, joins no ISR."""
    cordoned: bool = False
    """Gets no new replicas and, where another can lead, no leadership; stays in its ISRs."""
    vote: Vote = Vote.ANY
    version: int = 0
    """Index of the entry that last said something of it by command (its cordon, its vote), or that it came
    with. 0: it came before this was kept, and nothing was said since."""

    @property
    def state(self) -> BrokerState:
        if self.fenced:
            return BrokerState.FENCED
        if self.stopping:
            return BrokerState.STOPPING
        return BrokerState.CORDONED if self.cordoned else BrokerState.ACTIVE

    @property
    def welcome(self) -> bool:
        """It may get new replicas, and leaders are better there than elsewhere."""
        return not (self.fenced or self.stopping or self.cordoned)

    @property
    def may_join(self) -> bool:
        """It may be taken into an ISR (R4)."""
        return not (self.fenced or self.stopping)

    def describe(self) -> BrokerDescription:
        return BrokerDescription(
            broker_id=self.id,
            incarnation=self.incarnation,
            directory_id=self.directory_id,
            listeners=self.listeners,
            rack=self.rack,
            state=self.state.value,
        )


class LastKnown(msgspec.Struct, frozen=True):
    """What a replica that cannot be trusted to be complete said it holds (R6)."""

    broker: int
    leader_epoch: int
    """Of its last record."""
    log_end_offset: int


class PartitionImage(msgspec.Struct, frozen=True, omit_defaults=True):
    replicas: tuple[int, ...]
    """Broker ids, the preferred leader first. While a reassignment is on its way: those of the
    target in its order, then those that are to leave."""
    isr: tuple[int, ...]
    leader: int | None = None
    leader_epoch: int = 0
    """Grows with each election; 0: never had a leader."""
    unclean_epoch: int = 0
    """The newest that began with a leader that may lack committed records; 0: none did. Kept, so
    that followers may truncate what was committed whoever leads by then (R1)."""
    partition_epoch: int = 0
    """Grows with each change of leader, ISR or replicas: the token of their compare-and-set."""
    eligible: tuple[int, ...] = ()
    """Not in the ISR, yet sure to hold everything committed (R6)."""
    last_known: tuple[LastKnown, ...] = ()
    adding: tuple[int, ...] = ()
    """Of `replicas`: those that a reassignment brings; it ends when all are in the ISR (KIP-455)."""
    removing: tuple[int, ...] = ()
    """Of `replicas`: those that leave when the reassignment ends."""
    assignments: tuple[int, ...] = ()
    """Of `replicas`, in their order: the partition epoch of the entry that added each (R16). Empty: all 0,
    as of partitions whose replicas have not changed since their creation."""

    @property
    def unclean(self) -> bool:
        """The epoch of now began with a leader that may lack committed records."""
        return self.unclean_epoch > 0 and self.unclean_epoch == self.leader_epoch

    def assignment_of(self, broker: int) -> int:
        """Which assignment of a replica to `broker` is meant (R16); of one that has none: 0."""
        if not self.assignments or broker not in self.replicas:
            return 0
        return self.assignments[self.replicas.index(broker)]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas once a reassignment has ended."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas from before a reassignment, if it is cancelled."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)


class StreamImage(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    id: bytes
    config: StreamConfig
    version: int
    """Index of the entry that last changed what administrators set; elections do not count."""
    created_us: int
    partitions: tuple[PartitionImage, ...]
    labels: dict[str, str] = {}
    owner: str = ""
    """Who claims it, e.g. a Kubernetes object; empty: nobody."""

    def __repr__(self) -> str:
        return (
            f"<StreamImage {self.name} {id_text(self.id)} version={self.version} "
            f"partitions={len(self.partitions)}>"
        )

    def describe_partition(self, number: int) -> PartitionDescription:
        partition = self.partitions[number]
        return PartitionDescription(
            partition=number,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            replicas=partition.replicas,
            isr=partition.isr,
            eligible=partition.eligible,
            adding=partition.adding,
            removing=partition.removing,
        )

    def describe(self) -> StreamDescription:
        return StreamDescription(
            name=self.name,
            stream_id=self.id,
            config=self.config,
            version=self.version,
            created_us=self.created_us,
            partitions=tuple(self.describe_partition(number) for number in range(len(self.partitions))),
            labels=self.labels,
            owner=self.owner,
        )


class Share(NamedTuple):
    """How much of the cluster one broker carries, by count."""

    replicas: int = 0
    leaders: int = 0


class ClusterImage(msgspec.Struct, frozen=True):
    cluster_id: bytes = b""
    """Empty: nothing was formatted yet."""
    version: int = 0
    """Index of the last entry that was applied."""
    feature_level: int = 0
    """What every broker of the cluster understands; grows by command only."""
    next_producer_id: int = 1
    throttle_bytes_per_second: int = 0
    """For replicas that are far behind, from one broker to another; 0: as each broker is set."""
    brokers: dict[int, BrokerImage] = {}
    streams: PersistentMap[bytes, StreamImage] = msgspec.field(default_factory=PersistentMap)
    """By stream id."""
    names: PersistentMap[str, bytes] = msgspec.field(default_factory=PersistentMap)
    """Stream names to ids."""
    shares: dict[int, Share] = {}
    """By broker; derived from `streams`, kept so that placement need not count."""
    partition_count: int = 0
    """Derived, too."""

    def __repr__(self) -> str:
        return (
            f"<ClusterImage version={self.version} brokers={sorted(self.brokers)} "
            f"streams={len(self.streams)} partitions={self.partition_count}>"
        )

    def stream_named(self, name: str) -> StreamImage | None:
        stream_id = self.names.find(name)
        return None if stream_id is None else self.streams[stream_id]

    def partition(self, stream_id: bytes, partition: int) -> PartitionImage | None:
        stream = self.streams.find(stream_id)
        if stream is None or not 0 <= partition < len(stream.partitions):
            return None
        return stream.partitions[partition]

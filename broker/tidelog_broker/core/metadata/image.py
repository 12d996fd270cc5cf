"""The image: all metadata of a cluster as one immutable value (DESIGN section 6).

`apply` makes the next image; an old image stays valid and complete. No value here is
changed in place, dicts included.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from tidelog.model import (
    BrokerDescription,
    Listener,
    PartitionDescription,
    StreamConfig,
    StreamDescription,
    id_text,
)
from tidelog.model.access import AclRule, TokenDescription
from tidelog.model.quotas import Quota
from tidelog_broker.core.metadata.persistent import PersistentMap

TOKEN_ID_BYTES: Final = 8


class BrokerState(StrEnum):
    """A broker's state as shown to users; of several states at once the first in this order."""

    FENCED = "fenced"
    STOPPING = "stopping"
    CORDONED = "cordoned"
    ACTIVE = "active"


class Vote(StrEnum):
    """Whether an administrator wants a broker to vote on the metadata (`decisions.quorum_plan`)."""

    ANY = ""
    """Not set."""
    WANTED = "wanted"
    """The broker should vote, before brokers without a setting."""
    UNWANTED = "unwanted"
    """The broker should stop voting as soon as another broker can vote in its place."""


class BrokerImage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A registered broker."""

    id: int
    incarnation: bytes
    """UUID of the run of its process that registered."""
    directory_id: bytes
    listeners: tuple[Listener, ...] = ()
    rack: str = ""
    solo_epoch: int = 0
    """The leader epoch of its partitions while it is a cluster without a quorum (R10): its
    start counter. 0: a quorum gives the epochs."""
    starts: int = 0
    """How often its process had started on this disk, by its own count; 0: not known."""
    fenced: bool = False
    """It lost its session: it is in no ISR and leads no partition."""
    stopping: bool = False
    """It is about to stop: it hands its leaderships over and joins no ISR."""
    cordoned: bool = False
    """It gets no new replicas and, where another broker can lead, no leadership; it stays in its ISRs."""
    vote: Vote = Vote.ANY
    version: int = 0
    """Index of the entry by which an administrator last changed it (its cordon, its vote), or which first
    registered it. 0: it registered before this was kept, and no administrator changed it since."""

    @property
    def state(self) -> BrokerState:
        if self.fenced:
            return BrokerState.FENCED
        if self.stopping:
            return BrokerState.STOPPING
        return BrokerState.CORDONED if self.cordoned else BrokerState.ACTIVE

    @property
    def welcome(self) -> bool:
        """It may get new replicas, and is preferred as a leader over brokers that are not welcome."""
        return not (self.fenced or self.stopping or self.cordoned)

    @property
    def may_join(self) -> bool:
        """Whether it may join an ISR (R4)."""
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
    """The reported end of a replica's log that may be incomplete (R6)."""

    broker: int
    leader_epoch: int
    """Of its last record."""
    log_end_offset: int


class PartitionImage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A partition: its replicas, ISR, leader and epochs."""

    replicas: tuple[int, ...]
    """Broker ids, the preferred leader first. During a reassignment: the replicas of the
    target in its order, then the replicas that will be removed."""
    isr: tuple[int, ...]
    leader: int | None = None
    leader_epoch: int = 0
    """Grows with each election; 0: the partition never had a leader."""
    unclean_epoch: int = 0
    """The newest epoch that began with a leader that may lack committed records; 0: no such epoch. It is
    kept so that followers may truncate committed records whichever broker leads later (R1)."""
    partition_epoch: int = 0
    """Grows with each change of leader, ISR or replicas: the token of their compare-and-set."""
    eligible: tuple[int, ...] = ()
    """Replicas outside the ISR that hold everything committed (R6)."""
    last_known: tuple[LastKnown, ...] = ()
    """Replicas that may lack committed records, with the end of their logs (R6)."""
    adding: tuple[int, ...] = ()
    """The `replicas` that a reassignment adds; it ends when all are in the ISR (KIP-455)."""
    removing: tuple[int, ...] = ()
    """The `replicas` that will be removed when the reassignment ends."""
    assignments: tuple[int, ...] = ()
    """For each of `replicas`, in their order: the partition epoch of the entry that added it (R16). Empty:
    all 0, as for partitions whose replicas have not changed since their creation."""

    @property
    def unclean(self) -> bool:
        """The current epoch began with a leader that may lack committed records."""
        return self.unclean_epoch > 0 and self.unclean_epoch == self.leader_epoch

    def assignment_of(self, broker: int) -> int:
        """The current assignment of a replica to `broker` (R16); 0 if it has no replica."""
        if not self.assignments or broker not in self.replicas:
            return 0
        return self.assignments[self.replicas.index(broker)]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment, if it completes."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment; a cancelled reassignment restores them."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)


class StreamImage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stream: its configuration and its partitions."""

    name: str
    id: bytes
    config: StreamConfig
    version: int
    """Index of the entry that last changed a setting of administrators; elections do not count."""
    created_us: int
    partitions: tuple[PartitionImage, ...]
    labels: dict[str, str] = {}
    owner: str = ""
    """The object that claims it, e.g. a Kubernetes resource; empty: not claimed."""

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


class SinkImage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sink, such as a Spark query that writes to a stream: its newest run and batch (S3)."""

    name: str
    number: int
    """Stands in its producer ids; no other sink ever has it."""
    run: int
    """Earlier runs may not write any more."""
    batch_id: int
    """Earlier batches are written, and may not be written again."""
    batch_us: int
    """The time of the batch. µs."""
    stream_id: bytes
    partitions: int
    """Over which the rows of the batch are spread: those of the stream when it was first opened."""
    once: bool = False
    """It writes one batch only, and may be forgotten after that."""


class TokenImage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token of a principal (A1)."""

    hash: bytes
    """Its SHA-256."""
    principal: str
    created_us: int
    expires_us: int = 0
    """0: never."""
    note: str = ""

    @property
    def id(self) -> str:
        """Names it to administrators; nobody can guess the token from it."""
        return self.hash[:TOKEN_ID_BYTES].hex()

    def describe(self) -> TokenDescription:
        return TokenDescription(
            token_id=self.id,
            principal=self.principal,
            created_us=self.created_us,
            expires_us=self.expires_us,
            note=self.note,
        )


class Share(NamedTuple):
    """How many replicas and leaderships one broker has."""

    replicas: int = 0
    leaders: int = 0


class ClusterImage(msgspec.Struct, frozen=True):
    """The metadata of a cluster as of one entry of the metadata log."""

    cluster_id: bytes = b""
    """Empty: the cluster is not formatted yet."""
    version: int = 0
    """Index of the last applied entry."""
    feature_level: int = 0
    """The level that every broker of the cluster understands; it grows only by command."""
    next_producer_id: int = 1
    throttle_bytes_per_second: int = 0
    """For replicas that are far behind, from one broker to another; 0: the setting of each broker."""
    brokers: dict[int, BrokerImage] = {}
    streams: PersistentMap[bytes, StreamImage] = msgspec.field(default_factory=PersistentMap)
    """By stream id."""
    names: PersistentMap[str, bytes] = msgspec.field(default_factory=PersistentMap)
    """Stream names to ids."""
    shares: dict[int, Share] = {}
    """By broker; derived from `streams` and kept, so that placement does not have to count."""
    partition_count: int = 0
    """Derived from `streams` as well."""
    sinks: PersistentMap[str, SinkImage] = msgspec.field(default_factory=PersistentMap)
    """By name."""
    sink_names: dict[int, str] = {}
    """By number; derived from `sinks`."""
    next_sink_number: int = 1
    acl: tuple[AclRule, ...] = ()
    """In the order of lists, each once (`permissions.sorted_rules`)."""
    tokens: PersistentMap[bytes, TokenImage] = msgspec.field(default_factory=PersistentMap)
    """By hash."""
    quotas: dict[str, Quota] = {}
    """By principal."""

    def __repr__(self) -> str:
        return (
            f"<ClusterImage version={self.version} brokers={sorted(self.brokers)} "
            f"streams={len(self.streams)} partitions={self.partition_count}>"
        )

    def stream_named(self, name: str) -> StreamImage | None:
        stream_id = self.names.find(name)
        return None if stream_id is None else self.streams[stream_id]

    def sink_numbered(self, number: int) -> SinkImage | None:
        name = self.sink_names.get(number)
        return None if name is None else self.sinks[name]

    def partition(self, stream_id: bytes, partition: int) -> PartitionImage | None:
        stream = self.streams.find(stream_id)
        if stream is None or not 0 <= partition < len(stream.partitions):
            return None
        return stream.partitions[partition]

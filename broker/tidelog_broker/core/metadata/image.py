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
    ACTIVE = "active"
    STOPPING = "stopping"
    """On its way out: hands leadership over, joins no ISR."""
    CORDONED = "cordoned"
    """Gets no new replicas or leaders, stays in its ISRs."""
    FENCED = "fenced"
    """Lost its session: in no ISR, leads nothing."""


class BrokerImage(msgspec.Struct, frozen=True, omit_defaults=True):
    id: int
    incarnation: bytes
    """UUID of the run of its process that registered."""
    directory_id: bytes
    listeners: tuple[Listener, ...] = ()
    rack: str = ""
    state: BrokerState = BrokerState.ACTIVE
    solo_epoch: int = 0
    """The leader epoch of what it leads while it is a cluster without a quorum (R10): its
    start counter. 0: a quorum gives the epochs."""

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
    """Broker ids, the preferred leader first."""
    isr: tuple[int, ...]
    leader: int | None = None
    leader_epoch: int = 0
    """Grows with each election; 0: never had a leader."""
    unclean: bool = False
    """This epoch began with a leader that may lack committed records."""
    partition_epoch: int = 0
    """Grows with each change of leader, ISR or replicas: the token of their compare-and-set."""
    eligible: tuple[int, ...] = ()
    """Not in the ISR, yet sure to hold everything committed (R6)."""
    last_known: tuple[LastKnown, ...] = ()


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

    def describe(self) -> StreamDescription:
        return StreamDescription(
            name=self.name,
            stream_id=self.id,
            config=self.config,
            version=self.version,
            created_us=self.created_us,
            partitions=tuple(
                PartitionDescription(
                    partition=number,
                    leader=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    replicas=partition.replicas,
                    isr=partition.isr,
                )
                for number, partition in enumerate(self.partitions)
            ),
            labels=self.labels,
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

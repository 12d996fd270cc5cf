"""The brokers as plans see them, and where new replicas go: `tidelog.placement`, with the planned replicas
counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tidelog.model import ClusterDescription, PartitionDescription, PartitionVersion, StreamDescription
from tidelog.placement import BrokerLoad, place, resize
from tidelog_operator.actions import MovePartition

PartitionName: TypeAlias = tuple[str, int]
"""The name of the stream and the number of the partition."""


@dataclass(frozen=True, slots=True)
class BrokersView:
    """The brokers' own metadata at one moment."""

    cluster: ClusterDescription
    streams: Mapping[str, StreamDescription]
    """By name; without the brokers' internal streams."""
    zones: Mapping[int, str] = field(default_factory=dict)
    """The zone of each broker, from the labels of its pod's node."""
    sizes: Mapping[PartitionName, int] | None = None
    """The bytes of a replica of each partition, where its brokers answered; None: no answer yet."""
    pods: int | None = None
    """The number of pods of the StatefulSet. A broker beyond it stops soon, or has stopped, and gets no
    replica. None: not known."""

    @property
    def schedulable(self) -> tuple[int, ...]:
        """The brokers that may get new replicas now."""
        return tuple(
            broker.broker_id
            for broker in self.cluster.brokers
            if broker.state == "active" and (self.pods is None or broker.broker_id < self.pods)
        )

    @property
    def expected(self) -> tuple[int, ...]:
        """The brokers that may get new replicas now, or when they come back."""
        cordoned = {one.broker_id for one in self.cluster.standings if one.cordoned}
        return tuple(one.broker_id for one in self.cluster.brokers if one.broker_id not in cordoned)

    def version_of(self, broker: int) -> int:
        """Returns the version of a broker for `expected_version`; 0: it is not registered."""
        found = (one.version for one in self.cluster.standings if one.broker_id == broker)
        return next(found, 0)

    def size_of(self, stream: str, partition: int) -> int:
        """Returns the size of a partition; 0 if no broker has reported one: most likely it is new."""
        return (self.sizes or {}).get((stream, partition), 0)

    def bytes_held(self) -> Counter[int]:
        """Returns bytes by broker, after all running moves."""
        held: Counter[int] = Counter()
        for stream in self.streams.values():
            for one in stream.partitions:
                size = self.size_of(stream.name, one.partition)
                held.update(dict.fromkeys(one.target, size))
        return held


def move(
    stream: StreamDescription, partition: PartitionDescription, target: tuple[int, ...]
) -> MovePartition:
    """Returns a move that is executed only if the partition has not changed since."""
    version = PartitionVersion(stream.stream_id, partition.partition_epoch)
    return MovePartition(stream.name, partition.partition, target, version)


class Placement:
    """Chooses brokers for new replicas during one plan; replicas that it has placed already count."""

    def __init__(self, view: BrokersView) -> None:
        standings = {one.broker_id: one for one in view.cluster.standings}
        held = view.bytes_held()
        self._view = view
        self._loads = {
            broker: BrokerLoad(
                broker,
                rack=view.zones.get(broker, ""),
                replicas=standings[broker].replicas if broker in standings else 0,
                leaders=standings[broker].leaders if broker in standings else 0,
                bytes=held[broker],
            )
            for broker in view.schedulable
        }

    @property
    def loads(self) -> list[BrokerLoad]:
        return list(self._loads.values())

    def new(self, partitions: int, replication_factor: int) -> tuple[tuple[int, ...], ...]:
        """Returns the replicas of new partitions. Raises `InvalidRequest` if there are fewer brokers than
        replicas."""
        placed = place(self.loads, partitions, replication_factor)
        copies = sum(load.replicas for load in self._loads.values())
        average = sum(load.bytes for load in self._loads.values()) // max(1, copies)
        for members in placed:
            self._count(members, 1, average)
            leader = self._loads[members[0]]
            self._loads[members[0]] = replace(leader, leaders=leader.leaders + 1)
        return tuple(placed)

    def resized(
        self, stream: str, partitions: Sequence[PartitionDescription], replication_factor: int
    ) -> list[tuple[int, ...]]:
        """Returns other replicas for some partitions of `stream`. Raises `InvalidRequest` if there are fewer
        brokers than replicas."""
        sizes = [self._view.size_of(stream, one.partition) for one in partitions]
        targets = resize(
            self.loads,
            [one.target for one in partitions],
            replication_factor,
            in_sync=[one.isr for one in partitions],
            racks=self._view.zones,
            sizes=sizes,
        )
        for one, target, size in zip(partitions, targets, sizes, strict=True):
            self._count([broker for broker in one.target if broker not in target], -1, -size)
            self._count([broker for broker in target if broker not in one.target], 1, size)
        return targets

    def _count(self, brokers: Sequence[int], copies: int, size: int) -> None:
        for broker in brokers:
            load = self._loads.get(broker)
            if load is not None:
                self._loads[broker] = replace(load, replicas=load.replicas + copies, bytes=load.bytes + size)

"""The brokers as plans see them, and where copies go: `tidelog.placement` with what is planned counted in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidelog.model import ClusterDescription, StreamDescription
from tidelog.placement import BrokerLoad, place, resize


@dataclass(frozen=True, slots=True)
class BrokersView:
    """What the brokers answered: their own metadata, of one moment."""

    cluster: ClusterDescription
    streams: Mapping[str, StreamDescription]
    """By name; without the brokers' own."""
    zones: Mapping[int, str] = field(default_factory=dict)
    """By broker, as the nodes of their pods say."""

    @property
    def welcome(self) -> tuple[int, ...]:
        """The brokers that may get new replicas now."""
        return tuple(broker.broker_id for broker in self.cluster.brokers if broker.state == "active")

    @property
    def expected(self) -> tuple[int, ...]:
        """Those, and those that are away and will be back."""
        cordoned = {one.broker_id for one in self.cluster.standings if one.cordoned}
        return tuple(one.broker_id for one in self.cluster.brokers if one.broker_id not in cordoned)


class Placing:
    """Where copies go during one plan: what it has placed already counts."""

    def __init__(self, view: BrokersView) -> None:
        standings = {one.broker_id: one for one in view.cluster.standings}
        self._zones = view.zones
        self._loads = {
            broker: BrokerLoad(
                broker,
                rack=view.zones.get(broker, ""),
                replicas=standings[broker].replicas if broker in standings else 0,
                leaders=standings[broker].leaders if broker in standings else 0,
            )
            for broker in view.welcome
        }

    @property
    def loads(self) -> list[BrokerLoad]:
        return list(self._loads.values())

    def new(self, partitions: int, replication_factor: int) -> tuple[tuple[int, ...], ...]:
        """Raises `InvalidRequest` if there are fewer brokers than copies."""
        placed = place(self.loads, partitions, replication_factor)
        for members in placed:
            self._count(members, 1)
            leader = self._loads[members[0]]
            self._loads[members[0]] = replace(leader, leaders=leader.leaders + 1)
        return tuple(placed)

    def resized(
        self,
        partitions: Sequence[tuple[int, ...]],
        replication_factor: int,
        in_sync: Sequence[tuple[int, ...]],
    ) -> list[tuple[int, ...]]:
        """Raises `InvalidRequest` if there are fewer brokers than copies."""
        targets = resize(self.loads, partitions, replication_factor, in_sync=in_sync, racks=self._zones)
        for members, target in zip(partitions, targets, strict=True):
            self._count([broker for broker in members if broker not in target], -1)
            self._count([broker for broker in target if broker not in members], 1)
        return targets

    def _count(self, brokers: Sequence[int], more: int) -> None:
        for broker in brokers:
            load = self._loads.get(broker)
            if load is not None:
                self._loads[broker] = replace(load, replicas=load.replicas + more)

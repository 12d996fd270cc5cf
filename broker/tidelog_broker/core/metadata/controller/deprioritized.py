"""R6, 2c, F7: deprioritized leaders, brokers that should lead a partition only if no other broker can.

Each broker reports its own reasons. A replica with a damaged range can lead, but answers that range with an
error. A broker whose clock is off can lead, but the append times of its records are wrong. So other replicas
come first. A damaged leader hands over to a member of the ISR without damage in that partition, and is healed
as a follower; a broker whose clock stays off hands over to members that are not deprioritized (R18).

This is the controller's memory, like `liveness`: heartbeats repeat it, a new controller begins without it,
and an election without it is no less safe. `decisions.elections` ranks by it, `upkeep` plans the moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog_broker.core.metadata.commands import PartitionChange, ReplicaName
from tidelog_broker.core.metadata.controller.handovers import SETTLING_MAX
from tidelog_broker.core.metadata.decisions.elections import (
    CHANGES_MAX,
    Deprioritized,
    PartitionKey,
    successor,
)
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage


class Reason(IntEnum):
    """Why a broker is deprioritized; the greater number counts more."""

    CLOCK_OFF = 1
    DAMAGED = 2


class _Report(NamedTuple):
    """The last heartbeat of a broker with a reason."""

    incarnation: bytes
    damaged: tuple[PartitionKey, ...]
    clock_off: bool
    clock_yields: bool
    """Its clock has been off for so long that it should hand over its leaderships."""


_NONE: Final[Deprioritized] = MappingProxyType({})


class DeprioritizedLeaders:
    """The last report of each broker."""

    def __init__(self) -> None:
        self._reports: dict[int, _Report] = {}
        """Of brokers with a reason."""
        self._damaged: dict[PartitionKey, dict[int, None]] = {}
        """The brokers with a damaged replica, by partition."""
        self._stuck: tuple[object, ...] | None = None
        """The inputs for which no leader with a wrong clock had a successor: they need no second search."""

    def __repr__(self) -> str:
        off = sorted(broker for broker, report in self._reports.items() if report.clock_off)
        return f"<DeprioritizedLeaders damaged={len(self._damaged)} clocks_off={off}>"

    def heard(
        self,
        broker: int,
        incarnation: bytes,
        damaged: Iterable[ReplicaName] = (),
        *,
        clock_off: bool = False,
        clock_yields: bool = False,
    ) -> None:
        """A heartbeat of the registered run arrived: it replaces the broker's last report."""
        names = tuple((one.stream_id, one.partition) for one in damaged)
        report = _Report(incarnation, names, clock_off, clock_yields)
        before = self._reports.pop(broker, None)
        if before is not None and before.damaged != report.damaged:
            for key in before.damaged:
                holders = self._damaged.get(key, {})
                holders.pop(broker, None)
                if not holders:
                    self._damaged.pop(key, None)
        if report.damaged or report.clock_off:
            self._reports[broker] = report
            for key in report.damaged:
                self._damaged.setdefault(key, {})[broker] = None

    def of(self, image: ClusterImage, key: PartitionKey) -> Deprioritized:
        """The registered runs of brokers that are deprioritized for a partition, with their reason."""
        if not self._reports:
            return _NONE
        found: dict[int, int] = {}
        damaged = self._damaged.get(key, {})
        for broker, report in self._reports.items():
            known = image.brokers.get(broker)
            if known is None or known.incarnation != report.incarnation:
                continue
            if broker in damaged:
                found[broker] = Reason.DAMAGED
            elif report.clock_off:
                found[broker] = Reason.CLOCK_OFF
        return found

    def moves(self, image: ClusterImage) -> tuple[PartitionChange, ...]:
        """Leaders that should hand over now: those with damage first, then those whose clock stays off."""
        return self._from_damaged(image) or self._from_clocks(image)

    def _from_clocks(self, image: ClusterImage) -> tuple[PartitionChange, ...]:
        """R18: partitions of leaders whose clock was off for some seconds, if a better member is in sync."""
        yielding = [
            broker
            for broker, report in sorted(self._reports.items())
            if report.clock_yields
            and (known := image.brokers.get(broker)) is not None
            and known.incarnation == report.incarnation
            and (share := image.shares.get(broker)) is not None
            and share.leaders
        ]
        asked = (tuple(yielding), tuple(sorted(self._reports.items())), image.brokers, image.streams)
        if not yielding or (self._stuck is not None and all(map(_same, self._stuck, asked))):
            return ()
        changes: list[PartitionChange] = []
        for stream in image.streams.values():
            for number, partition in enumerate(stream.partitions):
                if partition.leader in yielding and len(changes) < SETTLING_MAX:
                    deprioritized = self.of(image, (stream.id, number))
                    next_leader = successor(image, partition, deprioritized=deprioritized)
                    if next_leader is not None and next_leader not in deprioritized:
                        changes.append(PartitionChange(stream.id, number, leader=next_leader))
        self._stuck = None if changes else asked
        return tuple(changes)

    def _from_damaged(self, image: ClusterImage) -> tuple[PartitionChange, ...]:
        changes: list[PartitionChange] = []
        for key, holders in self._damaged.items():
            partition = image.partition(*key)
            if partition is None or partition.leader not in holders:
                continue
            deprioritized = self.of(image, key)
            if deprioritized.get(partition.leader) != Reason.DAMAGED:
                # The report is from an earlier run.
                continue
            next_leader = undamaged_successor(image, partition, deprioritized)
            if next_leader is not None:
                changes.append(PartitionChange(*key, leader=next_leader))
                if len(changes) >= CHANGES_MAX:
                    break
        return tuple(changes)


def undamaged_successor(
    image: ClusterImage, partition: PartitionImage, deprioritized: Deprioritized
) -> int | None:
    """The broker that takes over from a damaged leader; None: no other member in sync is there and
    undamaged."""
    next_leader = successor(image, partition, deprioritized=deprioritized)
    return None if next_leader is None or deprioritized.get(next_leader) == Reason.DAMAGED else next_leader


def _same(one: object, other: object) -> bool:
    return one is other or (isinstance(one, tuple) and one == other)

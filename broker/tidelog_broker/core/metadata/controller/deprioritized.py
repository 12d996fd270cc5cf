"""R6, 2c, F7: who had rather not lead what, as brokers say of themselves.

A replica with a damaged range can lead, but answers that range with an error; a broker whose clock is off
can, but the time of what it appends is a guess. So others come first. A damaged leader hands over to a
member of the ISR that has no damage there, and is healed as a follower; a broker whose clock stays off hands
over to members that are willing (R18).

This is the controller's memory, like `liveness`: heartbeats say it again, another controller begins with
none, and an election that does not know of it is no less safe. `elections` ranks by it, `upkeep` asks for
the moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog_broker.core.metadata.commands import PartitionChange, ReplicaName
from tidelog_broker.core.metadata.controller.handovers import WISHES_MAX
from tidelog_broker.core.metadata.decisions.elections import (
    CHANGES_MAX,
    Deprioritized,
    PartitionKey,
    successor,
)
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage


class Reason(IntEnum):
    """Why a broker had rather not lead; the weightier, the greater."""

    CLOCK_OFF = 1
    DAMAGED = 2


class _Told(NamedTuple):
    incarnation: bytes
    damaged: tuple[PartitionKey, ...]
    clock_off: bool
    clock_yields: bool


_NOBODY: Final[Deprioritized] = MappingProxyType({})


class DeprioritizedLeaders:
    """What each broker said last. At most one word of each broker."""

    def __init__(self) -> None:
        self._told: dict[int, _Told] = {}
        """Of brokers that had something to say."""
        self._damaged: dict[PartitionKey, dict[int, None]] = {}
        """The same by partition: whose replicas are damaged."""
        self._stuck: tuple[object, ...] | None = None
        """What was known when no leader whose clock is off had an heir: the same needs no second look."""

    def __repr__(self) -> str:
        off = sorted(broker for broker, told in self._told.items() if told.clock_off)
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
        """A heartbeat came that counts: what it says takes the place of what the one before it said."""
        names = tuple((one.stream_id, one.partition) for one in damaged)
        told = _Told(incarnation, names, clock_off, clock_yields)
        before = self._told.pop(broker, None)
        if before is not None and before.damaged != told.damaged:
            for key in before.damaged:
                holders = self._damaged.get(key, {})
                holders.pop(broker, None)
                if not holders:
                    self._damaged.pop(key, None)
        if told.damaged or told.clock_off:
            self._told[broker] = told
            for key in told.damaged:
                self._damaged.setdefault(key, {})[broker] = None

    def of(self, image: ClusterImage, key: PartitionKey) -> Deprioritized:
        """How unwilling the registered runs of brokers are to lead it; who is not there is willing."""
        if not self._told:
            return _NOBODY
        found: dict[int, int] = {}
        damaged = self._damaged.get(key, {})
        for broker, told in self._told.items():
            known = image.brokers.get(broker)
            if known is None or known.incarnation != told.incarnation:
                continue
            if broker in damaged:
                found[broker] = Reason.DAMAGED
            elif told.clock_off:
                found[broker] = Reason.CLOCK_OFF
        return found

    def moves(self, image: ClusterImage) -> tuple[PartitionChange, ...]:
        """Damaged leaders hand over to members of the ISR that are not; so do those whose clock stays off."""
        return self._from_damaged(image) or self._from_clocks(image)

    def _from_clocks(self, image: ClusterImage) -> tuple[PartitionChange, ...]:
        """R18: what a broker leads whose clock was off for some seconds, where a willing one is in sync."""
        yielding = [
            broker
            for broker, told in sorted(self._told.items())
            if told.clock_yields
            and (known := image.brokers.get(broker)) is not None
            and known.incarnation == told.incarnation
            and (share := image.shares.get(broker)) is not None
            and share.leaders
        ]
        asked = (tuple(yielding), tuple(sorted(self._told.items())), image.brokers, image.streams)
        if not yielding or (self._stuck is not None and all(map(_same, self._stuck, asked))):
            return ()
        changes: list[PartitionChange] = []
        for stream in image.streams.values():
            for number, partition in enumerate(stream.partitions):
                if partition.leader in yielding and len(changes) < WISHES_MAX:
                    deprioritized = self.of(image, (stream.id, number))
                    heir = successor(image, partition, deprioritized=deprioritized)
                    if heir is not None and heir not in deprioritized:
                        changes.append(PartitionChange(stream.id, number, leader=heir))
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
                # Said by a run that is over.
                continue
            heir = sound_heir(image, partition, deprioritized)
            if heir is not None:
                changes.append(PartitionChange(*key, leader=heir))
                if len(changes) >= CHANGES_MAX:
                    break
        return tuple(changes)


def sound_heir(image: ClusterImage, partition: PartitionImage, deprioritized: Deprioritized) -> int | None:
    """Who takes over from a damaged leader; None: nobody else in sync is there and without damage."""
    heir = successor(image, partition, deprioritized=deprioritized)
    return None if heir is None or deprioritized.get(heir) == Reason.DAMAGED else heir


def _same(one: object, other: object) -> bool:
    return one is other or (isinstance(one, tuple) and one == other)

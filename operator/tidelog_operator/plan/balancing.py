"""Plans moves that distribute replicas, bytes and leaders evenly; only when nothing is more urgent, a few
moves at a time, and as few as possible.

It plans moves only while every registered broker is available for replicas: a broker that is away for a
moment, or that was cordoned by an administrator, keeps its replicas. It also waits until the sizes of
partitions are known: moves by the number of replicas alone would be undone when bytes count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from tidelog.model import PartitionDescription, StreamDescription
from tidelog.placement import BrokerLoad, prefer, reassign
from tidelog_operator.actions import BrokerAction, ElectPreferred, Reassign
from tidelog_operator.plan.placement import BrokersView, move

BALANCE_REPLICAS: Final = "to balance replicas and bytes across the brokers"
BALANCE_LEADERS: Final = "to balance leaders across the brokers"

SLACK: Final = 0.1
"""A fraction of the mean. Brokers that differ by no more than this are left as they are: sizes change all the
time, and a replica that moves is read and written once more."""

REORDERED_MAX: Final = 1_000
"""Partitions whose preferred leader changes at once. That moves no data, but clients must connect to the new
leaders."""

Part: TypeAlias = tuple[StreamDescription, PartitionDescription]


def plan_balancing(view: BrokersView, moves_at_once: int) -> tuple[BrokerAction, ...]:
    """Returns the next moves, up to `moves_at_once` together with the running ones. When no move runs and
    none is needed, returns changes of the order of replicas, so that leaders are balanced."""
    parts = list(_partitions(view))
    if view.sizes is None or not parts or not _all_active(view):
        return ()
    room = moves_at_once - sum(_moves(one) for _, one in parts)
    if room <= 0 or len(view.schedulable) < max(len(one.target) for _, one in parts):
        return ()
    calm = [part for part in parts if not _moves(part[1])]
    moved = reassign(
        _loads(view, [one.target for _, one in parts]),
        [one.target for _, one in calm],
        sizes=[view.size_of(stream.name, one.partition) for stream, one in calm],
        slack=SLACK,
        moves_max=room,
    )
    going = {part: target for part, target in enumerate(moved) if target != calm[part][1].target}
    on_their_way = [one.target for _, one in parts if _moves(one)]
    if not going and on_their_way:
        return ()
    # A moving partition gets its best leader at once; the others get theirs when all moves are known.
    free = going or dict(enumerate(moved))
    targets = prefer(
        _loads(view, [*moved, *on_their_way]),
        list(free.values()),
        slack=SLACK,
        changes_max=None if going else REORDERED_MAX,
    )
    moves = tuple(
        move(stream, one, target)
        for (stream, one), target in zip((calm[part] for part in free), targets, strict=True)
        if target != one.target
    )
    return (Reassign(moves, BALANCE_REPLICAS if going else BALANCE_LEADERS),) if moves else ()


def plan_leaders(view: BrokersView) -> tuple[BrokerAction, ...]:
    """Returns an election for streams whose leaders are not the preferred ones, although those could lead."""
    schedulable = set(view.schedulable)
    names = {
        stream.name: None
        for stream, one in _partitions(view)
        if one.leader not in (None, one.replicas[0]) and one.replicas[0] in schedulable & set(one.isr)
    }
    return (ElectPreferred(tuple(names)),) if names else ()


def _loads(view: BrokersView, targets: Sequence[tuple[int, ...]]) -> list[BrokerLoad]:
    """Returns the load of each broker if all partitions were on `targets`, in any order; bytes are the
    current ones."""
    copies = Counter(broker for members in targets for broker in members)
    leaders = Counter(members[0] for members in targets)
    held = view.bytes_held()
    return [
        BrokerLoad(
            broker,
            rack=view.zones.get(broker, ""),
            replicas=copies[broker],
            leaders=leaders[broker],
            bytes=held[broker],
        )
        for broker in view.schedulable
    ]


def _all_active(view: BrokersView) -> bool:
    return len(view.schedulable) == len(view.cluster.brokers)


def _partitions(view: BrokersView) -> Iterator[Part]:
    for _, stream in sorted(view.streams.items()):
        for one in stream.partitions:
            yield stream, one


def _moves(one: PartitionDescription) -> bool:
    return bool(one.adding or one.removing)

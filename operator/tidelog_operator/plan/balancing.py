"""Copies and leaders where they lie best, once there is nothing more urgent: few at a time, and few in all.

Only while every broker that is registered is there and welcome: who is away for a moment, or was cordoned by
somebody, keeps what it holds. And only once it is known what copies hold: who counts them alone would move
away what is brought back when bytes count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from tidelog.model import PartitionDescription, StreamDescription
from tidelog.placement import BrokerLoad, prefer, reassign
from tidelog_operator.actions import BrokerAction, ElectPreferred, Reassign
from tidelog_operator.plan.placement import BrokersView, move

SPREADING: Final = "brokers carry a like number of copies and of bytes"
LEADING: Final = "brokers lead a like number of partitions"

SLACK: Final = 0.1
"""Of the mean: brokers that are apart by no more than this are left as they are. Bytes change all the time,
and every copy that moves is read and written once more."""

REORDERED_MAX: Final = 1_000
"""Partitions that get another preferred leader at once; that moves no data, but their clients."""

Part: TypeAlias = tuple[StreamDescription, PartitionDescription]


def plan_balancing(view: BrokersView, moves_at_once: int) -> tuple[BrokerAction, ...]:
    """The next copies that move, as many as there is room for beside those that move now; once none does
    and none should, another order of replicas, so that leaders are even."""
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
    # Whoever moves is led where it is best at once; the others when it is known what everybody holds.
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
    return (Reassign(moves, SPREADING if going else LEADING),) if moves else ()


def plan_leaders(view: BrokersView) -> tuple[BrokerAction, ...]:
    """Streams whose leaders are not the preferred ones, though those could lead."""
    schedulable = set(view.schedulable)
    names = {
        stream.name: None
        for stream, one in _partitions(view)
        if one.leader not in (None, one.replicas[0]) and one.replicas[0] in schedulable & set(one.isr)
    }
    return (ElectPreferred(tuple(names)),) if names else ()


def _loads(view: BrokersView, targets: Sequence[tuple[int, ...]]) -> list[BrokerLoad]:
    """The brokers with all partitions on `targets`, in any order; the bytes are those of now."""
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

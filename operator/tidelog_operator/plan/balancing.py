"""Copies and leaders where they lie best, once there is nothing more urgent: few at a time, and few in all.

Only while every broker that is registered is there and welcome: who is away for a moment, or was cordoned by
somebody, keeps what it holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from tidelog.model import PartitionDescription, StreamDescription
from tidelog.placement import BrokerLoad, reassign
from tidelog_operator.actions import BrokerAction, ElectPreferred, MovePartition, Reassign
from tidelog_operator.plan.brokers import BrokersView

SPREADING: Final = "brokers carry a like number of copies"


def plan_balancing(view: BrokersView, moves_at_once: int) -> tuple[BrokerAction, ...]:
    """The next copies that move, as many as there is room for beside those that move now."""
    if not _everybody_is_there(view):
        return ()
    parts = list(_partitions(view))
    room = moves_at_once - sum(_moves(one) for _, one in parts)
    if room <= 0 or not parts:
        return ()
    held = Counter(broker for _, one in parts for broker in one.target)
    loads = [BrokerLoad(broker, view.zones.get(broker, ""), held[broker]) for broker in view.welcome]
    if len(loads) < max(len(one.target) for _, one in parts):
        return ()
    calm = [(stream, one) for stream, one in parts if not _moves(one)]
    targets = reassign(loads, [one.target for _, one in calm], moves_max=room)
    moves = tuple(
        MovePartition(stream.name, one.partition, target)
        for (stream, one), target in zip(calm, targets, strict=True)
        if target != one.target
    )
    return (Reassign(moves, SPREADING),) if moves else ()


def plan_leaders(view: BrokersView) -> tuple[BrokerAction, ...]:
    """Streams whose leaders are not the preferred ones, though those could lead."""
    welcome = set(view.welcome)
    names = {
        stream.name: None
        for stream, one in _partitions(view)
        if one.leader not in (None, one.replicas[0]) and one.replicas[0] in welcome & set(one.isr)
    }
    return (ElectPreferred(tuple(names)),) if names else ()


def _everybody_is_there(view: BrokersView) -> bool:
    return len(view.welcome) == len(view.cluster.brokers)


def _partitions(view: BrokersView) -> Iterator[tuple[StreamDescription, PartitionDescription]]:
    for _, stream in sorted(view.streams.items()):
        for one in stream.partitions:
            yield stream, one


def _moves(one: PartitionDescription) -> bool:
    return bool(one.adding or one.removing)

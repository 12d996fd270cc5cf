"""K2: whether a broker can stop while every partition keeps enough replicas in sync.

The answer names the partitions that block the stop. A broker is marked as stopping only when no partition
blocks it, and a marked broker counts as stopped for all later requests: so if two brokers
would stop at once, one stops and the other waits until it is back. Neighbour:
`controller.upkeep` moves its leaderships as they settle.

A broker that stops without a request is marked as well (`controller.upkeep.stop`): a signal does not ask.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from tidelog_broker.core.metadata.commands import ChangeBroker
from tidelog_broker.core.metadata.decisions.brokers import registered
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage, StreamImage


class Hindrance(StrEnum):
    """Why a partition blocks a broker's stop, or suffers from it."""

    TOO_FEW = "too few in sync"
    """Without it and the other stopping brokers, fewer than the minimum would be in sync: it waits."""
    LEADING = "still led here"
    """Leadership has not moved yet: it waits."""
    BELOW_ALREADY = "below the minimum already"
    """Fewer than the minimum are in sync, whether it stops or not: reported."""
    NO_SPARE = "no copy to spare"
    """The partition has no more replicas than must be in sync, so it cannot stay available: reported."""

    @property
    def blocks(self) -> bool:
        return self in (Hindrance.TOO_FEW, Hindrance.LEADING)


class Hindered(NamedTuple):
    """A partition that a broker's stop would harm."""

    stream: str
    partition: int
    hindrance: Hindrance


def prepare_stop(image: ClusterImage, broker: int) -> ChangeBroker | None:
    """Marks `broker` as stopping; its leaderships move as they settle. None: it is marked, or must wait.

    Raises `InvalidRequest`.
    """
    known = registered(image, broker)
    if known.stopping or any(one.hindrance is Hindrance.TOO_FEW for one in hindered(image, broker)):
        return None
    return ChangeBroker(broker, known.incarnation, stopping=True)


def cancel_stop(image: ClusterImage, broker: int) -> ChangeBroker | None:
    """Removes the mark of `prepare_stop`; None: the broker has no mark.

    A broker that really stops reports it with its next heartbeat, and is marked again
    (`controller.upkeep.stop`). Raises `InvalidRequest`.
    """
    known = registered(image, broker)
    return ChangeBroker(broker, known.incarnation, stopping=False) if known.stopping else None


def hindered(image: ClusterImage, broker: int) -> list[Hindered]:
    """Every partition of `broker` that its stop would harm; those that block it come first."""
    leaving = {other.id: None for other in image.brokers.values() if other.stopping or other.id == broker}
    found = []
    for stream in sorted(image.streams.values(), key=lambda one: one.name):
        for number, partition in enumerate(stream.partitions):
            if broker in partition.replicas:
                hindrance = _hindrance(stream, partition, broker, leaving)
                if hindrance is not None:
                    found.append(Hindered(stream.name, number, hindrance))
    found.sort(key=lambda one: not one.hindrance.blocks)
    return found


def is_prepared(image: ClusterImage, broker: int, found: list[Hindered]) -> bool:
    """Whether `broker` may stop now: it is marked, or fenced, and no partition blocks it."""
    known = image.brokers.get(broker)
    marked = known is None or known.stopping or known.fenced
    return marked and not any(one.hindrance.blocks for one in found)


def _hindrance(
    stream: StreamImage, partition: PartitionImage, broker: int, leaving: dict[int, None]
) -> Hindrance | None:
    needed = stream.config.min_insync_effective
    rest = [member for member in partition.isr if member not in leaving]
    below, spare = len(partition.isr) < needed, len(partition.target) > needed
    if not below and spare and broker in partition.isr and len(rest) < needed:
        return Hindrance.TOO_FEW
    if partition.leader == broker and rest:
        return Hindrance.LEADING
    if below:
        return Hindrance.BELOW_ALREADY
    return None if spare or broker not in partition.isr else Hindrance.NO_SPARE

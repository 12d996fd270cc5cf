"""Where replicas should be: the moves that spread partitions over brokers, computed from the image.

`tidelog.placement` chooses the brokers, `reassignment` makes the moves. The computation starts from the
replicas after all reassignments in progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.errors import InvalidRequest
from tidelog.placement import BrokerLoad
from tidelog.placement import reassign as spread_over
from tidelog_broker.core.metadata.decisions.brokers import registered
from tidelog_broker.core.metadata.decisions.elections import PartitionKey
from tidelog_broker.core.metadata.image import BrokerImage, ClusterImage, StreamImage

Targets = dict[PartitionKey, tuple[int, ...]]
"""The target replicas of partitions, the preferred leader first."""


def spread(
    image: ClusterImage,
    streams: Iterable[StreamImage],
    brokers: Sequence[int] | None = None,
    *,
    moves_max: int | None = None,
) -> Targets:
    """Targets for the partitions of `streams` that should move, over `brokers`; None: over all brokers that
    may get replicas.

    At most `moves_max` replicas move; None: no bound. Raises `InvalidRequest`.
    """
    over = _chosen(image, brokers)
    replicas, leaders = _counts(image)
    loads = [
        BrokerLoad(broker.id, broker.rack, replicas.get(broker.id, 0), leaders.get(broker.id, 0))
        for broker in over
    ]
    keys = [(stream.id, number) for stream in streams for number in range(len(stream.partitions))]
    now = [image.streams[stream_id].partitions[number].target for stream_id, number in keys]
    then = spread_over(loads, now, moves_max=moves_max)
    return {key: target for key, before, target in zip(keys, now, then, strict=True) if target != before}


def _chosen(image: ClusterImage, brokers: Sequence[int] | None) -> list[BrokerImage]:
    if brokers is None:
        found = [broker for broker in image.brokers.values() if broker.welcome]
        if not found:
            raise InvalidRequest("no broker may get replicas now: all are cordoned, stopping or fenced")
        return found
    chosen = []
    for broker in dict.fromkeys(brokers):
        known = registered(image, broker, field="brokers")
        if not known.welcome:
            raise InvalidRequest(
                f"broker {broker} is {known.state.value} and gets no new replicas; leave it out, or bring it "
                "back first",
                field="brokers",
            )
        chosen.append(known)
    return chosen


def _counts(image: ClusterImage) -> tuple[dict[int, int], dict[int, int]]:
    """Replicas and preferred leaderships by broker, after all reassignments in progress."""
    replicas: dict[int, int] = {}
    leaders: dict[int, int] = {}
    for stream in image.streams.values():
        for partition in stream.partitions:
            target = partition.target
            leaders[target[0]] = leaders.get(target[0], 0) + 1
            for broker in target:
                replicas[broker] = replicas.get(broker, 0) + 1
    return replicas, leaders

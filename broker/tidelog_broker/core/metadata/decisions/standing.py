"""The state of brokers, and of partitions in trouble, for administrators of the cluster.

A request costs one pass over all partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.model import BrokerStanding, PartitionStanding
from tidelog_broker.core.metadata.image import BrokerImage, BrokerState, ClusterImage, Share, StreamImage

TROUBLED_SHOWN_MAX = 1000
"""Partitions in trouble that are named; all are counted."""

DRAINING = "draining"
"""The state of a cordoned broker from which replicas move away."""


class ClusterStanding(NamedTuple):
    """The state of a cluster's brokers and partitions."""

    standings: tuple[BrokerStanding, ...]
    """By broker id."""
    under_replicated: int
    leaderless: int
    below_minimum: int
    reassigning: int
    troubled: tuple[PartitionStanding, ...]
    """Under-replicated or leaderless, by name; `TROUBLED_SHOWN_MAX` at most."""


def cluster_standing(image: ClusterImage, voters: Sequence[int]) -> ClusterStanding:
    under_replicated = leaderless = below_minimum = reassigning = 0
    out_of_sync: dict[int, int] = {}
    emptied: dict[int, None] = {}
    troubled: list[tuple[str, int, bytes]] = []
    for stream in image.streams.values():
        needed = stream.config.min_insync_effective
        for number, partition in enumerate(stream.partitions):
            lagging = [broker for broker in partition.replicas if broker not in partition.isr]
            for broker in lagging:
                out_of_sync[broker] = out_of_sync.get(broker, 0) + 1
            emptied.update(dict.fromkeys(partition.removing))
            missing = any(broker not in partition.adding for broker in lagging)
            under_replicated += missing
            leaderless += partition.leader is None
            below_minimum += len(partition.isr) < needed
            reassigning += partition.reassigning
            if missing or partition.leader is None:
                troubled.append((stream.name, number, stream.id))
    troubled.sort()
    standings = tuple(
        _standing(image, broker, voters, out_of_sync.get(broker.id, 0), broker.id in emptied)
        for _, broker in sorted(image.brokers.items())
    )
    return ClusterStanding(
        standings,
        under_replicated,
        leaderless,
        below_minimum,
        reassigning,
        tuple(
            standing_of(image.streams[stream_id], number)
            for _, number, stream_id in troubled[:TROUBLED_SHOWN_MAX]
        ),
    )


def standing_of(stream: StreamImage, number: int) -> PartitionStanding:
    return PartitionStanding(
        name=stream.name,
        stream_id=stream.id,
        partition=stream.describe_partition(number),
        min_insync=stream.config.min_insync_effective,
    )


def _standing(
    image: ClusterImage, broker: BrokerImage, voters: Sequence[int], out_of_sync: int, emptied: bool
) -> BrokerStanding:
    share = image.shares.get(broker.id, Share())
    drains = broker.state is BrokerState.CORDONED and emptied
    return BrokerStanding(
        broker_id=broker.id,
        state=DRAINING if drains else broker.state.value,
        cordoned=broker.cordoned,
        voter=broker.id in voters,
        vote=broker.vote.value,
        replicas=share.replicas,
        leaders=share.leaders,
        out_of_sync=out_of_sync,
        version=broker.version,
    )

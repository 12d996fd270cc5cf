"""Where new partitions go: to the brokers that the request names, or to brokers that placement chooses.

`streams` uses it. `spreading` and `reassignment` move existing replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from tidelog.errors import InvalidRequest, ResourceExhausted, Unavailable
from tidelog.placement import BrokerLoad, place
from tidelog.wording import listed
from tidelog_broker.core.metadata.commands import NewPartition
from tidelog_broker.core.metadata.decisions.brokers import registered
from tidelog_broker.core.metadata.image import ClusterImage, Share

REPLICAS_PER_BROKER_MAX: Final = 50_000
"""On average over the cluster; more partitions are refused."""

Replicas: TypeAlias = Sequence[tuple[int, ...]]
"""Of each partition, the preferred leader first."""


def new_partitions(
    image: ClusterImage, count: int, replication_factor: int, given: Replicas = ()
) -> tuple[NewPartition, ...]:
    """`count` partitions on brokers that may get replicas; on the brokers of `given`, if it is not empty.

    Raises `InvalidRequest`, `ResourceExhausted`, and `Unavailable` if a broker that is needed is away.
    """
    brokers = _loads(image)
    carried = sum(broker.replicas for broker in brokers)
    if given:
        _check_given(image, brokers, count, replication_factor, given)
        placed = list(given)
    else:
        _check_there(image, brokers, replication_factor)
        placed = place(brokers, count, replication_factor)
    if carried + count * replication_factor > REPLICAS_PER_BROKER_MAX * len(brokers):
        raise ResourceExhausted(
            f"{count} more partitions with {replication_factor} replicas each would exceed "
            f"{REPLICAS_PER_BROKER_MAX} replicas per broker; add brokers or delete streams"
        )
    return tuple(
        NewPartition(
            replicas=replicas,
            leader=replicas[0],
            leader_epoch=max(1, image.brokers[replicas[0]].solo_epoch),
        )
        for replicas in placed
    )


def _loads(image: ClusterImage) -> list[BrokerLoad]:
    """The brokers that may get new replicas."""
    loads = []
    for broker in image.brokers.values():
        if broker.welcome:
            share = image.shares.get(broker.id, Share())
            loads.append(BrokerLoad(broker.id, broker.rack, share.replicas, share.leaders))
    if not loads:
        raise Unavailable("no broker can get a new partition now; try again", retry_after_ms=500)
    return loads


def _check_there(image: ClusterImage, brokers: Sequence[BrokerLoad], replication_factor: int) -> None:
    away = [broker.id for broker in image.brokers.values() if not broker.cordoned and not broker.welcome]
    if len(brokers) < replication_factor <= len(brokers) + len(away):
        raise Unavailable(
            f"{replication_factor} replicas need {replication_factor} brokers, and these are not available "
            f"now: {listed(away)}; try again, or ask for fewer replicas",
            retry_after_ms=1000,
        )


def _check_given(
    image: ClusterImage, brokers: Sequence[BrokerLoad], count: int, replication_factor: int, given: Replicas
) -> None:
    if len(given) != count:
        raise InvalidRequest(
            f"the request names replicas for {len(given)} partitions, but {count} will be made",
            field="replicas",
        )
    there = {broker.broker_id for broker in brokers}
    for members in given:
        if len(members) != replication_factor or len({*members}) != replication_factor:
            raise InvalidRequest(
                f"the replicas must be {replication_factor} different brokers, the number in "
                f"replication_factor, not {listed(members)}",
                field="replicas",
            )
        for broker in members:
            known = registered(image, broker, field="replicas")
            if known.cordoned:
                raise InvalidRequest(
                    f"broker {broker} is cordoned and gets no new replicas; choose from "
                    f"{listed(sorted(there))}",
                    field="replicas",
                )
            if broker not in there:
                raise Unavailable(
                    f"broker {broker} is not available now and cannot get a replica; try again, or choose "
                    f"from {listed(sorted(there))}",
                    retry_after_ms=1000,
                )

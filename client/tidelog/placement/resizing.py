"""More or fewer replicas of existing partitions; `moves` keeps their number."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidelog.errors import InvalidRequest
from tidelog.placement.loads import BrokerLoad, Tally
from tidelog.wording import listed


def resize(
    brokers: Sequence[BrokerLoad],
    partitions: Sequence[tuple[int, ...]],
    replication_factor: int,
    *,
    in_sync: Sequence[Collection[int]] | None = None,
    racks: Mapping[int, str] | None = None,
    sizes: Sequence[int] | None = None,
) -> list[tuple[int, ...]]:
    """The replicas of each partition, `replication_factor` of them; the preferred leaders remain.

    Replicas are added in the emptiest racks, on the brokers with the least load. Replicas that are not in
    sync (`in_sync`, per partition; None: all are in sync) are removed first, then those in the fullest racks,
    then those on the brokers with the most load. `brokers` may get replicas; their loads include what they
    hold now. `racks` has the racks of other brokers, `sizes` the bytes of a replica of each partition (None:
    the average). Raises `InvalidRequest` if there are fewer brokers than replicas.
    """
    tally = Tally(brokers)
    rack_of = {**(racks or {}), **{broker.broker_id: broker.rack for broker in brokers}}
    resized: list[tuple[int, ...]] = []
    for number, members in enumerate(partitions):
        kept, synced = list(members), members if in_sync is None else in_sync[number]
        size = None if sizes is None else sizes[number]
        while len(kept) > replication_factor:
            gone = max(
                kept[1:],
                key=lambda member: (
                    member not in synced,
                    _beside(member, kept, rack_of),
                    tally.weight(member),
                    member,
                ),
            )
            kept.remove(gone)
            tally.remove(gone, size)
        while len(kept) < replication_factor:
            free = [broker for broker in tally.copies if broker not in kept]
            if not free:
                there = sorted({*kept, *tally.copies})
                raise InvalidRequest(
                    f"{replication_factor} replicas need {replication_factor} brokers, and there are only: "
                    f"{listed(there)}",
                    field="replication_factor",
                )
            new = min(free, key=lambda broker: (_beside(broker, kept, rack_of), tally.weight(broker), broker))
            kept.append(new)
            tally.add(new, size)
        resized.append(tuple(kept))
    return resized


def _beside(broker: int, members: Sequence[int], rack_of: Mapping[int, str]) -> int:
    """The number of other members in the rack of `broker`."""
    rack = rack_of.get(broker, "")
    return sum(rack_of.get(member, "") == rack for member in members if member != broker)

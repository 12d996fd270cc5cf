"""More copies of partitions that are there, or fewer; `moves` keeps their number."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidelog.errors import InvalidRequest
from tidelog.placement.loads import BrokerLoad


def resize(
    brokers: Sequence[BrokerLoad],
    partitions: Sequence[tuple[int, ...]],
    replication_factor: int,
    *,
    in_sync: Sequence[Collection[int]] | None = None,
    racks: Mapping[int, str] | None = None,
) -> list[tuple[int, ...]]:
    """The replicas of each partition, `replication_factor` of them; the preferred leaders stay.

    Copies are added in the emptiest racks, on the brokers with the fewest. Those go first that are not in
    sync (`in_sync`, per partition; None: all are), then those in the fullest racks, then those on the
    brokers with the most. `brokers` may get replicas, and their loads count what they hold now; `racks` has
    the racks of others. Raises `InvalidRequest` if there are fewer brokers than copies.
    """
    counts = {broker.broker_id: broker.replicas for broker in brokers}
    sizes = {broker.broker_id: broker.bytes for broker in brokers}
    rack_of = {**(racks or {}), **{broker.broker_id: broker.rack for broker in brokers}}
    resized: list[tuple[int, ...]] = []
    for number, members in enumerate(partitions):
        kept, synced = list(members), members if in_sync is None else in_sync[number]
        while len(kept) > replication_factor:
            gone = max(
                kept[1:],
                key=lambda member: (
                    member not in synced,
                    _beside(member, kept, rack_of),
                    counts.get(member, 0),
                    sizes.get(member, 0),
                    member,
                ),
            )
            kept.remove(gone)
            counts[gone] = counts.get(gone, 0) - 1
        while len(kept) < replication_factor:
            free = [broker for broker in sizes if broker not in kept]
            if not free:
                raise InvalidRequest(
                    f"{replication_factor} copies need as many brokers; {sorted({*kept, *sizes})} are there",
                    field="replication_factor",
                )
            new = min(
                free,
                key=lambda broker: (_beside(broker, kept, rack_of), counts[broker], sizes[broker], broker),
            )
            kept.append(new)
            counts[new] += 1
        resized.append(tuple(kept))
    return resized


def _beside(broker: int, members: Sequence[int], rack_of: Mapping[int, str]) -> int:
    """How many other members lie in its rack."""
    rack = rack_of.get(broker, "")
    return sum(rack_of.get(member, "") == rack for member in members if member != broker)

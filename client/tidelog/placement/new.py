"""Replicas and preferred leaders of partitions that are about to be made; `moves` is for those that are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.errors import InvalidRequest
from tidelog.placement.leaders import Leading, first
from tidelog.placement.loads import BrokerLoad, Tally


def place(brokers: Sequence[BrokerLoad], partitions: int, replication_factor: int) -> list[tuple[int, ...]]:
    """For each new partition its replicas, the preferred leader first.

    What they will hold is not known: each copy counts as one of average size. Raises
    `InvalidRequest` if there are fewer brokers than copies.
    """
    if replication_factor > len(brokers):
        raise InvalidRequest(
            f"replication_factor is {replication_factor}, but only {len(brokers)} "
            f"{'broker is' if len(brokers) == 1 else 'brokers are'} there to hold a copy each",
            field="replication_factor",
        )
    tally = Tally(brokers)
    racks = {broker.broker_id: broker.rack for broker in brokers}
    chosen = [_choose(tally, racks, replication_factor) for _ in range(partitions)]
    leading = _lead(chosen, brokers)
    return [first(members, leader) for members, leader in zip(chosen, leading, strict=True)]


def _choose(tally: Tally, racks: Mapping[int, str], replication_factor: int) -> tuple[int, ...]:
    """The brokers of one more partition; counts them in `tally`."""
    in_rack: dict[str, int] = {}
    members: list[int] = []
    candidates = sorted(racks, key=lambda broker: (tally.weight(broker), broker))
    for _ in range(replication_factor):
        # `min` keeps the first of equals, and the candidates are sorted by load.
        best = min(candidates, key=lambda broker: in_rack.get(racks[broker], 0))
        candidates.remove(best)
        members.append(best)
        in_rack[racks[best]] = in_rack.get(racks[best], 0) + 1
    for broker in members:
        tally.add(broker, None)
    return tuple(members)


def _lead(chosen: Sequence[tuple[int, ...]], brokers: Sequence[BrokerLoad]) -> list[int]:
    """A leader for each partition, so that no other choice is more even."""
    leaders = {broker.broker_id: broker.leaders for broker in brokers}
    sizes = {broker.broker_id: broker.bytes for broker in brokers}
    leading: list[int] = []
    for members in chosen:
        leader = min(members, key=lambda broker: (leaders[broker], sizes[broker], broker))
        leaders[leader] += 1
        leading.append(leader)
    even = Leading(leaders, chosen, leading)
    while (path := even.relief()) is not None:
        even.follow(path)
    return even.leading

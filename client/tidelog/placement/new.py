"""Replicas and preferred leaders of new partitions; `moves` is for existing partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from tidelog.errors import InvalidRequest
from tidelog.placement.leaders import Leading, first
from tidelog.placement.loads import BrokerLoad, Tally
from tidelog.wording import count_of


def place(brokers: Sequence[BrokerLoad], partitions: int, replication_factor: int) -> list[tuple[int, ...]]:
    """The replicas of each new partition, the preferred leader first.

    The sizes are not known yet: each replica counts with the average size. Raises `InvalidRequest` if there
    are fewer brokers than replicas.
    """
    if replication_factor > len(brokers):
        raise InvalidRequest(
            f"replication_factor is {replication_factor}, but there {'is' if len(brokers) == 1 else 'are'} "
            f"only {count_of(len(brokers), 'broker')}",
            field="replication_factor",
        )
    racks = {broker.broker_id: broker.rack for broker in sorted(brokers, key=lambda one: one.broker_id)}
    spread = _Spread.of(racks, replication_factor)
    chosen = _deal(_copies(Tally(brokers), racks, spread, partitions), racks, spread, partitions)
    leading = _lead(chosen, brokers)
    return [first(members, leader) for members, leader in zip(chosen, leading, strict=True)]


class _Spread(NamedTuple):
    """The spread of the replicas of one partition over racks, as even as possible."""

    surely: dict[str, int]
    """By rack: the number of replicas that it has of every partition."""
    more: tuple[str, ...]
    """Racks that may have one more replica."""
    more_count: int
    """The number of these racks that have one more replica."""

    @classmethod
    def of(cls, racks: Mapping[int, str], replication_factor: int) -> _Spread:
        surely, left = dict.fromkeys(sorted(racks.values()), 0), replication_factor
        sizes = Counter(racks.values())
        while True:
            room = tuple(rack for rack, copies in surely.items() if copies < sizes[rack])
            if left < len(room) or not left:
                return cls(surely, room, left)
            for rack in room:
                surely[rack] += 1
            left -= len(room)


def _copies(tally: Tally, racks: Mapping[int, str], spread: _Spread, partitions: int) -> dict[int, int]:
    """The number of replicas that each broker gets; no other numbers are more even.

    Each replica goes to the broker with the least load. This is optimal because the bounds are nested: a
    broker holds at most one replica of a partition, a rack its share (Federgruen, Groenevelt: The
    greedy procedure for resource allocation problems).
    """
    copies = dict.fromkeys(racks, 0)

    def give(heap: list[tuple[int, int]]) -> int:
        _, broker = heappop(heap)
        tally.add(broker, None)
        copies[broker] += 1
        if copies[broker] < partitions:
            heappush(heap, (tally.weight(broker), broker))
        return broker

    def waiting(wanted: Collection[str]) -> list[tuple[int, int]]:
        return sorted(
            (tally.weight(broker), broker)
            for broker, rack in racks.items()
            if rack in wanted and copies[broker] < partitions
        )

    for rack, each in spread.surely.items():
        heap = waiting((rack,))
        for _ in range(each * partitions):
            give(heap)
    more, heap = dict.fromkeys(spread.more, 0), waiting(spread.more)
    for _ in range(spread.more_count * partitions):
        while more[racks[heap[0][1]]] == partitions:
            heappop(heap)
        more[racks[give(heap)]] += 1
    return copies


def _deal(
    copies: Mapping[int, int], racks: Mapping[int, str], spread: _Spread, partitions: int
) -> list[tuple[int, ...]]:
    """The brokers of each partition. Brokers with the most replicas left are used first, so that the last
    partitions do not need the same broker twice."""
    left = dict(copies)
    more = {rack: -spread.surely[rack] * partitions for rack in spread.more}
    for broker, count in copies.items():
        if racks[broker] in more:
            more[racks[broker]] += count
    chosen = []
    for _ in range(partitions):
        wanted = dict(spread.surely)
        for rack in sorted(more, key=lambda rack: (-more[rack], rack))[: spread.more_count]:
            wanted[rack] += 1
            more[rack] -= 1
        members = []
        for broker in sorted(left, key=lambda broker: (-left[broker], broker)):
            if wanted[racks[broker]]:
                wanted[racks[broker]] -= 1
                left[broker] -= 1
                members.append(broker)
        chosen.append(tuple(members))
    return chosen


def _lead(chosen: Sequence[tuple[int, ...]], brokers: Sequence[BrokerLoad]) -> list[int]:
    """A leader for each partition; no other choice is more even."""
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

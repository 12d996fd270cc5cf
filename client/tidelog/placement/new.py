"""Replicas and preferred leaders of partitions that are about to be made; `moves` is for those that are."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tidelog.errors import InvalidRequest
from tidelog.placement.loads import BrokerLoad


def place(brokers: Sequence[BrokerLoad], partitions: int, replication_factor: int) -> list[tuple[int, ...]]:
    """For each new partition its replicas, the preferred leader first.

    Raises `InvalidRequest` if there are fewer brokers than copies.
    """
    if replication_factor > len(brokers):
        raise InvalidRequest(
            f"replication_factor is {replication_factor}, but only {len(brokers)} "
            f"{'broker is' if len(brokers) == 1 else 'brokers are'} there to hold a copy each",
            field="replication_factor",
        )
    by_id = {broker.broker_id: broker for broker in brokers}
    replicas = {broker.broker_id: broker.replicas for broker in brokers}
    leaders = {broker.broker_id: broker.leaders for broker in brokers}
    chosen = [_choose(by_id, replicas, replication_factor) for _ in range(partitions)]
    leading = _lead(chosen, leaders, by_id)
    return [
        (leader, *(broker for broker in members if broker != leader))
        for members, leader in zip(chosen, leading, strict=True)
    ]


def _choose(
    brokers: dict[int, BrokerLoad], replicas: dict[int, int], replication_factor: int
) -> tuple[int, ...]:
    """The brokers of one more partition; counts them in `replicas`."""
    in_rack: dict[str, int] = {}
    members: list[int] = []
    candidates = sorted(brokers, key=lambda broker: (replicas[broker], brokers[broker].bytes, broker))
    for _ in range(replication_factor):
        # `min` keeps the first of equals, and the candidates are sorted by load.
        best = min(candidates, key=lambda broker: in_rack.get(brokers[broker].rack, 0))
        candidates.remove(best)
        members.append(best)
        rack = brokers[best].rack
        in_rack[rack] = in_rack.get(rack, 0) + 1
    for broker in members:
        replicas[broker] += 1
    return tuple(members)


def _lead(
    chosen: Sequence[tuple[int, ...]], leaders: dict[int, int], brokers: dict[int, BrokerLoad]
) -> list[int]:
    """A leader for each partition, so that no other choice is more even; counts them in `leaders`."""
    leading: list[int] = []
    for members in chosen:
        leader = min(members, key=lambda broker: (leaders[broker], brokers[broker].bytes, broker))
        leaders[leader] += 1
        leading.append(leader)
    while True:
        path = _relief(chosen, leading, leaders)
        if path is None:
            return leading
        for partition, leader in path:
            leaders[leading[partition]] -= 1
            leaders[leader] += 1
            leading[partition] = leader


def _relief(
    chosen: Sequence[tuple[int, ...]], leading: Sequence[int], leaders: dict[int, int]
) -> list[tuple[int, int]] | None:
    """Handovers (partition, new leader) that take one leader from a broker with many and end,
    perhaps over others, at one with at least two fewer; None: it is as even as it can be.

    An assignment in which no such path exists is the most even one there is (Harvey et al.,
    Semi-matchings for bipartite graphs and load balancing).
    """
    led: dict[int, list[int]] = {}
    for partition, leader in enumerate(leading):
        led.setdefault(leader, []).append(partition)
    for start in sorted(led, key=lambda broker: (-leaders[broker], broker)):
        came_by: dict[int, tuple[int, int]] = {}
        waiting = deque([start])
        while waiting:
            broker = waiting.popleft()
            for partition in led.get(broker, ()):
                for member in chosen[partition]:
                    if member == start or member in came_by:
                        continue
                    came_by[member] = (partition, broker)
                    if leaders[member] <= leaders[start] - 2:
                        return _path(came_by, member, start)
                    waiting.append(member)
    return None


def _path(came_by: dict[int, tuple[int, int]], end: int, start: int) -> list[tuple[int, int]]:
    path, broker = [], end
    while broker != start:
        partition, before = came_by[broker]
        path.append((partition, broker))
        broker = before
    return path

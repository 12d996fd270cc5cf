"""Preferred leaders, the first of each partition's replicas: about the same number for every broker.

The preferred leader gets leadership if several replicas can lead. Another order of the same replicas moves
no data.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from tidelog.placement.evenness import LEAST_WORTH, worth
from tidelog.placement.loads import BrokerLoad


def prefer(
    brokers: Sequence[BrokerLoad],
    partitions: Sequence[tuple[int, ...]],
    *,
    slack: float = 0.0,
    changes_max: int | None = None,
) -> list[tuple[int, ...]]:
    """The replicas of each partition, the preferred leader first, with as few changes as possible.

    `brokers` may lead; their loads include the partitions that they are preferred for now. Two brokers whose
    difference is at most `slack`, a fraction of the mean, are not changed. At most `changes_max` partitions
    get another preferred leader (None: no bound). A partition keeps a preferred leader that is not in
    `brokers`.
    """
    leaders = {broker.broker_id: broker.leaders for broker in brokers}
    even = Leading(leaders, partitions, [members[0] for members in partitions], slack)
    changed: dict[int, None] = {}
    while (path := even.relief()) is not None:
        changed |= dict.fromkeys(partition for partition, _ in path)
        if changes_max is not None and len(changed) > changes_max:
            break
        even.follow(path)
    return [first(members, leader) for members, leader in zip(partitions, even.leading, strict=True)]


def first(members: Sequence[int], leader: int) -> tuple[int, ...]:
    """`members` with `leader` first; the others keep their order."""
    return (leader, *(member for member in members if member != leader))


class Leading:
    """The leaders of partitions, made more even by one handover or a chain of handovers at a time.

    When no chain is left, no other choice is more even, apart from the slack (Harvey et al., Semi-matchings
    for bipartite graphs and load balancing).
    """

    def __init__(
        self,
        leaders: Mapping[int, int],
        members: Sequence[Sequence[int]],
        leading: Sequence[int],
        slack: float = 0.0,
    ) -> None:
        """`leaders` counts the partitions that each broker leads, for the brokers that may lead. `leading`
        has the leader of each partition in `members`."""
        self.leading = list(leading)
        self._members = members
        self._leaders = dict(sorted(leaders.items()))
        self._mean = sum(self._leaders.values()) / max(1, len(self._leaders))
        self._slack = slack
        self._could: dict[int, dict[int, dict[int, None]]] = {
            here: {there: {} for there in self._leaders if there != here} for here in self._leaders
        }
        """By leader and other member: the partitions of the leader that the other member could lead."""
        for partition in range(len(self.leading)):
            self._link(partition)

    def __repr__(self) -> str:
        return f"<Leading {self._leaders}>"

    def relief(self) -> list[tuple[int, int]] | None:
        """The shortest chain of handovers (partition, new leader) that moves one leadership from a broker
        with many to a broker with fewer, if it is worth it; None: there is none."""
        for start in sorted(self._leaders, key=lambda broker: (-self._leaders[broker], broker)):
            came_by: dict[int, tuple[int, int]] = {}
            waiting = deque([start])
            while waiting:
                here = waiting.popleft()
                could = self._could[here]
                for there in sorted(could, key=lambda broker: (self._leaders[broker], broker)):
                    if there == start or there in came_by or not could[there]:
                        continue
                    came_by[there] = (next(iter(could[there])), here)
                    if self._worth(start, there) > LEAST_WORTH:
                        return _path(came_by, there, start)
                    waiting.append(there)
        return None

    def follow(self, path: Sequence[tuple[int, int]]) -> None:
        for partition, leader in path:
            self._unlink(partition)
            self._leaders[self.leading[partition]] -= 1
            self._leaders[leader] += 1
            self.leading[partition] = leader
            self._link(partition)

    def _worth(self, start: int, end: int) -> float:
        return worth(self._leaders[start], self._leaders[end], 1, self._mean, self._slack)

    def _link(self, partition: int) -> None:
        could = self._could.get(self.leading[partition])
        if could is not None:
            for member in self._members[partition]:
                if member in could:
                    could[member][partition] = None

    def _unlink(self, partition: int) -> None:
        could = self._could[self.leading[partition]]
        for member in self._members[partition]:
            if member in could:
                del could[member][partition]


def _path(came_by: Mapping[int, tuple[int, int]], end: int, start: int) -> list[tuple[int, int]]:
    path, broker = [], end
    while broker != start:
        partition, before = came_by[broker]
        path.append((partition, broker))
        broker = before
    return path

"""Replicas of partitions that are there: away from a broker, or to where they lie better, with few moves.

Only the target is decided here; a reassignment brings a partition there one step at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.errors import InvalidRequest
from tidelog.placement.loads import BrokerLoad


def drain(
    brokers: Sequence[BrokerLoad],
    partitions: Sequence[tuple[int, ...]],
    leaving: int,
    *,
    racks: Mapping[int, str] | None = None,
) -> list[tuple[int, ...]]:
    """The replicas of each partition with another broker in place of `leaving`; nothing else moves.

    `brokers` may get replicas, and their loads count what they hold of these partitions
    already; `racks` has the racks of the other replicas. Another member takes over what
    `leaving` preferably leads, so that leaders stay even. Raises `InvalidRequest` if no
    broker is left for a partition.
    """
    by_id = {broker.broker_id: broker for broker in brokers if broker.broker_id != leaving}
    rack_of = {**(racks or {}), **{broker.broker_id: broker.rack for broker in brokers}}
    replicas = {broker: load.replicas for broker, load in by_id.items()}
    leaders = {broker: load.leaders for broker, load in by_id.items()}
    targets = []
    for members in partitions:
        if leaving not in members:
            targets.append(members)
            continue
        stay = [member for member in members if member != leaving]
        new = _best_addition(by_id, replicas, stay, rack_of)
        if new is None:
            raise InvalidRequest(
                f"no broker is left that could hold a copy in place of broker {leaving}: "
                f"{len(members)} are needed, and {sorted({*by_id, *stay})} are there",
                field="broker",
            )
        replicas[new] += 1
        target = [new if member == leaving else member for member in members]
        if members[0] == leaving:
            leader = min(target, key=lambda member: (leaders.get(member, 0), member))
            leaders[leader] = leaders.get(leader, 0) + 1
            target = [leader, *(member for member in target if member != leader)]
        targets.append(tuple(target))
    return targets


def reassign(
    brokers: Sequence[BrokerLoad],
    partitions: Sequence[tuple[int, ...]],
    *,
    moves_max: int | None = None,
) -> list[tuple[int, ...]]:
    """The replicas of each partition so that racks are spread and brokers carry a like number.

    As few replicas move as that takes, at most `moves_max` (None: no bound). First whatever
    lies on brokers that are not among `brokers`, then what lies in too few racks, then from
    the brokers with most to those with fewest. Loads count what the brokers hold of these
    partitions now. Raises `InvalidRequest` if there are fewer brokers than copies.
    """
    by_id = {broker.broker_id: broker for broker in brokers}
    for members in partitions:
        if len(members) > len(by_id):
            raise InvalidRequest(
                f"{len(members)} copies need as many brokers, and {sorted(by_id)} are there",
                field="replication_factor",
            )
    moves = _Moves(by_id, [list(members) for members in partitions], moves_max)
    moves.off_strangers()
    moves.into_racks()
    moves.even_out()
    return [tuple(members) for members in moves.partitions]


class _Moves:
    """The state of `reassign`: where the replicas are so far."""

    def __init__(
        self, brokers: dict[int, BrokerLoad], partitions: list[list[int]], moves_max: int | None
    ) -> None:
        self.partitions = partitions
        self._brokers = brokers
        self._racks = {broker: load.rack for broker, load in brokers.items()}
        self._replicas = {broker: load.replicas for broker, load in brokers.items()}
        self._left = moves_max

    def off_strangers(self) -> None:
        for members in self.partitions:
            for stranger in [member for member in members if member not in self._brokers]:
                stay = [member for member in members if member != stranger]
                new = _best_addition(self._brokers, self._replicas, stay, self._racks)
                if new is None or not self._move(members, stranger, new):
                    return

    def into_racks(self) -> None:
        for members in self.partitions:
            while (better := self._better_spread(members)) is not None:
                if not self._move(members, *better):
                    return

    def even_out(self) -> None:
        """While a replica can go from one broker to another with at least two fewer."""
        held: dict[int, list[list[int]]] = {}
        for members in self.partitions:
            for member in members:
                held.setdefault(member, []).append(members)
        while (move := self._relieving(held)) is not None:
            members, old, new = move
            if not self._move(members, old, new):
                return
            held[old] = [other for other in held[old] if other is not members]
            held.setdefault(new, []).append(members)

    def _relieving(self, held: dict[int, list[list[int]]]) -> tuple[list[int], int, int] | None:
        by_load = sorted(self._brokers, key=lambda broker: (self._replicas[broker], broker))
        for old in reversed(by_load):
            for new in by_load:
                if self._replicas[new] > self._replicas[old] - 2:
                    break
                for members in held.get(old, ()):
                    if new not in members and self._crowding(members, old, new) <= self._crowding(members):
                        return members, old, new
        return None

    def _better_spread(self, members: list[int]) -> tuple[int, int] | None:
        """The swap that spreads `members` most; None: they are as spread as can be."""
        now = self._crowding(members)
        swaps = [
            (self._crowding(members, old, new), self._replicas[new] - self._replicas.get(old, 0), new, old)
            for old in members
            for new in self._brokers
            if new not in members
        ]
        best = min(swaps, default=None)
        return (best[3], best[2]) if best is not None and best[0] < now else None

    def _crowding(self, members: Sequence[int], old: int | None = None, new: int | None = None) -> int:
        """The smaller, the more evenly spread over racks; with `new` in place of `old`."""
        in_rack: dict[str, int] = {}
        for member in members:
            rack = self._racks.get(member if new is None or member != old else new, "")
            in_rack[rack] = in_rack.get(rack, 0) + 1
        return sum(count * count for count in in_rack.values())

    def _move(self, members: list[int], old: int, new: int) -> bool:
        """False: that would be one move too many."""
        if self._left is not None:
            if self._left == 0:
                return False
            self._left -= 1
        members[members.index(old)] = new
        self._replicas[new] += 1
        if old in self._replicas:
            self._replicas[old] -= 1
        return True


def _best_addition(
    brokers: dict[int, BrokerLoad],
    replicas: dict[int, int],
    members: Sequence[int],
    racks: Mapping[int, str],
) -> int | None:
    """The broker that joins `members`: in the emptiest rack, with the fewest replicas; None: none is left."""
    in_rack: dict[str, int] = {}
    for member in members:
        rack = racks.get(member, "")
        in_rack[rack] = in_rack.get(rack, 0) + 1
    return min(
        (broker for broker in brokers if broker not in members),
        key=lambda broker: (
            in_rack.get(brokers[broker].rack, 0),
            replicas[broker],
            brokers[broker].bytes,
            broker,
        ),
        default=None,
    )

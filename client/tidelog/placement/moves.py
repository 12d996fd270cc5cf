"""Replicas of partitions that are there: away from a broker, or to where they lie better, with few moves.

Only the target is decided here; a reassignment brings a partition there one step at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from tidelog.errors import InvalidRequest
from tidelog.placement.evening import Evening, Move
from tidelog.placement.leaders import first
from tidelog.placement.loads import BrokerLoad, Tally


def drain(
    brokers: Sequence[BrokerLoad],
    partitions: Sequence[tuple[int, ...]],
    leaving: int,
    *,
    racks: Mapping[int, str] | None = None,
    sizes: Sequence[int] | None = None,
) -> list[tuple[int, ...]]:
    """The replicas of each partition with another broker in place of `leaving`; nothing else moves.

    `brokers` may get replicas, and their loads count what they hold of these partitions
    already; `racks` has the racks of the other replicas, `sizes` the bytes of a copy of each partition (None:
    as many as there are on average). Another member takes over what `leaving` preferably leads, so that
    leaders stay even. Raises `InvalidRequest` if no broker is left for a partition.
    """
    tally = Tally(broker for broker in brokers if broker.broker_id != leaving)
    rack_of = {**(racks or {}), **{broker.broker_id: broker.rack for broker in brokers}}
    leaders = {broker.broker_id: broker.leaders for broker in brokers if broker.broker_id != leaving}
    targets = []
    for number, members in enumerate(partitions):
        if leaving not in members:
            targets.append(members)
            continue
        stay = [member for member in members if member != leaving]
        new = _best_addition(tally, stay, rack_of)
        if new is None:
            raise InvalidRequest(
                f"no broker is left that could hold a copy in place of broker {leaving}: "
                f"{len(members)} are needed, and {sorted({*tally.copies, *stay})} are there",
                field="broker",
            )
        tally.add(new, None if sizes is None else sizes[number])
        target = tuple(new if member == leaving else member for member in members)
        if members[0] == leaving:
            leader = min(target, key=lambda member: (leaders.get(member, 0), member))
            leaders[leader] = leaders.get(leader, 0) + 1
            target = first(target, leader)
        targets.append(target)
    return targets


def reassign(
    brokers: Sequence[BrokerLoad],
    partitions: Sequence[tuple[int, ...]],
    *,
    sizes: Sequence[int] | None = None,
    slack: float = 0.0,
    moves_max: int | None = None,
) -> list[tuple[int, ...]]:
    """The replicas of each partition so that racks are spread and brokers carry like numbers and bytes.

    As few replicas move as that takes, at most `moves_max` (None: no bound). First whatever lies on brokers
    that are not among `brokers`, then what lies in too few racks; these have to. Then from the brokers with
    most to those with fewest, where it is worth it (`evenness.worth`): between two that are apart by no more
    than `slack`, a part of the mean, nothing moves. `sizes` are the bytes of a copy of each partition; None:
    not known, and bytes do not count. Loads count what the brokers hold of these partitions now. Raises
    `InvalidRequest` if there are fewer brokers than copies.
    """
    by_id = {broker.broker_id: broker for broker in brokers}
    for members in partitions:
        if len(members) > len(by_id):
            raise InvalidRequest(
                f"{len(members)} copies need as many brokers, and {sorted(by_id)} are there",
                field="replication_factor",
            )
    moves = _Moves(by_id, partitions, sizes or [0] * len(partitions), moves_max)
    moves.off_strangers()
    moves.into_racks()
    moves.even_out(slack)
    return [
        # Copies may have changed places and come back to one another's.
        before if set(before) == set(after) else tuple(after)
        for before, after in zip(partitions, moves.partitions, strict=True)
    ]


class _Moves:
    """The state of `reassign`: where the replicas are so far."""

    def __init__(
        self,
        brokers: Mapping[int, BrokerLoad],
        partitions: Sequence[tuple[int, ...]],
        sizes: Sequence[int],
        moves_max: int | None,
    ) -> None:
        self.partitions = [list(members) for members in partitions]
        self._racks = {broker: load.rack for broker, load in sorted(brokers.items())}
        self._tally = Tally(brokers.values())
        self._sizes = sizes
        self._left = moves_max

    def off_strangers(self) -> None:
        for number, members in enumerate(self.partitions):
            for stranger in [member for member in members if member not in self._racks]:
                stay = [member for member in members if member != stranger]
                new = _best_addition(self._tally, stay, self._racks)
                if new is None or not self._move(Move(number, stranger, new)):
                    return

    def into_racks(self) -> None:
        if len(set(self._racks.values())) == 1:
            return
        least = cache(self._least_crowding)
        for number, members in enumerate(self.partitions):
            while self._crowding(members) > least(len(members)):
                old, new = self._better_spread(members)
                if not self._move(Move(number, old, new)):
                    return

    def even_out(self, slack: float) -> None:
        if self._left == 0 or not self.partitions:
            return
        evening = Evening(self._tally, self._racks, self.partitions, self._sizes, slack)
        while step := evening.best(self._left):
            for move in step:
                before = tuple(self.partitions[move.partition])
                self._move(move)
                evening.moved(move, before)

    def _least_crowding(self, copies: int) -> int:
        """Of so many copies, each on a broker of its own: one more where the fewest are, again and again."""
        room: dict[str, int] = {}
        for rack in self._racks.values():
            room[rack] = room.get(rack, 0) + 1
        taken = dict.fromkeys(room, 0)
        for _ in range(copies):
            taken[min((rack for rack in room if taken[rack] < room[rack]), key=taken.__getitem__)] += 1
        return sum(count * count for count in taken.values())

    def _better_spread(self, members: Sequence[int]) -> tuple[int, int]:
        """The swap that spreads `members` most; of several, to who carries least."""
        _, _, new, old = min(
            (
                self._crowding(members, old, new),
                self._tally.weight(new) - self._tally.weight(old),
                new,
                old,
            )
            for old in members
            for new in self._racks
            if new not in members
        )
        return old, new

    def _crowding(self, members: Sequence[int], old: int | None = None, new: int | None = None) -> int:
        """The smaller, the more evenly spread over racks; with `new` in place of `old`."""
        in_rack: dict[str, int] = {}
        for member in members:
            rack = self._racks.get(member if new is None or member != old else new, "")
            in_rack[rack] = in_rack.get(rack, 0) + 1
        return sum(count * count for count in in_rack.values())

    def _move(self, move: Move) -> bool:
        """False: that would be one move too many."""
        if self._left is not None:
            if self._left == 0:
                return False
            self._left -= 1
        members = self.partitions[move.partition]
        members[members.index(move.old)] = move.new
        self._tally.remove(move.old, self._sizes[move.partition])
        self._tally.add(move.new, self._sizes[move.partition])
        return True


def _best_addition(tally: Tally, members: Sequence[int], racks: Mapping[int, str]) -> int | None:
    """The broker that joins `members`: in the emptiest rack, with the least to carry; None: none is left."""
    in_rack: dict[str, int] = {}
    for member in members:
        rack = racks.get(member, "")
        in_rack[rack] = in_rack.get(rack, 0) + 1
    return min(
        (broker for broker in tally.copies if broker not in members),
        key=lambda broker: (in_rack.get(racks[broker], 0), tally.weight(broker), broker),
        default=None,
    )

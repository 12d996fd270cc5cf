"""Moves of existing replicas: away from a broker, or for more even load, with few moves.

Only the target is computed here; a reassignment moves a partition to it step by step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from tidelog.errors import InvalidRequest
from tidelog.placement.evening import Evening, Move
from tidelog.placement.leaders import first
from tidelog.placement.loads import BrokerLoad, Tally
from tidelog.wording import listed


def drain(
    brokers: Sequence[BrokerLoad],
    partitions: Sequence[tuple[int, ...]],
    leaving: int,
    *,
    racks: Mapping[int, str] | None = None,
    sizes: Sequence[int] | None = None,
) -> list[tuple[int, ...]]:
    """The replicas of each partition with another broker instead of `leaving`; no other replica moves.

    `brokers` may get replicas; their loads include what they hold of these partitions now. `racks` has the
    racks of the other replicas, `sizes` the bytes of a replica of each partition (None: the average).
    Another replica becomes the preferred leader instead of `leaving`, so that leaders stay even. Raises
    `InvalidRequest` if no broker is left for a partition.
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
                f"no broker is left for a replica of broker {leaving}: {len(members)} brokers are needed, "
                f"and there are only: {listed(sorted({*tally.copies, *stay}))}",
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
    """The replicas of each partition, spread over racks, with about equal replicas and bytes per broker.

    As few replicas move as possible, at most `moves_max` (None: no bound). First the replicas on brokers that
    are not in `brokers`, then those in too few racks; these must move. Then replicas move from the brokers
    with the most to those with the fewest if it is worth it (`evenness.worth`): nothing moves between two
    brokers whose difference is at most `slack`, a fraction of the mean. `sizes` are the bytes of a replica of
    each partition; None: not known, and bytes do not count. The loads include what the brokers hold of these
    partitions now. Raises `InvalidRequest` if there are fewer brokers than replicas.
    """
    by_id = {broker.broker_id: broker for broker in brokers}
    for members in partitions:
        if len(members) > len(by_id):
            raise InvalidRequest(
                f"{len(members)} replicas need {len(members)} brokers, and there are only: "
                f"{listed(sorted(by_id))}",
                field="replication_factor",
            )
    moves = _Moves(by_id, partitions, sizes or [0] * len(partitions), moves_max)
    moves.off_strangers()
    moves.into_racks()
    moves.even_out(slack)
    return [
        # Two replicas may have changed places and back, which only changes their order.
        before if set(before) == set(after) else tuple(after)
        for before, after in zip(partitions, moves.partitions, strict=True)
    ]


class _Moves:
    """The state of `reassign`: the replicas of each partition so far."""

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
        """The crowding of so many replicas when they are spread over racks as evenly as possible."""
        room: dict[str, int] = {}
        for rack in self._racks.values():
            room[rack] = room.get(rack, 0) + 1
        taken = dict.fromkeys(room, 0)
        for _ in range(copies):
            taken[min((rack for rack in room if taken[rack] < room[rack]), key=taken.__getitem__)] += 1
        return sum(count * count for count in taken.values())

    def _better_spread(self, members: Sequence[int]) -> tuple[int, int]:
        """The replacement (old, new) that spreads `members` most; of several, to the least loaded broker."""
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
        """How unevenly `members`, with `new` instead of `old`, are spread over racks; smaller is better."""
        in_rack: dict[str, int] = {}
        for member in members:
            rack = self._racks.get(member if new is None or member != old else new, "")
            in_rack[rack] = in_rack.get(rack, 0) + 1
        return sum(count * count for count in in_rack.values())

    def _move(self, move: Move) -> bool:
        """Makes a move; False: `moves_max` is reached."""
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
    """The broker to add to `members`: in the emptiest rack, with the least load; None: none is left."""
    in_rack: dict[str, int] = {}
    for member in members:
        rack = racks.get(member, "")
        in_rack[rack] = in_rack.get(rack, 0) + 1
    return min(
        (broker for broker in tally.copies if broker not in members),
        key=lambda broker: (in_rack.get(racks[broker], 0), tally.weight(broker), broker),
        default=None,
    )

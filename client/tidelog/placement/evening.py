"""The next replica to move, or the next two to exchange, for more even numbers and bytes per broker.

`moves` makes these moves until none is worth it. The replica to move is looked up, not searched: for two
brokers with different loads there is one best size, and the replicas that may move between them are sorted
by size.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from tidelog.placement.evenness import LEAST_WORTH, worth
from tidelog.placement.loads import Tally


class Move(NamedTuple):
    """A replica of `partition` moves from broker `old` to broker `new`."""

    partition: int
    old: int
    new: int


Sized: TypeAlias = list[tuple[int, int]]
"""(size in bytes, partition), sorted."""


class Evening:
    """Finds the best next move. The loads are in `tally`; the caller reports each move with `moved`."""

    def __init__(
        self,
        tally: Tally,
        racks: Mapping[int, str],
        partitions: Sequence[Sequence[int]],
        sizes: Sequence[int],
        slack: float,
    ) -> None:
        self._tally = tally
        self._racks = racks
        self._one_rack = len(set(racks.values())) == 1
        self._partitions = partitions
        self._sizes = sizes
        self._slack = slack
        self._copies_mean = sum(tally.copies.values()) / len(tally.copies)
        self._bytes_mean = sum(tally.bytes.values()) / len(tally.bytes)
        self._held: dict[int, dict[int, None]] = {broker: {} for broker in tally.copies}
        for number, members in enumerate(partitions):
            for member in members:
                if member in self._held:
                    self._held[member][number] = None
        self._movable: dict[tuple[int, int], Sized] = {}
        """The replicas that may move, by (old, new) broker; filled when first needed."""

    def __repr__(self) -> str:
        return f"<Evening partitions={len(self._partitions)} {self._tally}>"

    def best(self, moves_max: int | None) -> tuple[Move, ...]:
        """One move; two moves if no single one is worth it; none if no move is worth it."""
        if moves_max == 0:
            return ()
        move = self._best_move()
        if move is not None:
            return (move,)
        return () if moves_max == 1 else self._best_exchange()

    def moved(self, move: Move, before: Sequence[int]) -> None:
        """Updates the state after `move`; `before` were the replicas of its partition."""
        number, size = move.partition, self._sizes[move.partition]
        self._held[move.old].pop(number)
        self._held[move.new][number] = None
        for (old, new), sized in self._movable.items():
            was, may = self._may(before, old, new), self._may(self._partitions[number], old, new)
            if was and not may:
                del sized[bisect_left(sized, (size, number))]
            elif may and not was:
                insort(sized, (size, number))

    # --- one copy

    def _best_move(self) -> Move | None:
        """The best single move. Pairs of brokers are tried by possible gain, until none can gain more."""
        best, most = None, LEAST_WORTH
        for bound, old, new in self._pairs(exchange=False):
            if bound <= most:
                break
            sized = self._sized(old, new)
            for size, number in _around(sized, self._ideal(old, new, -self._slack)):
                found = self._worth_of_copy(old, new) + self._worth_of_bytes(old, new, size)
                if found > most:
                    best, most = Move(number, old, new), found
        return best

    # --- two replicas

    def _best_exchange(self) -> tuple[Move, ...]:
        """The best exchange of a larger replica for a smaller one: it evens out bytes, not numbers."""
        best: tuple[Move, ...] = ()
        most = LEAST_WORTH
        for bound, old, new in self._pairs(exchange=True):
            if bound <= most:
                break
            ideal, back = self._ideal(old, new, self._slack), self._sized(new, old)
            for size, number in self._sized(old, new):
                for other_size, other in _around(back, size - ideal):
                    found = self._worth_of_exchange(old, new, size, other_size)
                    if found > most:
                        best, most = (Move(number, old, new), Move(other, new, old)), found
        return best

    # --- worth

    def _pairs(self, *, exchange: bool) -> list[tuple[float, int, int]]:
        """(bound, old, new): no move from `old` to `new` is worth more than the bound; largest first."""
        pairs = []
        for old in self._tally.copies:
            for new in self._tally.copies:
                if old != new:
                    half = self._ideal(old, new, -self._slack) / self._bytes_mean if self._bytes_mean else 0.0
                    copies = self._price_of_two() if exchange else self._worth_of_copy(old, new)
                    bound = copies + 2 * max(0.0, half) ** 2
                    if bound > LEAST_WORTH:
                        pairs.append((bound, old, new))
        pairs.sort(key=lambda pair: (-pair[0], pair[1], pair[2]))
        return pairs

    def _ideal(self, old: int, new: int, slack: float) -> float:
        """The bytes that should move from `old` to `new`."""
        return (self._tally.bytes[old] - self._tally.bytes[new] + slack * self._bytes_mean) / 2

    def _worth_of_copy(self, old: int, new: int) -> float:
        copies = self._tally.copies
        return worth(copies[old], copies[new], 1, self._copies_mean, self._slack)

    def _worth_of_bytes(self, old: int, new: int, size: int) -> float:
        carried = self._tally.bytes
        return worth(carried[old], carried[new], size, self._bytes_mean, self._slack)

    def _price_of_two(self) -> float:
        return -4 * self._slack / self._copies_mean

    def _worth_of_exchange(self, old: int, new: int, size: int, other: int) -> float:
        carried, mean = self._tally.bytes, self._bytes_mean
        gain = worth(carried[old], carried[new], size - other, mean, 0.0)
        return gain + self._price_of_two() - 2 * self._slack * (size + other) / mean

    # --- replicas that may move

    def _sized(self, old: int, new: int) -> Sized:
        found = self._movable.get((old, new))
        if found is None:
            found = sorted(
                (self._sizes[number], number)
                for number in self._held[old]
                if self._may(self._partitions[number], old, new)
            )
            self._movable[old, new] = found
        return found

    def _may(self, members: Sequence[int], old: int, new: int) -> bool:
        """Whether a replica may move: the partition must not be less spread over racks after it."""
        if old not in members or new in members:
            return False
        if self._one_rack:
            return True
        racks = self._racks
        leaves, joins = racks[old], racks[new]
        if leaves == joins:
            return True
        in_racks = [racks.get(member) for member in members]
        return in_racks.count(joins) < in_racks.count(leaves)


def _around(sized: Sized, ideal: float) -> Iterator[tuple[int, int]]:
    """The next smaller size than `ideal`, and the next size that is not smaller."""
    at = bisect_left(sized, (ideal,))
    if at > 0:
        yield sized[at - 1]
    if at < len(sized):
        yield sized[at]

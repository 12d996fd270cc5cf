"""How well `tidelog.placement` places: compared with the best placement of small clusters, and with chance.

``python -m bench.placement [--cases 400] [--seeds 21]`` prints the figures. Only a few large decisions
are timed; all other figures are the same in each run. `tests/placement/test_against_optimum.py` asserts
bounds for them.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

from tidelog.placement import BrokerLoad, cost, place, prefer, reassign

Placement: TypeAlias = list[tuple[int, ...]]
"""The replicas of each partition, the preferred leader first."""

SLACK: Final = 0.1
"""The slack that the operator uses."""

LEAST_GAP: Final = 1e-9
"""A smaller gap is a rounding error."""

LARGE_PARTITIONS: Final = 1_000
LARGE_COPIES: Final = 3
STREAM_PARTITIONS: Final = 10

SMALL_SIZES: Final[tuple[Sequence[int], ...]] = ([0], [1, 2, 5, 10, 40], range(1, 100), range(50, 100))


@dataclass(frozen=True, slots=True)
class Small:
    """Some partitions, placed at random on few brokers."""

    racks: tuple[str, ...]
    sizes: tuple[int, ...]
    placement: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """How far a decision is from the best one."""

    cost: float
    """The cost above the least cost of any placement."""
    moves: int
    """Copies that moved beyond the fewest moves to a placement of this cost or a lower one."""
    least_cost: float
    moves_made: int


@dataclass(frozen=True, slots=True)
class Evenness:
    """The share of the fullest broker, as a multiple of the mean."""

    copies: float
    bytes: float
    leaders: float

    def __str__(self) -> str:
        return f"{self.copies:6.3f} {self.bytes:6.3f} {self.leaders:8.3f}"


@dataclass(frozen=True, slots=True)
class Spread:
    """A placement of many partitions, before and after it was made even."""

    before: Evenness
    after: Evenness
    moved: int
    least: int
    """Copies that brokers below the mean lack: all of these must move."""
    moved_bytes: float
    """A fraction of all bytes."""
    least_bytes: float


def loads(
    placement: Sequence[tuple[int, ...]], sizes: Sequence[int], racks: Sequence[str]
) -> list[BrokerLoad]:
    """The loads of brokers 0, 1, …, each in its rack."""
    copies = Counter(itertools.chain.from_iterable(placement))
    leaders = Counter(members[0] for members in placement)
    held: Counter[int] = Counter()
    for members, size in zip(placement, sizes, strict=True):
        held.update(dict.fromkeys(members, size))
    return [
        BrokerLoad(broker, rack, copies[broker], leaders[broker], held[broker])
        for broker, rack in enumerate(racks)
    ]


def improved(
    placement: Sequence[tuple[int, ...]], sizes: Sequence[int], racks: Sequence[str], slack: float
) -> Placement:
    """The placement that the operator decides: copies first, then leaders."""
    moved = reassign(loads(placement, sizes, racks), placement, sizes=sizes, slack=slack)
    return prefer(loads(moved, sizes, racks), moved, slack=slack)


def moves(before: Sequence[tuple[int, ...]], after: Sequence[tuple[int, ...]]) -> list[int]:
    """How many copies of each partition moved."""
    return [len({*new} - {*old}) for old, new in zip(before, after, strict=True)]


# --- small clusters, and every placement there is


def small_cases(count: int, *, more: bool = False) -> Iterator[Small]:
    """Cases of 3 to 5 partitions on 3 or 4 brokers, most with different sizes, that allow several
    placements.

    With `more` 6 to 8 partitions on 2 or 3 brokers, where moves and exchanges of single copies may miss the
    best.
    """
    seeds = itertools.count()
    while count:
        rng = random.Random(next(seeds))
        brokers = rng.randint(2, 3) if more else rng.randint(3, 4)
        partitions = rng.randint(6, 8) if more else rng.randint(3, 5)
        racks = "aaaa" if more else rng.choice(("aaaa", "aaaa", "abcd", "aabb", "abca"))
        copies = rng.randint(1, min(3, brokers - 1))
        kinds = rng.choice((range(1, 100), range(50, 100)) if more else SMALL_SIZES)
        case = Small(
            tuple(racks[:brokers]),
            tuple(rng.choice(kinds) for _ in range(partitions)),
            tuple(tuple(rng.sample(range(brokers), copies)) for _ in range(partitions)),
        )
        if len(_spread_choices(case)) > 1:
            count -= 1
            yield case


def gap(case: Small) -> Gap:
    """Compares the decision without slack with the best of all placements that spread over the racks."""
    ours = improved(case.placement, case.sizes, case.racks, 0.0)
    mine = cost(loads(ours, case.sizes, case.racks))
    every = [(_cost(sets, case), sum(moves(case.placement, sets))) for sets in _spread_sets(case)]
    least = min(found for found, _ in every)
    made = sum(moves(case.placement, ours))
    return Gap(
        cost=mine - least,
        moves=made - min(count for found, count in every if found <= mine + LEAST_GAP),
        least_cost=least,
        moves_made=made,
    )


def crowding(members: Sequence[int], racks: Sequence[str]) -> int:
    """A measure of how unevenly the members are spread over racks."""
    return sum(count * count for count in Counter(racks[member] for member in members).values())


def _spread_choices(case: Small) -> list[tuple[int, ...]]:
    """The sets of brokers that a partition may be placed on."""
    choices = list(itertools.combinations(range(len(case.racks)), len(case.placement[0])))
    least = min(crowding(members, case.racks) for members in choices)
    return [members for members in choices if crowding(members, case.racks) == least]


def _spread_sets(case: Small) -> Iterator[tuple[tuple[int, ...], ...]]:
    return itertools.product(_spread_choices(case), repeat=len(case.placement))


def _cost(sets: Sequence[tuple[int, ...]], case: Small) -> float:
    """The cost with the best leaders."""
    return cost(loads(_best_led(tuple(sorted(sets))), [0] * len(sets), case.racks)) + cost(
        [BrokerLoad(load.broker_id, bytes=load.bytes) for load in loads(sets, case.sizes, case.racks)]
    )


@cache
def _best_led(sets: tuple[tuple[int, ...], ...]) -> Placement:
    leaders = min(
        itertools.product(*sets),
        key=lambda leading: sum(count * count for count in Counter(leading).values()),
    )
    return [
        (leader, *(member for member in members if member != leader))
        for members, leader in zip(sets, leaders, strict=True)
    ]


# --- large clusters, and chance


def evenness(placement: Sequence[tuple[int, ...]], sizes: Sequence[int], racks: Sequence[str]) -> Evenness:
    found = loads(placement, sizes, racks)
    return Evenness(
        _fullest([one.replicas for one in found]),
        _fullest([one.bytes for one in found]),
        _fullest([one.leaders for one in found]),
    )


def large_sizes(rng: random.Random, count: int = LARGE_PARTITIONS) -> list[int]:
    """Most partitions are small and a few are large: log-normal, one in a hundred ten times the median."""
    return [round(1e9 * rng.lognormvariate(0, 1)) for _ in range(count)]


def by_chance(rng: random.Random, brokers: int, count: int = LARGE_PARTITIONS) -> Placement:
    return [tuple(rng.sample(range(brokers), LARGE_COPIES)) for _ in range(count)]


def placed(sizes: Sequence[int], racks: Sequence[str]) -> Placement:
    """Places streams one after the other; a stream has its full size before the next is placed."""
    found: Placement = []
    for _ in range(0, len(sizes), STREAM_PARTITIONS):
        found += place(loads(found, sizes[: len(found)], racks), STREAM_PARTITIONS, LARGE_COPIES)
    return found


def new(seed: int, racks: Sequence[str]) -> tuple[Evenness, Evenness]:
    """The same partitions, placed by `tidelog.placement` and by chance."""
    rng = random.Random(seed)
    sizes = large_sizes(rng)
    by_luck = by_chance(rng, len(racks))
    return evenness(placed(sizes, racks), sizes, racks), evenness(by_luck, sizes, racks)


def grown(seed: int) -> Spread:
    """Adds two brokers to an even cluster of eight."""
    sizes = large_sizes(random.Random(seed))
    return _spread(placed(sizes, [""] * 8), sizes, [""] * 10)


def scattered(seed: int, racks: Sequence[str] = ()) -> Spread:
    """Begins with a placement by chance on ten brokers."""
    rng = random.Random(seed)
    sizes = large_sizes(rng)
    return _spread(by_chance(rng, 10), sizes, racks or [""] * 10)


def _spread(placement: Placement, sizes: Sequence[int], racks: Sequence[str]) -> Spread:
    after = improved(placement, sizes, racks, SLACK)
    moved, found = moves(placement, after), loads(placement, sizes, racks)
    total = sum(load.bytes for load in found)
    return Spread(
        before=evenness(placement, sizes, racks),
        after=evenness(after, sizes, racks),
        moved=sum(moved),
        least=round(_lack([load.replicas for load in found])),
        moved_bytes=sum(count * size for count, size in zip(moved, sizes, strict=True)) / total,
        least_bytes=_lack([load.bytes for load in found]) / total,
    )


def _fullest(amounts: Sequence[int]) -> float:
    return max(amounts) * len(amounts) / sum(amounts)


def _lack(amounts: Sequence[int]) -> float:
    mean = sum(amounts) / len(amounts)
    return sum(max(0.0, mean - amount) for amount in amounts)


def median(found: Sequence[Evenness]) -> Evenness:
    return Evenness(
        statistics.median(one.copies for one in found),
        statistics.median(one.bytes for one in found),
        statistics.median(one.leaders for one in found),
    )


# --- what is printed


def _print_small(name: str, found: Sequence[Gap]) -> None:
    count, worse = len(found), sorted(one.cost for one in found)
    exact = sum(gap < LEAST_GAP for gap in worse)
    at = {percent: worse[min(count - 1, count * percent // 100)] for percent in (90, 95, 99)}
    beyond = Counter(one.moves for one in found)
    least = statistics.fmean(one.least_cost for one in found)
    print(f"{count} clusters of {name}, against every placement:")
    print(f"  as even as possible: {exact}; cost above the least (which is {least:.3f} on average):", end=" ")
    print(f"{_pairs(at)} max {worse[-1]:.4f}")
    print(f"  moves beyond the fewest to that evenness: {dict(sorted(beyond.items()))}", end=" ")
    print(f"of {sum(one.moves_made for one in found)} in all")


def _pairs(at: Mapping[int, float]) -> str:
    return " ".join(f"p{percent} {value:.4f}" for percent, value in at.items())


def _print_new(seeds: int) -> None:
    print(
        f"\n{LARGE_PARTITIONS} new partitions of {LARGE_COPIES} copies on 10 brokers, {seeds} seeds, medians;"
    )
    print("the fullest broker, 1 = the mean:         copies  bytes  leaders")
    for name, racks in (("no zones", [""] * 10), ("5 zones", list("aabbccddee"))):
        both = [new(seed, racks) for seed in range(seeds)]
        ours, chance = [ours for ours, _ in both], [chance for _, chance in both]
        print(f"  {name:10} placement                   {median(ours)}")
        print(f"  {'':10}   the worst of each         {_worst(ours)}")
        print(f"  {'':10} chance                      {median(chance)}")
        print(f"  {'':10}   the worst of each         {_worst(chance)}")


def _worst(found: Sequence[Evenness]) -> Evenness:
    return Evenness(
        max(one.copies for one in found),
        max(one.bytes for one in found),
        max(one.leaders for one in found),
    )


def _print_spread(name: str, found: Sequence[Spread]) -> None:
    print(f"  {name:28} before    {median([one.before for one in found])}")
    print(f"  {'':28} after     {median([one.after for one in found])}")
    moved, least = (statistics.median(getattr(one, what) for one in found) for what in ("moved", "least"))
    data, fewest = (
        statistics.median(getattr(one, what) for one in found) for what in ("moved_bytes", "least_bytes")
    )
    copies = LARGE_PARTITIONS * LARGE_COPIES
    print(f"    moved {moved:.0f} of {copies} copies (the fewest for an even share: {least:.0f}),", end=" ")
    print(f"{data:.1%} of the bytes (the fewest: {fewest:.1%})")


def _print_speed(partitions: int, brokers: int) -> None:
    rng = random.Random(0)
    sizes, racks = large_sizes(rng, partitions), [""] * brokers
    lying = by_chance(rng, brokers - 2, partitions)
    for name, most in (("all moves", None), ("the next 20 moves", 20)):
        began = time.process_time()
        after = reassign(loads(lying, sizes, racks), lying, sizes=sizes, slack=SLACK, moves_max=most)
        took = time.process_time() - began
        print(f"  {name}: {sum(moves(lying, after))} in {took:.3f} s of CPU", end="")
        began = time.process_time()
        prefer(loads(after, sizes, racks), after, slack=SLACK)
        print(f", leaders in {time.process_time() - began:.3f} s")
    began = time.process_time()
    place(loads(lying, sizes, racks), partitions, LARGE_COPIES)
    print(f"  as many new partitions: {time.process_time() - began:.3f} s")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.placement", description="Measures how well tidelog.placement places partitions."
    )
    parser.add_argument(
        "--cases", type=int, default=400, help="small clusters of each kind. Default: %(default)s"
    )
    parser.add_argument(
        "--seeds", type=int, default=21, help="large clusters of each kind. Default: %(default)s"
    )
    options = parser.parse_args(arguments)
    few = [gap(case) for case in small_cases(options.cases)]
    _print_small("3-5 partitions on 3-4 brokers", few)
    more = [gap(case) for case in small_cases(options.cases, more=True)]
    _print_small("6-8 partitions on 2-3 brokers", more)
    _print_new(options.seeds)
    print(f"\nMade even, with a slack of {SLACK:.0%}:              copies  bytes  leaders")
    _print_spread("2 brokers added to 8", [grown(seed) for seed in range(options.seeds)])
    _print_spread("from chance, no zones", [scattered(seed) for seed in range(options.seeds)])
    zones = list("aabbccddee")
    _print_spread("from chance, 5 zones", [scattered(seed, racks=zones) for seed in range(options.seeds)])
    print("\n5000 partitions of 3 copies on 8 of 10 brokers:")
    _print_speed(5_000, 10)


if __name__ == "__main__":
    main()

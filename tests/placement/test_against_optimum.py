"""Placement against the best there is where every placement can be tried, and against chance where not.

`bench.placement` makes the cases, and prints the figures of more of them.
"""

from __future__ import annotations

import pytest
from bench.placement import (
    LEAST_GAP,
    Gap,
    gap,
    grown,
    median,
    new,
    scattered,
    small_cases,
)

pytestmark = pytest.mark.slow

SEEDS = range(5)


@pytest.fixture(scope="module")
def few() -> list[Gap]:
    """3 to 5 partitions."""
    return [gap(case) for case in small_cases(60)]


@pytest.fixture(scope="module")
def more() -> list[Gap]:
    """6 to 8."""
    return [gap(case) for case in small_cases(60, more=True)]


def test_of_few_partitions_no_placement_is_more_even(few: list[Gap]) -> None:
    assert max(one.cost for one in few) < LEAST_GAP
    assert sum(one.moves_made for one in few) > 60, "there was something to do"


def test_of_more_partitions_few_placements_are_and_hardly(more: list[Gap]) -> None:
    assert sum(one.cost < LEAST_GAP for one in more) >= 0.9 * len(more)
    assert max(one.cost for one in more) < 0.05


def test_hardly_more_copies_move_than_it_takes_to_be_as_even(few: list[Gap], more: list[Gap]) -> None:
    for found, beyond_max, part in ((few, 2, 0.1), (more, 4, 0.2)):
        assert max(one.moves for one in found) <= beyond_max
        assert sum(one.moves for one in found) <= part * sum(one.moves_made for one in found)


@pytest.mark.parametrize("racks", ["a" * 10, "aabbccddee"])
def test_many_new_partitions_lie_more_even_than_chance_puts_them(racks: str) -> None:
    """By medians: of a single one nobody knows how large it will be."""
    both = [new(seed, racks) for seed in SEEDS]
    ours, chance = median([ours for ours, _ in both]), median([chance for _, chance in both])

    assert ours.copies - 1 < 0.75 * (chance.copies - 1)
    assert ours.bytes - 1 < 0.6 * (chance.bytes - 1)
    assert ours.leaders - 1 < 0.1 * (chance.leaders - 1)


def test_brokers_that_are_added_get_their_share_and_hardly_more_moves_than_that() -> None:
    found = [grown(seed) for seed in SEEDS]

    for one in found:
        assert max(one.after.copies, one.after.bytes, one.after.leaders) < 1.06 < one.before.copies
        assert one.moved <= one.least
        assert one.moved_bytes <= 1.1 * one.least_bytes


def test_what_chance_scattered_becomes_even_with_few_moves() -> None:
    found = [scattered(seed) for seed in SEEDS]

    assert median([one.before for one in found]).bytes > 1.1
    for one in found:
        assert max(one.after.copies, one.after.bytes, one.after.leaders) < 1.1
        assert one.moved <= one.least
        assert one.moved_bytes <= one.least_bytes

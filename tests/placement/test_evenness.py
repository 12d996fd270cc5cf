"""The one number that placement makes smaller, and what a move has to be worth."""

from __future__ import annotations

import pytest

from tidelog.placement import BrokerLoad, cost
from tidelog.placement.evenness import worth


@pytest.mark.parametrize(
    ("brokers", "expected"),
    [
        ([], 0.0),
        ([(0, 0, 0), (0, 0, 0)], 0.0),
        ([(4, 2, 900), (4, 2, 900)], 0.0),
        # Each a tenth more or less than the mean.
        ([(11, 0, 0), (9, 0, 0)], 0.02),
        ([(0, 11, 0), (0, 9, 0)], 0.02),
        ([(0, 0, 1100), (0, 0, 900)], 0.02),
        ([(11, 9, 1100), (9, 11, 900)], 0.06),
        # Twice as far weighs four times as much.
        ([(12, 0, 0), (8, 0, 0)], 0.08),
        # One broker of two, and of four, has everything.
        ([(6, 0, 0), (0, 0, 0)], 2.0),
        ([(6, 0, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0)], 12.0),
    ],
)
def test_the_cost_of_what_brokers_carry(brokers: list[tuple[int, int, int]], expected: float) -> None:
    loads = [
        BrokerLoad(number, "", copies, leaders, held)
        for number, (copies, leaders, held) in enumerate(brokers)
    ]

    assert cost(loads) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("here", "there", "amount", "slack", "expected"),
    [
        # From a fifth more and a fifth less than the mean to none: two twenty-fifths.
        (60, 40, 10, 0.0, 0.08),
        (60, 40, 20, 0.0, 0.0),
        (40, 60, 10, 0.0, -0.24),
        # The price is as much as the fall where half of what they are apart would move.
        (60, 40, 10, 0.2, 0.0),
        (60, 40, 5, 0.2, 0.02),
        # Apart by no more than the slack.
        (55, 50, 1, 0.1, -0.0008),
        (50, 50, 5, 0.1, -0.04),
    ],
)
def test_a_move_is_worth_what_the_cost_falls_by_less_its_price(
    here: int, there: int, amount: int, slack: float, expected: float
) -> None:
    assert worth(here, there, amount, 50.0, slack) == pytest.approx(expected)


def test_without_slack_a_move_is_worth_what_the_cost_falls_by() -> None:
    before, after = ([BrokerLoad(0, replicas=70), BrokerLoad(1, replicas=30)],
                     [BrokerLoad(0, replicas=58), BrokerLoad(1, replicas=42)])  # fmt: skip

    assert worth(70, 30, 12, 50.0, 0.0) == pytest.approx(cost(before) - cost(after))


def test_where_there_is_nothing_nothing_is_worth_moving() -> None:
    assert worth(0, 0, 0, 0.0, 0.1) == 0.0

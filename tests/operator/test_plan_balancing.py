"""Copies and leaders where they lie best: what moves, how much at a time, and when nothing does."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from support.kube.situations import Brokers, stream
from tidelog_operator import actions as do
from tidelog_operator.plan.balancing import plan_balancing, plan_leaders

ON_THREE = tuple(tuple((first + more) % 3 for more in range(3)) for first in (0, 1, 2)) * 5


def held(brokers: Brokers) -> Counter[int]:
    parts = [one for each in brokers.streams.values() for one in each.partitions]
    return Counter(broker for one in parts for broker in one.replicas)


def settle(brokers: Brokers, at_once: int = 4) -> int:
    """How many partitions moved, until nothing did."""
    moved = 0
    for _ in range(60):
        actions = plan_balancing(brokers.view(), at_once)
        if not actions:
            return moved
        for action in actions:
            assert isinstance(action, do.Reassign)
            assert 0 < len(action.moves) <= at_once
            moved += len(action.moves)
            brokers.do(action)
    raise AssertionError("it goes on for ever")


def test_new_brokers_get_their_share_and_no_more_moves_than_that() -> None:
    brokers = Brokers(5, stream("orders", ON_THREE))

    moved = settle(brokers)

    # 45 copies on five brokers are nine each; the two new ones get theirs, and nobody else anything.
    assert set(held(brokers).values()) == {9}
    assert moved <= 18


def test_what_lies_well_stays() -> None:
    assert plan_balancing(Brokers(3, stream("orders", ON_THREE)).view(), 20) == ()


def test_copies_are_spread_over_zones() -> None:
    brokers = Brokers(
        4, stream("orders", ((0, 1), (0, 1), (2, 3), (2, 3))), zones={0: "a", 1: "a", 2: "b", 3: "b"}
    )

    settle(brokers)

    for one in brokers.streams["orders"].partitions:
        assert {brokers.zones[broker] for broker in one.replicas} == {"a", "b"}


def test_nothing_moves_while_somebody_is_away_or_cordoned() -> None:
    for state in ("fenced", "cordoned", "stopping"):
        brokers = Brokers(5, stream("orders", ON_THREE), states={1: state})
        assert plan_balancing(brokers.view(), 20) == ()


def test_what_moves_already_leaves_less_room() -> None:
    orders = stream("orders", ON_THREE)
    parts = list(orders.partitions)
    for number in range(3):
        parts[number] = replace(parts[number], replicas=(0, 1, 2, 3), adding=(3,), removing=(2,))
    brokers = Brokers(5, replace(orders, partitions=tuple(parts)))

    (reassign,) = plan_balancing(brokers.view(), 4)

    assert isinstance(reassign, do.Reassign)
    assert len(reassign.moves) == 1
    assert reassign.moves[0].partition >= 3
    assert plan_balancing(brokers.view(), 3) == ()


def test_leaders_go_back_to_those_that_are_preferred_and_there() -> None:
    orders = stream("orders", ((0, 1, 2), (1, 2, 0), (2, 0, 1)))
    other = stream("other", ((0, 1, 2),))
    parts = list(orders.partitions)
    parts[1] = replace(parts[1], leader=2)
    elsewhere = replace(orders, partitions=tuple(parts))

    assert plan_leaders(Brokers(3, orders, other).view()) == ()
    assert plan_leaders(Brokers(3, elsewhere, other).view()) == (do.ElectPreferred(("orders",)),)
    assert plan_leaders(Brokers(3, elsewhere, states={1: "fenced"}).view()) == ()
    parts[1] = replace(parts[1], leader=2, isr=(2, 0))
    assert plan_leaders(Brokers(3, replace(orders, partitions=tuple(parts))).view()) == ()

"""Balancing of replicas and leaders: which moves are planned, how many at a time, and when none is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from support.kube.situations import Brokers, stream
from tidelog_operator import actions as do
from tidelog_operator.plan.balancing import BALANCE_LEADERS, BALANCE_REPLICAS, plan_balancing, plan_leaders

ON_THREE = tuple(tuple((first + more) % 3 for more in range(3)) for first in (0, 1, 2)) * 5


def held(brokers: Brokers) -> Counter[int]:
    parts = [one for each in brokers.streams.values() for one in each.partitions]
    return Counter(broker for one in parts for broker in one.replicas)


def led(brokers: Brokers) -> Counter[int]:
    """Counts the partitions by preferred leader."""
    return Counter(one.replicas[0] for each in brokers.streams.values() for one in each.partitions)


def bytes_held(brokers: Brokers) -> Counter[int]:
    return brokers.view().bytes_held()


def settle(brokers: Brokers, at_once: int = 4) -> int:
    """Executes plans until there are none, and returns how many replicas moved."""
    moved = 0
    for _ in range(60):
        actions = plan_balancing(brokers.view(), at_once)
        if not actions:
            return moved
        for action in actions:
            assert isinstance(action, do.Reassign)
            copies = sum(
                len({*one.replicas} - {*brokers.streams[one.name].partitions[one.partition].replicas})
                for one in action.moves
            )
            assert copies <= at_once
            assert (copies > 0) == (action.why == BALANCE_REPLICAS), "leaders wait until no copy is to move"
            moved += copies
            brokers.do(action)
    raise AssertionError("it goes on for ever")


def test_new_brokers_get_their_share_with_the_fewest_moves() -> None:
    brokers = Brokers(5, stream("orders", ON_THREE))

    moved = settle(brokers)

    # 45 replicas on five brokers are nine each; only the two new brokers get replicas.
    assert set(held(brokers).values()) == {9}
    assert moved == 18


def test_new_brokers_become_preferred_leaders_of_their_share() -> None:
    brokers = Brokers(5, stream("orders", ON_THREE))

    settle(brokers)

    assert led(brokers) == dict.fromkeys(range(5), 3)


def test_with_equal_numbers_replicas_move_to_the_fewest_bytes() -> None:
    large_and_small = stream("orders", ((0,), (0,), (0,), (1,), (1,), (1,)))
    sizes = {("orders", number): 100 if number < 3 else 10 for number in range(6)}
    brokers = Brokers(2, large_and_small, sizes=sizes)

    moved = settle(brokers)

    assert held(brokers) == {0: 3, 1: 3}
    assert bytes_held(brokers) == {0: 210, 1: 120}
    assert moved == 2


def test_nothing_moves_before_the_sizes_are_known() -> None:
    view = replace(Brokers(5, stream("orders", ON_THREE)).view(), sizes=None)

    assert plan_balancing(view, 20) == ()


def test_nothing_moves_between_almost_balanced_brokers() -> None:
    many = stream("orders", ((0, 1),) * 20 + ((1, 2),) * 21 + ((2, 0),) * 20)
    sizes = {("orders", number): 1_000 + number for number in range(61)}

    assert plan_balancing(Brokers(3, many, sizes=sizes).view(), 20) == ()


def test_reordering_replicas_balances_leaders_without_moves() -> None:
    brokers = Brokers(3, stream("orders", ((0, 1, 2),) * 6))

    (reorder,) = plan_balancing(brokers.view(), 4)

    assert isinstance(reorder, do.Reassign)
    assert reorder.why == BALANCE_LEADERS
    assert all(set(one.replicas) == {0, 1, 2} for one in reorder.moves)
    brokers.do(reorder)
    assert led(brokers) == {0: 2, 1: 2, 2: 2}
    assert plan_balancing(brokers.view(), 4) == ()
    assert plan_leaders(brokers.view()) == (do.ElectPreferred(("orders",)),)


def test_preferred_leaders_stay_while_replicas_move() -> None:
    arrived = stream("orders", ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)))
    last = replace(arrived.partitions[3], replicas=(1, 2, 3, 0), adding=(3,), removing=(0,))
    on_its_way = replace(arrived, partitions=(*arrived.partitions[:3], last))

    assert plan_balancing(Brokers(4, on_its_way).view(), 4) == ()
    (reorder,) = plan_balancing(Brokers(4, arrived).view(), 4)
    assert isinstance(reorder, do.Reassign)
    assert reorder.why == BALANCE_LEADERS


def test_a_balanced_cluster_stays_as_it_is() -> None:
    assert plan_balancing(Brokers(3, stream("orders", ON_THREE)).view(), 20) == ()


def test_replicas_are_spread_across_zones() -> None:
    brokers = Brokers(
        4, stream("orders", ((0, 1), (0, 1), (2, 3), (2, 3))), zones={0: "a", 1: "a", 2: "b", 3: "b"}
    )

    settle(brokers)

    for one in brokers.streams["orders"].partitions:
        assert {brokers.zones[broker] for broker in one.replicas} == {"a", "b"}


def test_nothing_moves_while_a_broker_is_unavailable_or_cordoned() -> None:
    for state in ("fenced", "cordoned", "stopping"):
        brokers = Brokers(5, stream("orders", ON_THREE), states={1: state})
        assert plan_balancing(brokers.view(), 20) == ()


def test_running_moves_count_against_the_limit() -> None:
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


def test_available_preferred_leaders_are_elected() -> None:
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

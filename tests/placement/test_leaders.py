"""Preferred leaders: as even as any order of the replicas makes them, with few of them changed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tidelog.placement import BrokerLoad, prefer

Partitions = Sequence[tuple[int, ...]]


def loads(partitions: Partitions, brokers: int) -> list[BrokerLoad]:
    leaders = Counter(members[0] for members in partitions)
    return [BrokerLoad(broker, leaders=leaders[broker]) for broker in range(brokers)]


def counts(partitions: Partitions, brokers: int) -> list[int]:
    leaders = Counter(members[0] for members in partitions)
    return [leaders[broker] for broker in range(brokers)]


def squares(amounts: Sequence[int]) -> int:
    return sum(amount * amount for amount in amounts)


@st.composite
def clusters(draw: st.DrawFn, partitions_max: int = 12) -> tuple[Partitions, int]:
    brokers = draw(st.integers(1, 5))
    members = st.permutations(range(brokers)).flatmap(
        lambda order: st.integers(1, min(3, brokers)).map(lambda copies: tuple(order[:copies]))
    )
    return draw(st.lists(members, max_size=partitions_max)), brokers


@given(clusters(partitions_max=5))
def test_no_other_order_of_the_replicas_is_more_even(cluster: tuple[Partitions, int]) -> None:
    partitions, brokers = cluster

    after = prefer(loads(partitions, brokers), partitions)

    orders = itertools.product(*partitions)
    best = min(squares(counts([(leader,) for leader in one], brokers)) for one in orders)
    assert squares(counts(after, brokers)) == best


@given(clusters(), st.sampled_from([0.0, 0.1, 0.5]))
def test_replicas_stay_and_a_second_time_nothing_changes(
    cluster: tuple[Partitions, int], slack: float
) -> None:
    partitions, brokers = cluster

    after = prefer(loads(partitions, brokers), partitions, slack=slack)

    assert [sorted(members) for members in after] == [sorted(members) for members in partitions]
    assert prefer(loads(after, brokers), after, slack=slack) == after


@given(clusters(), st.integers(0, 3))
def test_no_more_partitions_change_than_may(cluster: tuple[Partitions, int], most: int) -> None:
    partitions, brokers = cluster

    after = prefer(loads(partitions, brokers), partitions, changes_max=most)

    assert sum(new != old for old, new in zip(partitions, after, strict=True)) <= most
    assert squares(counts(after, brokers)) <= squares(counts(partitions, brokers))


def test_a_broker_that_leads_more_hands_over_few_and_the_other_replicas_keep_order() -> None:
    partitions = [(0, 1, 2)] * 5 + [(1, 2, 0)]

    after = prefer(loads(partitions, 3), partitions)

    assert counts(after, 3) == [2, 2, 2]
    assert sum(new != old for old, new in zip(partitions, after, strict=True)) == 3
    assert {(2, 0, 1), (1, 0, 2), (0, 1, 2), (1, 2, 0)} == set(after)


def test_a_chain_of_handovers_reaches_who_shares_no_partition_with_the_fullest() -> None:
    partitions = [(0,), (0, 1), (1, 2)]

    assert counts(prefer(loads(partitions, 3), partitions), 3) == [1, 1, 1]


def test_brokers_that_are_about_even_keep_what_they_lead() -> None:
    partitions = [(0, 1)] * 21 + [(1, 0)] * 19

    assert prefer(loads(partitions, 2), partitions, slack=0.1) == partitions
    assert counts(prefer(loads(partitions, 2), partitions), 2) == [20, 20]


def test_whoever_may_not_lead_is_not_preferred_and_keeps_what_it_is_preferred_for() -> None:
    partitions = [(9, 0), (0, 9), (0, 9)]

    assert prefer([BrokerLoad(0, leaders=2), BrokerLoad(1)], partitions) == partitions

"""Replicas over racks, replicas over brokers, leaders over brokers: in that order."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.errors import InvalidRequest
from tidelog.placement import BrokerLoad, place

Placement = Sequence[tuple[int, ...]]


@st.composite
def questions(
    draw: st.DrawFn, brokers_max: int = 8, partitions_max: int = 20
) -> tuple[list[BrokerLoad], int, int]:
    count = draw(st.integers(1, brokers_max))
    brokers = [
        BrokerLoad(
            broker_id,
            rack=draw(st.sampled_from("abc")),
            replicas=draw(st.integers(0, 4)),
            leaders=draw(st.integers(0, 2)),
            bytes=draw(st.integers(0, 3)),
        )
        for broker_id in range(count)
    ]
    return brokers, draw(st.integers(0, partitions_max)), draw(st.integers(1, count))


def squares(counts: Iterable[int]) -> int:
    """The smaller, the more even, for counts of the same sum."""
    return sum(count * count for count in counts)


def rack_squares(members: Iterable[int], racks: dict[int, str]) -> int:
    return squares(Counter(racks[broker] for broker in members).values())


def replica_counts(brokers: Sequence[BrokerLoad], placement: Placement) -> list[int]:
    given_out = Counter(itertools.chain.from_iterable(placement))
    return [broker.replicas + given_out[broker.broker_id] for broker in brokers]


def unevenness(brokers: Sequence[BrokerLoad], placement: Placement) -> Fraction:
    """Of copies and bytes, each as a part of all there was; a new copy is of average size."""
    copies = max(1, sum(broker.replicas for broker in brokers))
    held = sum(broker.bytes for broker in brokers)
    given_out = Counter(itertools.chain.from_iterable(placement))
    return squares(replica_counts(brokers, placement)) / Fraction(copies**2) + sum(
        ((broker.bytes + Fraction(held * given_out[broker.broker_id], copies)) / held) ** 2
        for broker in brokers
        if held
    )


def leader_counts(brokers: Sequence[BrokerLoad], leaders: Iterable[int]) -> list[int]:
    given_out = Counter(leaders)
    return [broker.leaders + given_out[broker.broker_id] for broker in brokers]


@given(questions())
def test_every_partition_gets_as_many_different_brokers_as_copies(
    question: tuple[list[BrokerLoad], int, int],
) -> None:
    brokers, partitions, factor = question
    placement = place(*question)

    assert len(placement) == partitions
    for replicas in placement:
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= {broker.broker_id for broker in brokers}


@given(questions())
def test_no_choice_of_brokers_spreads_a_partition_more_evenly_over_racks(
    question: tuple[list[BrokerLoad], int, int],
) -> None:
    brokers, _, factor = question
    racks = {broker.broker_id: broker.rack for broker in brokers}
    best = min(rack_squares(members, racks) for members in itertools.combinations(racks, factor))

    assert all(rack_squares(replicas, racks) == best for replicas in place(*question))


@example(
    # Partition after partition, each at its best, is not the best for all: broker 0 came too late.
    (
        [
            BrokerLoad(0, "c", bytes=1),
            BrokerLoad(1, "a"),
            BrokerLoad(2, "b", replicas=1),
            BrokerLoad(3, "c", replicas=1, bytes=2),
        ],
        3,
        2,
    )
)
@given(questions(brokers_max=4, partitions_max=3))
def test_on_small_clusters_replicas_and_leaders_are_as_even_as_brute_force_finds(
    question: tuple[list[BrokerLoad], int, int],
) -> None:
    brokers, partitions, factor = question
    racks = {broker.broker_id: broker.rack for broker in brokers}
    choices = list(itertools.combinations(racks, factor))
    spread = min(rack_squares(members, racks) for members in choices)
    choices = [members for members in choices if rack_squares(members, racks) == spread]

    placement = place(*question)

    assert unevenness(brokers, placement) == min(
        unevenness(brokers, other) for other in itertools.product(choices, repeat=partitions)
    )
    assert squares(leader_counts(brokers, (replicas[0] for replicas in placement))) == min(
        squares(leader_counts(brokers, leaders)) for leaders in itertools.product(*placement)
    )


@given(questions())
def test_the_order_in_which_brokers_are_named_does_not_matter(
    question: tuple[list[BrokerLoad], int, int],
) -> None:
    brokers, partitions, factor = question

    assert place(brokers[::-1], partitions, factor) == place(brokers, partitions, factor)


def test_equal_brokers_share_replicas_and_leaders_equally() -> None:
    placement = place([BrokerLoad(broker) for broker in range(5)], 100, 3)

    assert set(Counter(itertools.chain.from_iterable(placement)).values()) == {60}
    assert set(Counter(replicas[0] for replicas in placement).values()) == {20}


def test_one_broker_gets_everything() -> None:
    assert place([BrokerLoad(7)], 3, 1) == [(7,), (7,), (7,)]


def test_a_broker_with_little_data_gets_more_of_what_is_new_but_not_all_of_it() -> None:
    brokers = [BrokerLoad(broker, "", 20, 10, 4_000) for broker in range(3)] + [BrokerLoad(3, "", 20, 10, 0)]

    counts = Counter(itertools.chain.from_iterable(place(brokers, 40, 1)))

    # A copy has 150 bytes on average: 13 more, and their bytes, make up for the 4,000; then all get as many.
    assert counts == {0: 7, 1: 7, 2: 6, 3: 20}


def test_of_equally_loaded_brokers_the_one_with_fewer_bytes_comes_first() -> None:
    assert place([BrokerLoad(0, bytes=10), BrokerLoad(1, bytes=5)], 1, 1) == [(1,)]


def test_more_copies_than_brokers_are_refused_with_a_sentence() -> None:
    with pytest.raises(InvalidRequest, match="replication_factor is 3, but there is only 1 broker"):
        place([BrokerLoad(0)], 1, 3)

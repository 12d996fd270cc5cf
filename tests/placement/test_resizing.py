"""More copies and fewer: whom they go to, and who keeps what."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import InvalidRequest
from tidelog.placement import BrokerLoad, resize


def brokers(*replicas: int, racks: str = "") -> list[BrokerLoad]:
    """Broker n carries `replicas[n]`, in the rack named by the n-th letter."""
    return [
        BrokerLoad(number, rack=racks[number] if racks else "", replicas=count)
        for number, count in enumerate(replicas)
    ]


def test_a_copy_is_added_where_the_least_is() -> None:
    assert resize(brokers(1, 9, 2, 1), [(0,)], 3) == [(0, 3, 2)]


def test_copies_of_many_partitions_are_spread() -> None:
    targets = resize(brokers(4, 0, 0), [(0,)] * 4, 2)

    assert sorted(members[1] for members in targets) == [1, 1, 2, 2]


def test_a_copy_is_added_in_another_rack_first() -> None:
    assert resize(brokers(1, 0, 9, 9, racks="aabb"), [(0,)], 2) == [(0, 2)]


def test_the_rack_of_a_broker_that_gets_no_replicas_counts() -> None:
    there = [BrokerLoad(1, rack="a"), BrokerLoad(2, rack="b", replicas=5)]

    assert resize(there, [(0,)], 2, racks={0: "a"}) == [(0, 2)]


def test_the_copy_goes_that_is_behind() -> None:
    assert resize(brokers(1, 1, 1), [(0, 1, 2)], 2, in_sync=[(0, 2)]) == [(0, 2)]


def test_of_two_in_one_rack_one_goes() -> None:
    assert resize(brokers(1, 1, 1, racks="aba"), [(0, 1, 2)], 2) == [(0, 1)]


def test_the_fullest_broker_gives_up_its_copy() -> None:
    assert resize(brokers(1, 7, 1), [(0, 1, 2)], 2) == [(0, 2)]


def test_a_copy_is_added_where_the_fewest_bytes_are() -> None:
    there = [BrokerLoad(broker, replicas=2, bytes=9 if broker < 2 else 0) for broker in range(3)]

    assert resize(there, [(0,), (0,)], 2, sizes=[90, 1]) == [(0, 2), (0, 1)]


def test_more_copies_than_brokers_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"3 replicas need 3 brokers, and there are only: 0, 1"):
        resize(brokers(1, 0), [(0,)], 3)


@given(
    st.lists(
        st.sampled_from([tuple(one) for n in (1, 2, 3) for one in combinations(range(5), n)]), max_size=8
    ),
    st.integers(1, 5),
)
def test_every_partition_has_as_many_copies_and_keeps_what_it_can(
    partitions: list[tuple[int, ...]], factor: int
) -> None:
    counts = [sum(number in members for members in partitions) for number in range(5)]

    targets = resize(brokers(*counts), partitions, factor)

    for members, target in zip(partitions, targets, strict=True):
        assert len(target) == len(set(target)) == factor
        assert target[0] == members[0]
        assert set(target) <= set(members) or set(members) <= set(target)

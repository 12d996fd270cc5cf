"""Where replicas go that have to move, or should: few moves, spread racks, even loads."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import InvalidRequest
from tidelog.placement import BrokerLoad, drain, reassign

Partitions = list[tuple[int, ...]]


def loads(partitions: Partitions, racks: Sequence[str]) -> list[BrokerLoad]:
    replicas = Counter(itertools.chain.from_iterable(partitions))
    leaders = Counter(members[0] for members in partitions)
    return [BrokerLoad(broker, rack, replicas[broker], leaders[broker]) for broker, rack in enumerate(racks)]


def crowding(members: Sequence[int], racks: Sequence[str]) -> int:
    return sum(count * count for count in Counter(racks[member] for member in members).values())


def moves(before: Partitions, after: Partitions) -> int:
    return sum(len(set(new) - set(old)) for old, new in zip(before, after, strict=True))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Partitions, list[str]]:
    """Partitions lying anyhow on some brokers in some racks."""
    racks = draw(st.lists(st.sampled_from("abc"), min_size=2, max_size=7))
    copies = draw(st.integers(1, len(racks) - 1))
    members = st.permutations(range(len(racks))).map(lambda order: tuple(order[:copies]))
    return draw(st.lists(members, max_size=12)), racks


@given(clusters())
def test_a_drain_moves_what_the_leaving_broker_holds_and_nothing_else(
    cluster: tuple[Partitions, list[str]],
) -> None:
    partitions, racks = cluster
    after = drain(loads(partitions, racks)[1:], partitions, 0, racks=dict(enumerate(racks)))

    for old, new in zip(partitions, after, strict=True):
        assert len(set(new)) == len(new) == len(old)
        assert 0 not in new
        assert set(old) - {0} <= set(new)
        assert new == old or 0 in old


@given(clusters())
def test_a_drain_chooses_the_emptiest_rack_for_each_partition(cluster: tuple[Partitions, list[str]]) -> None:
    partitions, racks = cluster
    after = drain(loads(partitions, racks)[1:], partitions, 0, racks=dict(enumerate(racks)))

    for old, new in zip(partitions, after, strict=True):
        if 0 in old:
            stay = [member for member in old if member != 0]
            others = [broker for broker in range(1, len(racks)) if broker not in stay]
            assert crowding(new, racks) == min(crowding([*stay, other], racks) for other in others)


def test_a_drain_spreads_replicas_and_leaders_over_those_that_stay() -> None:
    partitions = [(0, 1, 2)] * 12
    brokers = [BrokerLoad(broker, "", 12 if broker < 3 else 0) for broker in range(1, 7)]

    after = drain(brokers, partitions, 0)

    assert set(Counter(new for members in after for new in members if new > 2).values()) == {3}
    assert max(Counter(members[0] for members in after).values()) <= 3


def test_a_drain_with_nobody_left_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"no broker is left .* 3 are needed, and \[1, 2\] are there"):
        drain([BrokerLoad(1), BrokerLoad(2)], [(0, 1, 2)], 0)


@given(clusters())
def test_a_reassignment_is_as_even_as_one_more_move_could_make_it_and_spreads_racks(
    cluster: tuple[Partitions, list[str]],
) -> None:
    partitions, racks = cluster
    after = reassign(loads(partitions, racks), partitions)
    counts = Counter(dict.fromkeys(range(len(racks)), 0))
    counts.update(itertools.chain.from_iterable(after))

    for members in after:
        best = min(
            crowding(choice, racks) for choice in itertools.combinations(range(len(racks)), len(members))
        )
        assert crowding(members, racks) == best
        for old in members:
            for new in set(range(len(racks))) - set(members):
                swapped = [new if member == old else member for member in members]
                assert counts[new] > counts[old] - 2 or crowding(swapped, racks) > best


@given(clusters(), st.integers(0, 4))
def test_a_reassignment_makes_no_more_moves_than_it_may(
    cluster: tuple[Partitions, list[str]], moves_max: int
) -> None:
    partitions, racks = cluster

    assert moves(partitions, reassign(loads(partitions, racks), partitions, moves_max=moves_max)) <= moves_max


def test_what_is_even_and_spread_stays_where_it_is() -> None:
    partitions = [(0, 1), (1, 2), (2, 0)]

    assert reassign(loads(partitions, "abc"), partitions) == partitions


def test_a_new_broker_gets_its_share_with_no_more_moves_than_that() -> None:
    partitions = [(0, 1, 2)] * 8

    after = reassign(loads(partitions, "aaaa"), partitions)

    assert moves(partitions, after) == 6
    assert Counter(itertools.chain.from_iterable(after)) == {0: 6, 1: 6, 2: 6, 3: 6}


def test_replicas_on_brokers_that_are_not_there_go_first() -> None:
    after = reassign([BrokerLoad(0, replicas=1), BrokerLoad(1), BrokerLoad(2)], [(0, 9)], moves_max=1)

    assert after == [(0, 1)]


def test_more_copies_than_brokers_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="3 copies need as many brokers"):
        reassign([BrokerLoad(0), BrokerLoad(1)], [(0, 1, 2)])

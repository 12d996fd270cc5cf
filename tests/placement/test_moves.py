"""Where replicas go that have to move, or should: few moves, spread racks, even loads."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import InvalidRequest
from tidelog.placement import BrokerLoad, cost, drain, reassign

Partitions = Sequence[tuple[int, ...]]


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
    with pytest.raises(
        InvalidRequest, match=r"no broker is left .* 3 brokers are needed, and there are only: 1, 2"
    ):
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
    with pytest.raises(InvalidRequest, match="3 replicas need 3 brokers"):
        reassign([BrokerLoad(0), BrokerLoad(1)], [(0, 1, 2)])


# --- bytes


def sized(partitions: Partitions, sizes: Sequence[int], racks: Sequence[str]) -> list[BrokerLoad]:
    held: Counter[int] = Counter()
    for members, size in zip(partitions, sizes, strict=True):
        held.update(dict.fromkeys(members, size))
    return [replace(load, bytes=held[load.broker_id]) for load in loads(partitions, racks)]


@st.composite
def sized_clusters(draw: st.DrawFn) -> tuple[Partitions, list[int], list[str]]:
    partitions, racks = draw(clusters())
    sizes = st.lists(st.sampled_from([0, 1, 7, 100]), min_size=len(partitions), max_size=len(partitions))
    return partitions, draw(sizes), racks


@given(sized_clusters(), st.sampled_from([0.0, 0.1, 0.5]))
def test_a_reassignment_by_bytes_keeps_every_copy_on_its_own_broker_and_racks_spread(
    cluster: tuple[Partitions, list[int], list[str]], slack: float
) -> None:
    partitions, sizes, racks = cluster

    after = reassign(sized(partitions, sizes, racks), partitions, sizes=sizes, slack=slack)

    for old, new in zip(partitions, after, strict=True):
        assert len(set(new)) == len(new) == len(old)
        assert set(new) <= set(range(len(racks)))
        choices = itertools.combinations(range(len(racks)), len(old))
        assert crowding(new, racks) == min(crowding(choice, racks) for choice in choices)


@given(sized_clusters(), st.sampled_from([0.0, 0.1, 0.5]))
def test_a_second_time_nothing_moves(cluster: tuple[Partitions, list[int], list[str]], slack: float) -> None:
    partitions, sizes, racks = cluster
    after = reassign(sized(partitions, sizes, racks), partitions, sizes=sizes, slack=slack)

    assert reassign(sized(after, sizes, racks), after, sizes=sizes, slack=slack) == after


@given(sized_clusters(), st.sampled_from([0.0, 0.1, 0.5]))
def test_what_is_spread_moves_only_to_where_it_costs_less_by_the_price_of_moving(
    cluster: tuple[Partitions, list[int], list[str]], slack: float
) -> None:
    partitions, sizes, racks = cluster
    spread = reassign(sized(partitions, sizes, racks), partitions, sizes=sizes, slack=10.0)
    before = sized(spread, sizes, racks)

    after = reassign(before, spread, sizes=sizes, slack=slack)

    price = 2 * slack * moves(spread, after) * len(racks) / max(1, sum(load.replicas for load in before))
    fell = carried_cost(before) - carried_cost(sized(after, sizes, racks))
    assert after == spread or fell > price - 1e-9


def carried_cost(brokers: Sequence[BrokerLoad]) -> float:
    return cost([replace(broker, leaders=0) for broker in brokers])


@given(sized_clusters(), st.integers(0, 4))
def test_by_bytes_no_more_moves_than_may_be_and_step_by_step_to_an_end(
    cluster: tuple[Partitions, list[int], list[str]], moves_max: int
) -> None:
    partitions, sizes, racks = cluster
    now = partitions
    for _ in range(200):
        then = reassign(sized(now, sizes, racks), now, sizes=sizes, slack=0.1, moves_max=moves_max)
        assert moves(now, then) <= moves_max
        if then == now:
            return
        now = then
    raise AssertionError("it goes on for ever")


def test_two_brokers_with_as_many_copies_exchange_a_large_one_for_a_small_one() -> None:
    partitions, sizes = [(0,), (0,), (1,), (1,)], [50, 60, 3, 1]

    after = reassign(sized(partitions, sizes, "aa"), partitions, sizes=sizes)

    assert Counter(itertools.chain.from_iterable(after)) == {0: 2, 1: 2}
    assert sorted(load.bytes for load in sized(after, sizes, "aa")) == [53, 61]


def test_brokers_that_are_about_even_are_left_alone() -> None:
    partitions = [(0,)] * 52 + [(1,)] * 48
    sizes = [100] * 100

    assert reassign(sized(partitions, sizes, "aa"), partitions, sizes=sizes, slack=0.1) == partitions
    assert moves(partitions, reassign(sized(partitions, sizes, "aa"), partitions, sizes=sizes)) == 2


def test_an_empty_broker_gets_most_of_its_share_whatever_the_slack_of_the_others() -> None:
    partitions, sizes = [(number % 10,) for number in range(1_000)], [100] * 1_000

    after = reassign(sized(partitions, sizes, "a" * 11), partitions, sizes=sizes, slack=0.1)

    share = 1_000 / 11
    assert 0.9 * share - 1 <= Counter(itertools.chain.from_iterable(after))[10] <= share


def test_a_drain_puts_large_copies_where_the_fewest_bytes_are() -> None:
    brokers = [BrokerLoad(1, "", 4, 0, 400), BrokerLoad(2, "", 4, 0, 100)]

    assert drain(brokers, [(0,), (0,)], 0, sizes=[300, 10]) == [(2,), (1,)]
    assert drain(brokers, [(0,), (0,)], 0, sizes=[10, 300]) == [(2,), (2,)]

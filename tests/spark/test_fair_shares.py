from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog_spark.fair_shares import reserve_of, share_out

_sizes = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=40).map(lambda sizes: dict(enumerate(sizes)))
_limits = st.integers(1, 1 << 42) | st.integers(1, 50)
_turns = st.integers(0, 1 << 60)


@given(_sizes, _limits, _turns)
def test_shares_use_the_limit_up_and_exceed_no_size(sizes: dict[int, int], limit: int, turn: int) -> None:
    shares = share_out(sizes, limit, turn)
    assert sum(shares.values()) == min(limit, sum(sizes.values()))
    assert all(0 <= shares[key] <= size for key, size in sizes.items())


@given(_sizes, _limits, _turns)
def test_every_partition_gets_its_part_of_nine_tenths(sizes: dict[int, int], limit: int, turn: int) -> None:
    total = sum(sizes.values())
    shares = share_out(sizes, limit, turn)
    for key, size in sizes.items():
        if total > limit:
            # share ≥ size × (limit − reserve) / total − 1, in whole numbers
            assert (shares[key] + 1) * total >= size * (limit - reserve_of(limit))


@given(_sizes, _limits, _turns)
def test_with_a_reserve_for_all_each_partition_progresses_in_each_turn(
    sizes: dict[int, int], limit: int, turn: int
) -> None:
    equal = reserve_of(limit) // len(sizes)
    for key, share in share_out(sizes, limit, turn).items():
        assert share >= min(sizes[key], equal)


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=25),
    st.integers(1, 60),
    _turns,
    st.data(),
)
def test_no_partition_waits_longer_than_the_ring_is_long(
    unread: list[int], limit: int, turn: int, data: st.DataObject
) -> None:
    """Producers add records between the turns, as an adversary would: to any partition, any number."""
    sizes = dict(enumerate(unread))
    turns_max = -(-len(sizes) // reserve_of(limit))
    waited = dict.fromkeys(sizes, 0)
    for number in range(3 * turns_max):
        shares = share_out(sizes, limit, turn + number)
        for key, size in sizes.items():
            waited[key] = waited[key] + 1 if size and not shares[key] else 0
        assert max(waited.values()) < turns_max
        added = data.draw(st.lists(st.integers(0, 100), min_size=len(sizes), max_size=len(sizes)))
        sizes = {key: size - shares[key] + added[key] for key, size in sizes.items()}


def test_five_records_beside_ten_million_are_read_in_the_first_trigger() -> None:
    assert share_out({"a": 10_000_000, "b": 5}, 1000, 0) == {"a": 995, "b": 5}


def test_a_limit_below_the_number_of_partitions_goes_around() -> None:
    sizes = dict.fromkeys("abcd", 5)
    assert [share_out(sizes, 1, turn) for turn in range(3)] == [
        {"a": 1, "b": 0, "c": 0, "d": 0},
        {"a": 0, "b": 1, "c": 0, "d": 0},
        {"a": 0, "b": 0, "c": 1, "d": 0},
    ]

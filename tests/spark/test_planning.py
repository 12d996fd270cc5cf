from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tidelog.model import Position
from tidelog_spark.offsets import Mark, PartitionKey, Range, from_document, to_document
from tidelog_spark.planning import SPLITS_MAX, advance, split

ORDERS = UUID(int=1).bytes
OTHER = UUID(int=2).bytes
ZERO, ONE = PartitionKey("orders", 0), PartitionKey("orders", 1)


def _mark(offset: int, epoch: int | None = 1, first: int = 0, stream_id: bytes = ORDERS) -> Mark:
    return Mark(stream_id, Position(offset, epoch), first)


def test_a_trigger_takes_everything_or_the_limit_and_leaves_inner_epochs_open() -> None:
    start = {ZERO: _mark(0, None), ONE: _mark(50)}
    reach = {ZERO: _mark(300), ONE: _mark(150)}
    assert advance(start, reach, None) == reach
    limited = advance(start, reach, 100)
    # 10 of the limit are shared equally: 5 each. The others are shared as 295 to 95.
    assert limited == {ZERO: _mark(73, None), ONE: _mark(77, None)}


def test_offsets_that_retention_deleted_take_no_part_of_a_limit() -> None:
    found = advance({ZERO: _mark(10)}, {ZERO: _mark(900, 1, 500)}, 100)
    assert found == {ZERO: _mark(600, None, 0)}


@given(
    st.dictionaries(st.sampled_from([ZERO, ONE]), st.integers(0, 99).map(_mark)),
    st.fixed_dictionaries({ZERO: st.integers(100, 999).map(_mark), ONE: st.integers(100, 999).map(_mark)}),
    st.integers(1, 500),
)
def test_triggers_with_a_limit_reach_the_end_exactly_and_then_stand_still(
    start: dict[PartitionKey, Mark], reach: dict[PartitionKey, Mark], limit: int
) -> None:
    at = start
    for turn in range(3000):
        following = advance(at, reach, limit, turn)
        if to_document(following) == to_document(at):
            break
        at = from_document(to_document(following))
    assert {key: mark.position.offset for key, mark in at.items()} == {
        key: mark.position.offset for key, mark in reach.items()
    }


def test_a_partition_that_is_new_enters_at_the_start_of_its_log() -> None:
    assert advance({}, {ZERO: _mark(30, 1, 12)}, 5) == {ZERO: _mark(17, None, 12)}


def test_a_stream_created_anew_begins_again_with_its_own_id() -> None:
    found = advance({ZERO: _mark(500, 9)}, {ZERO: _mark(30, 1, 3, OTHER)}, None)
    assert found == {ZERO: _mark(30, 1, 3, OTHER)}


def test_a_log_that_became_shorter_is_continued_at_its_end() -> None:
    assert advance({ZERO: _mark(500, 9)}, {ZERO: _mark(30, 10)}, None)[ZERO].position == Position(30, 10)


_ranges = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(1, 5000)).map(
        lambda pair: Range(ZERO, ORDERS, Position(pair[0], 1), Position(pair[0] + pair[1], 2))
    ),
    max_size=4,
)


@given(_ranges, st.integers(1, 3000), st.none() | st.integers(1, 50))
def test_pieces_cover_each_range_once_in_order_and_keep_to_the_limits(
    ranges: list[Range], records_max: int, partitions_min: int | None
) -> None:
    pieces = split(ranges, records_max=records_max, partitions_min=partitions_min)
    covered = [offset for piece in pieces for offset in range(piece.start.offset, piece.end.offset)]
    assert covered == [offset for whole in ranges for offset in range(whole.start.offset, whole.end.offset)]
    assert all(0 < piece.count <= records_max for piece in pieces)
    if partitions_min is not None:
        assert len(pieces) >= min(partitions_min, len(covered))


def test_only_the_outer_ends_of_a_cut_range_carry_epochs() -> None:
    whole = Range(ZERO, ORDERS, Position(0, 1), Position(10, 2))
    first, second = split([whole], records_max=5, partitions_min=None)
    assert (first.start, first.end) == (Position(0, 1), Position(5))
    assert (second.start, second.end) == (Position(5), Position(10, 2))


def test_a_read_has_no_more_tasks_than_can_be_planned() -> None:
    whole = Range(ZERO, ORDERS, Position(0), Position(10 * SPLITS_MAX))

    assert len(split([whole], records_max=1, partitions_min=5 * SPLITS_MAX)) == SPLITS_MAX

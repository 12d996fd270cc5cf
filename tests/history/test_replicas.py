"""Replicas are compared by record and offset, however their batches are cut; what differs is named."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.history.replicas import Comparison, Difference, Lack, Piece

END = 20


def piece(
    start: int, end: int, *, epoch: int = 1, changed: int = -1, keys: bool = False, **facts: int
) -> Piece:
    """Records whose values are their offsets, one of them another."""
    values = [b"other" if offset == changed else b"%d" % offset for offset in range(start, end)]
    columns: dict[str, pa.Array] = {"offset": pa.array(range(start, end), pa.int64())}
    columns["value"] = pa.array(values, pa.binary())
    if keys:
        columns["key"] = pa.nulls(end - start, pa.binary())
    return Piece(start, end, epoch, facts.get("at", 0), pa.record_batch(columns))


def compared(replicas: dict[int, list[Piece]], end: int = END) -> list[Difference]:
    comparison = Comparison(list(replicas), 0, end)
    left = {replica: iter(pieces) for replica, pieces in replicas.items()}
    while (replica := comparison.next_replica()) is not None:
        comparison.take(replica, next(left[replica]))
    assert comparison.at == end
    return comparison.differences


def cuts() -> st.SearchStrategy[list[Piece]]:
    """A log of the same records, in pieces of any size, with and without a column of nulls."""
    inner = st.sets(st.integers(1, END - 1)).map(lambda found: [0, *sorted(found), END])
    return st.builds(
        lambda ends, keys: [piece(a, b, keys=keys) for a, b in pairwise(ends)],
        inner,
        st.booleans(),
    )


@given(cuts(), cuts(), cuts())
def test_equal_logs_are_equal_however_they_are_cut(
    one: list[Piece], two: list[Piece], three: list[Piece]
) -> None:
    assert compared({1: one, 2: two, 3: three}) == []


@given(cuts(), st.integers(0, END - 1))
def test_one_other_record_is_found_at_its_offset(cut: list[Piece], offset: int) -> None:
    (found,) = compared({1: cut, 2: [piece(0, END, changed=offset)]})[:1]

    assert (found.replica, found.what, found.start) == (2, Lack.DIVERGENT, offset)


def test_the_same_records_of_another_epoch_are_another_history() -> None:
    differences = compared({1: [piece(0, END)], 2: [piece(0, 10), piece(10, END, epoch=2)]})

    assert [(one.replica, one.what, one.start, one.end) for one in differences] == [
        (2, Lack.DIVERGENT, 10, END)
    ]
    assert "epoch 2" in differences[0].why


def test_the_same_records_with_another_append_time_differ() -> None:
    assert compared({1: [piece(0, END)], 2: [piece(0, END, at=1)]})[0].what is Lack.DIVERGENT


@pytest.mark.parametrize("lack", [Lack.CORRUPT, Lack.MISSING, Lack.DIVERGENT])
def test_a_missing_range_is_one_difference_and_the_other_replicas_are_compared(lack: Lack) -> None:
    gap = [piece(0, 5), Piece(5, 9, lack=lack, why="why"), piece(9, END)]

    differences = compared({1: gap, 2: [piece(0, END)], 3: [piece(0, 7), piece(7, END, changed=7)]})

    # Where the first has nothing, the second is what the third is held against.
    assert differences[0] == Difference(1, lack, 5, 9, "why")
    assert (differences[1].replica, differences[1].start) == (3, 7)
    assert str(differences[0]).startswith("replica 1: offsets 5–8: ")


def test_what_lies_below_a_log_start_is_no_difference() -> None:
    retired = Piece(0, 12, lack=Lack.RETIRED)

    assert compared({1: [piece(0, END)], 2: [retired, piece(12, END)]}) == []


def test_a_replica_with_fewer_records_at_its_offsets_differs() -> None:
    holes = piece(0, END)
    assert holes.columns is not None
    fewer = holes._replace(columns=holes.columns.filter(pa.array([at != 4 for at in range(END)])))

    assert compared({1: [holes], 2: [fewer]})[0].what is Lack.DIVERGENT


def test_the_replica_that_is_furthest_behind_is_asked_next() -> None:
    comparison = Comparison([1, 2], 0, END)
    comparison.take(1, piece(0, 15))

    assert comparison.next_replica() == 2
    comparison.take(2, piece(0, END))
    assert comparison.next_replica() == 1
    assert comparison.at == 15

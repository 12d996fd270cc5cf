"""The cutting of a sink's rows: the same rows give the same bytes, in whatever pieces they arrive."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog._sinking import cutting
from tidelog._sinking.cutting import Cutter, row_bytes
from tidelog.errors import BatchTooLarge
from tidelog.records import Compression, encode_batch, to_columns

SMALL = st.binary(max_size=12)
ROWS = st.lists(
    st.tuples(
        st.none() | SMALL,
        st.none() | SMALL,
        st.lists(st.tuples(st.text(max_size=3), st.none() | SMALL), max_size=3),
        st.none() | st.text(max_size=5),
    ),
    min_size=1,
    max_size=80,
)


def columns_of(rows: list[Any]) -> pa.RecordBatch:
    """The rows as a batch with all columns."""
    return to_columns(
        pa.record_batch(
            {
                "key": pa.array([row[0] for row in rows], pa.binary()),
                "value": pa.array([row[1] for row in rows], pa.binary()),
                "headers": pa.array(
                    [[{"key": key, "value": value} for key, value in row[2]] for row in rows],
                    pa.list_(pa.struct([pa.field("key", pa.utf8()), pa.field("value", pa.binary())])),
                ),
                "subject": pa.array([row[3] for row in rows], pa.utf8()),
            }
        ),
        now_us=7,
    )


def cut(pieces: list[pa.RecordBatch], limit: int = 1 << 20, rows_max: int = 8192) -> list[bytes]:
    cutter = Cutter(limit, rows_max)
    found = [batch for piece in pieces for batch in cutter.push(piece)]
    found += cutter.flush()
    return [encode_batch(batch) for batch in found]


@given(ROWS, st.lists(st.integers(0, 80), max_size=6))
@settings(max_examples=150, deadline=None)
def test_the_same_rows_in_other_pieces_are_cut_into_the_same_bytes(
    rows: list[Any], places: list[int]
) -> None:
    whole = columns_of(rows)
    edges = sorted({0, len(rows), *(place for place in places if place < len(rows))})
    pieces = [whole.slice(a, b - a) for a, b in pairwise(edges)]
    copied = [columns_of(rows[a:b]) for a, b in pairwise(edges)]
    filtered = [
        whole.filter(pa.array([a <= place < b for place in range(len(rows))])) for a, b in pairwise(edges)
    ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "BYTES_MAX", 200)
        expected = cut([whole], rows_max=7)
        for other in (pieces, copied, filtered):
            assert cut(other, rows_max=7) == expected


@given(ROWS)
@settings(max_examples=80, deadline=None)
def test_a_row_is_never_counted_as_smaller_than_it_becomes(rows: list[Any]) -> None:
    whole = columns_of(rows)

    size = sum(row_bytes(whole).to_pylist())

    encoded = len(encode_batch(whole)) - len(encode_batch(whole.slice(0, 1)))
    assert size + 64 * 10 >= encoded
    alone = [
        sum(len(part or b"") for part in (row[0], row[1], (row[3] or "").encode()))
        + sum(len(name.encode()) + len(value or b"") for name, value in row[2])
        for row in rows
    ]
    assert all(counted > least for counted, least in zip(row_bytes(whole).to_pylist(), alone, strict=True))


def test_no_batch_is_larger_than_the_limits() -> None:
    whole = to_columns(pa.record_batch({"value": [b"x" * 1000] * 3000}), now_us=1)

    sizes = [len(batch) for batch in cut([whole], 100_000)]

    assert max(sizes) <= 100_000
    assert sum(sizes) > 3_000_000


def test_a_row_that_fits_into_no_batch_is_refused() -> None:
    whole = to_columns(pa.record_batch({"value": [b"small", b"x" * 200_000]}), now_us=1)

    with pytest.raises(BatchTooLarge, match="batch_bytes_max"):
        cut([whole], 100_000)


def test_compressed_batches_are_equal_too() -> None:
    whole = to_columns(pa.record_batch({"value": [b"abc" * 9, None] * 500}), now_us=1)
    copied = pa.concat_batches([whole.slice(0, 3), whole.slice(3)])

    for kind in Compression:
        assert encode_batch(whole, compression=kind) == encode_batch(copied, compression=kind)

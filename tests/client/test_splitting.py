"""Arrow data to batches: nothing is lost or reordered, and every batch fits."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog._producing.batching import encode
from tidelog._producing.splitting import slices_near
from tidelog.errors import BatchTooLarge
from tidelog.records import Compression, to_columns


@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=200))
def test_slices_keep_every_row_in_order_and_fit(values: list[bytes]) -> None:
    columns = to_columns(pa.record_batch({"value": pa.array(values, pa.binary())}), now_us=1)
    limit = 6000
    parts = list(slices_near(columns, 4000, limit))
    assert pa.Table.from_batches(parts).column("value").to_pylist() == values
    for part in parts:
        encode(part, Compression.NONE, limit)


def test_a_slice_of_a_large_table_encodes_its_own_rows_only() -> None:
    columns = to_columns(pa.record_batch({"value": [bytes(1000)] * 1000}), now_us=1)
    part = next(slices_near(columns, 10_000, 1 << 20))
    assert len(encode(part, Compression.NONE, 1 << 20)) < 12_000


def test_a_row_that_can_never_fit_is_refused() -> None:
    columns = to_columns(pa.record_batch({"value": [b"x", bytes(5000)]}), now_us=1)
    with pytest.raises(BatchTooLarge, match="batch_bytes_max"):
        list(slices_near(columns, 4000, 4096))

"""Batches made by hand, against the same records encoded by Arrow: equal byte for byte."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import BatchTooLarge
from tidelog.records import BatchLimits, Columns, encode_batch, validate_batch
from tidelog.records.limits import BATCH_BYTES_HARD_MAX
from tidelog.records.plain import encode_plain
from tidelog.records.schema import schema_of

TIMES = st.integers(-(2**63), 2**63 - 1)
RECORD = st.tuples(st.binary(max_size=40), TIMES, st.binary(max_size=20), st.text(max_size=10))
RECORDS = st.lists(RECORD, min_size=1, max_size=40)


@given(RECORDS, st.booleans(), st.booleans(), st.integers(0, 2**40), st.integers(0, 9), st.integers(0, 2**31))
def test_it_is_what_arrow_writes(
    records: list[tuple[bytes, int, bytes, str]],
    with_keys: bool,
    with_subjects: bool,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> None:
    values, times, keys, texts = zip(*records, strict=True)
    subjects = [text.encode() for text in texts]
    columns = (Columns.KEY if with_keys else Columns.NONE) | (
        Columns.SUBJECT if with_subjects else Columns.NONE
    )
    schema = schema_of(columns)
    lists = {"key": keys, "value": values, "subject": texts, "timestamp": times}
    arrow = pa.record_batch([pa.array(lists[f.name], f.type) for f in schema], schema=schema)
    sequence: dict[str, Any] = {
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "base_sequence": base_sequence,
    }

    found = encode_plain(
        values,
        times,
        keys=keys if with_keys else None,
        subjects=subjects if with_subjects else None,
        **sequence,
    )

    assert found == encode_batch(arrow, **sequence)
    validate_batch(found, BatchLimits(batch_bytes_max=1 << 20), now_us=0)


def test_what_is_over_the_hard_bound_is_refused() -> None:
    with pytest.raises(BatchTooLarge):
        encode_plain([bytes(BATCH_BYTES_HARD_MAX)], [1])

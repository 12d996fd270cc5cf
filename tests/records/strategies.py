"""Hypothesis strategies for records and header fields."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from records.samples import COLUMN_SETS, COMPRESSIONS

U16, U32, U64 = ((1 << bits) - 1 for bits in (16, 32, 64))
I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1

i64 = st.integers(I64_MIN, I64_MAX)
u32 = st.integers(0, U32)

header = st.fixed_dictionaries({"key": st.text(max_size=8), "value": st.none() | st.binary(max_size=8)})

record = st.fixed_dictionaries(
    {
        "key": st.none() | st.binary(max_size=12),
        "value": st.none() | st.binary(max_size=40),
        "headers": st.lists(header, max_size=3),
        "subject": st.none() | st.text(max_size=12),
        "timestamp": i64,
    }
)

records: st.SearchStrategy[list[dict[str, Any]]] = st.one_of(
    st.lists(record, min_size=1, max_size=12),
    # Repeats make batches with more records than one byte of a bitmap, or a handful, has.
    st.builds(lambda few, times: few * times, st.lists(record, min_size=1, max_size=4), st.integers(20, 60)),
)

column_sets = st.sampled_from(COLUMN_SETS)
compressions = st.sampled_from(COMPRESSIONS)

header_fields = st.fixed_dictionaries(
    {
        "magic": st.binary(min_size=4, max_size=4),
        "length": u32,
        "base_offset": i64,
        "append_time_us": i64,
        "leader_epoch": u32,
        "header_crc": u32,
        "body_crc": u32,
        "attributes": st.integers(0, U16),
        "schema_version": st.integers(0, U16),
        "record_count": u32,
        "last_offset_delta": u32,
        "producer_id": st.integers(0, U64),
        "base_sequence": u32,
        "producer_epoch": st.integers(0, U16),
        "reserved": st.integers(0, U16),
        "timestamp_min_us": i64,
        "timestamp_max_us": i64,
    }
)

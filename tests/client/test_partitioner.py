"""Keys to partitions."""

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog._producing.partitioner import StickyPartition, partition_of, split_by_key
from tidelog.records import to_columns


@pytest.mark.parametrize(("key", "crc"), [(b"123456789", 0xE3069283), (b"", 0)])
def test_the_hash_is_crc32c(key: bytes, crc: int) -> None:
    assert google_crc32c.value(key) == crc
    assert partition_of(key, 7) == crc % 7


@given(st.lists(st.none() | st.binary(max_size=4), min_size=1, max_size=60), st.integers(1, 5))
def test_rows_go_where_their_keys_say_one_by_one(keys: list[bytes | None], partitions: int) -> None:
    values = [str(number).encode() for number in range(len(keys))]
    columns = to_columns(
        pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}),
        now_us=1,
    )
    expected: dict[int, list[bytes]] = {}
    for key, value in zip(keys, values, strict=True):
        target = (0 if partitions == 1 else partitions - 1) if key is None else partition_of(key, partitions)
        expected.setdefault(target, []).append(value)
    found = split_by_key(columns, partitions, sticky=partitions - 1)
    assert {number: part.column("value").to_pylist() for number, part in found} == expected


def test_sticky_goes_round() -> None:
    sticky = StickyPartition(3, first=2)
    assert [sticky.current, sticky.step(), sticky.step(), sticky.step()] == [2, 0, 1, 2]

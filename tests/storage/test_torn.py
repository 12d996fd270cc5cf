"""Torn or rotten: what bytes tell that fail their checks (DESIGN 4, 2b)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_broker.storage.files.torn import SECTOR_BYTES, lacks_a_sector


@pytest.mark.parametrize("position", [0, 8, 504, 512, 4096 + 40])
def test_bytes_of_which_each_sector_holds_something_lack_none(position: int) -> None:
    data = bytearray(2000)
    for at in range(0, 2000, 8):
        data[at] = 1

    assert not lacks_a_sector(bytes(data), position)
    assert lacks_a_sector(bytes(len(data)), position)


def test_no_bytes_at_all_are_missing_bytes() -> None:
    assert lacks_a_sector(b"", 100)


@given(
    position=st.integers(0, 2000).map(lambda n: 8 * n),
    length=st.integers(1, 4000),
    seed=st.integers(0, 1 << 30),
    page=st.sampled_from([512, 4096]),
)
def test_a_write_that_lacks_any_sector_or_page_is_told(
    position: int, length: int, seed: int, page: int
) -> None:
    """The file before the write is zeros behind its end, and so is what did not come."""
    rng = random.Random(seed)
    data = bytearray(rng.randbytes(length))
    first, last = position // page, (position + length - 1) // page
    missing = rng.randint(first, last)
    start, end = max(missing * page, position) - position, min((missing + 1) * page - position, length)
    data[start:end] = bytes(end - start)

    assert page % SECTOR_BYTES == 0
    assert lacks_a_sector(bytes(data), position)

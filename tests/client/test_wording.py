"""Lists and counts in sentences for users."""

from __future__ import annotations

import pytest

from tidelog.wording import count_of, listed


@pytest.mark.parametrize(
    ("values", "at_most", "sentence"),
    [
        ([], None, "none"),
        ([0], None, "0"),
        ([3, 1, 2], None, "3, 1, 2"),
        ([1, 2, 3], 3, "1, 2, 3"),
        (["a/0", "a/1", "b/0"], 2, "a/0, a/1 and 1 more"),
    ],
)
def test_a_list_reads_as_words(values: list[object], at_most: int | None, sentence: str) -> None:
    assert listed(values, at_most=at_most) == sentence


def test_a_count_has_its_plural() -> None:
    assert [count_of(n, "record") for n in (0, 1, 2)] == ["0 records", "1 record", "2 records"]
    assert count_of(2, "copy", "copies") == "2 copies"

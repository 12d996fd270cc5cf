"""Lists in sentences for users."""

from __future__ import annotations

import pytest

from tidelog.wording import listed


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

"""Merge patches, by which the operator replaces a status: what is gone is removed, at every depth."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog_operator.kubernetes.api import merge_patch


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({}, {"rows": 1}, {"rows": 1}),
        ({"active": "orders-1"}, {}, {"active": None}),
        (
            {"lastRun": {"name": "orders-1", "exitCode": 11}},
            {"lastRun": {"name": "orders-2"}},
            {"lastRun": {"name": "orders-2", "exitCode": None}},
        ),
        (
            {"offsets": {"old": {"0": 7}, "orders": {"0": 1, "1": 2}}},
            {"offsets": {"orders": {"0": 3}}},
            {"offsets": {"old": None, "orders": {"0": 3, "1": None}}},
        ),
        ({"lag": {"orders": 1}}, {"lag": 0}, {"lag": 0}),
    ],
    ids=["added", "removed", "removed inside", "removed deeper", "another type"],
)
def test_a_merge_patch_removes_what_is_gone(
    before: dict[str, Any], after: dict[str, Any], patch: dict[str, Any]
) -> None:
    assert merge_patch(before, after) == patch

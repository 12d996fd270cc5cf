"""Who may vote next: one voter more or less (thesis 4.1)."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.raft_cluster import voter
from tidelog.errors import InvalidRequest
from tidelog_broker.core.raft.changes import check_change
from tidelog_broker.core.raft.quorum import majority
from tidelog_broker.model import Configuration, Voter

A, B, C, D = (voter(number) for number in range(1, 5))
NEW_C = voter(3, disk=1)

GROUPS = st.lists(st.sampled_from([A, B, C, D, NEW_C]), max_size=5).map(tuple)


@pytest.mark.parametrize(
    "new",
    [
        Configuration((A, B, C, D)),
        Configuration((A, B), (C,)),
        Configuration((C, B, A), (D,)),
        Configuration((A, B, C), (NEW_C,)),
        Configuration((A, B), (NEW_C,)),
    ],
    ids=[
        "one more",
        "one learns again",
        "another broker learns",
        "a new disk learns beside the old",
        "the old disk is removed",
    ],
)
def test_these_may_follow_three_voters(new: Configuration) -> None:
    check_change(Configuration((A, B, C)), new)


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (Configuration(()), "no voter would be left"),
        (Configuration((A,)), "2 voters would change"),
        (Configuration((A, B, NEW_C)), "2 voters would change"),
        (Configuration((A, B, C, NEW_C)), "vote with two disks"),
        (Configuration((A, B, C), (C,)), "is listed twice"),
        (Configuration((A, B, C, C)), "is listed twice"),
    ],
)
def test_these_may_not(new: Configuration, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        check_change(Configuration((A, B, C)), new)


@given(GROUPS, GROUPS)
def test_any_majority_before_a_change_shares_a_voter_with_any_after_it(
    old: tuple[Voter, ...], new: tuple[Voter, ...]
) -> None:
    before = tuple(dict.fromkeys(old))
    try:
        check_change(Configuration(before), Configuration(new))
    except InvalidRequest:
        return

    for one in combinations(before, majority(len(before))):
        for other in combinations(new, majority(len(new))):
            assert not before or set(one) & set(other)

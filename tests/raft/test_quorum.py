"""Counting majorities, against a slow twin that tries every number and every majority."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from tidelog_broker.core.raft.quorum import VoteResult, count_votes, majority, quorum_index

VOTERS = st.sets(st.integers(0, 9), max_size=7).map(sorted)
REACHED = st.dictionaries(st.integers(0, 9), st.integers(0, 12))
VOTES = st.dictionaries(st.integers(0, 9), st.booleans())


@given(VOTERS)
def test_two_majorities_always_share_a_voter_and_no_smaller_number_is_one(voters: list[int]) -> None:
    count = majority(len(voters))

    assert 2 * count > len(voters) >= 2 * (count - 1)


@given(VOTERS, REACHED)
def test_the_quorum_index_is_the_largest_that_some_majority_has_reached(
    voters: list[int], reached: dict[int, int]
) -> None:
    groups = combinations(voters, majority(len(voters)))
    expected = max((min(reached.get(voter, 0) for voter in group) for group in groups if group), default=0)

    assert quorum_index(voters, reached) == expected


@given(VOTERS, VOTES)
def test_an_election_is_over_when_no_further_vote_could_change_it(
    voters: list[int], votes: dict[int, bool]
) -> None:
    def won(missing: bool) -> bool:
        return sum(votes.get(voter, missing) for voter in voters) * 2 > len(voters)

    found = count_votes(voters, votes)

    if not won(missing=True):
        assert found is VoteResult.LOST
    elif won(missing=False):
        assert found is VoteResult.WON
    else:
        assert found is VoteResult.PENDING

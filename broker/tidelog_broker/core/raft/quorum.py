"""Counting: what a majority of the voters has (entries, heartbeats, votes)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import TypeVar

V = TypeVar("V")


class VoteResult(Enum):
    PENDING = "pending"
    WON = "won"
    LOST = "lost"


def majority(voters: int) -> int:
    """The smallest number that is more than half of `voters`."""
    return voters // 2 + 1


def quorum_index(voters: Collection[V], reached: Mapping[V, int]) -> int:
    """The largest index that more than half of `voters` have reached; a voter that is not in `reached` has 0.

    Without voters: 0.
    """
    if not voters:
        return 0
    indexes = sorted((reached.get(voter, 0) for voter in voters), reverse=True)
    return indexes[majority(len(voters)) - 1]


def count_votes(voters: Collection[V], votes: Mapping[V, bool]) -> VoteResult:
    """The result of an election; only votes of `voters` count."""
    granted = sum(votes.get(voter) is True for voter in voters)
    refused = sum(votes.get(voter) is False for voter in voters)
    if voters and granted >= majority(len(voters)):
        return VoteResult.WON
    if refused > len(voters) - majority(len(voters)):
        return VoteResult.LOST
    return VoteResult.PENDING

"""A candidate: it asks for pre-votes first, which change nothing, and then for votes (thesis 9.6).

So a node that was cut off returns without having driven up its term, and disturbs no leader.
Neighbours: `voting` (which candidate gets a vote), `quorum` (counting).
"""

from __future__ import annotations

from tidelog_broker.core.raft.messages import VoteRequest, VoteResponse
from tidelog_broker.core.raft.quorum import VoteResult, count_votes
from tidelog_broker.core.raft.state import RaftState
from tidelog_broker.core.raft.transitions import BecomeCandidate, BecomeFollower, BecomeLeader, Transition
from tidelog_broker.model import Voter


class Candidate:
    """One round of pre-votes or of votes."""

    __slots__ = ("_elapsed", "_state", "_term", "_timeout", "_transfer", "_votes", "pre")

    def __init__(self, state: RaftState, *, pre: bool, transfer: bool) -> None:
        self._state = state
        self.pre = pre
        """It asks only whether it would win."""
        self._term = state.term + 1 if pre else state.term
        """The term that it wants to lead in."""
        self._transfer = transfer
        self._votes: dict[Voter, bool] = {}
        self._elapsed = 0
        self._timeout = max(1, state.election_timeout())

    def begin(self) -> Transition | None:
        state = self._state
        for voter in state.configuration.voters:
            if voter != state.me:
                state.send(
                    VoteRequest(
                        self._term,
                        state.me,
                        voter,
                        last_index=state.log.last_index,
                        last_term=state.log.last_term,
                        pre=self.pre,
                        transfer=self._transfer,
                    )
                )
        return self._count(state.me, granted=True) if self.pre else None

    def tick(self) -> Transition | None:
        if not self.pre and self._state.saved_term != self._state.term:
            # The disk is slow, not the voters: another term would only have to wait for it as well.
            return None
        self._elapsed += 1
        return BecomeCandidate(pre=True) if self._elapsed >= self._timeout else None

    def saved(self) -> Transition | None:
        """A candidate's own vote counts once it is on disk."""
        if not self.pre and self._state.saved_term == self._state.term:
            return self._count(self._state.me, granted=True)
        return None

    def voted(self, response: VoteResponse) -> Transition | None:
        # A granted vote names the term that it is for, which may be the term of an earlier campaign.
        if response.pre == self.pre and (response.term == self._term or not response.granted):
            return self._count(response.source, response.granted)
        return None

    def _count(self, voter: Voter, granted: bool) -> Transition | None:
        self._votes.setdefault(voter, granted)
        match count_votes(self._state.configuration.voters, self._votes):
            case VoteResult.WON:
                return BecomeCandidate(pre=False) if self.pre else BecomeLeader()
            case VoteResult.LOST:
                return BecomeFollower(self._state.term, None)
            case VoteResult.PENDING:
                return None

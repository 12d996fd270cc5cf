"""A campaign: pre-votes first, which change nothing, then votes (thesis 9.6).

So a node that was cut off comes back without having driven up its term, and disturbs
nobody. Neighbours: `voting` (who gets a vote), `quorum` (counting).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_broker.core.raft.messages import VoteRequest, VoteResponse
from tidelog_broker.core.raft.quorum import VoteResult, count_votes
from tidelog_broker.model import Voter

if TYPE_CHECKING:
    from tidelog_broker.core.raft.node import RaftNode


class Campaign:
    """See the module."""

    __slots__ = ("_elapsed", "_node", "_patience", "_term", "_transfer", "_votes", "pre")

    def __init__(self, node: RaftNode, *, pre: bool, transfer: bool) -> None:
        self._node = node
        self.pre = pre
        """It only asks whether it would win."""
        self._term = node.term + 1 if pre else node.term
        """The one that it asks for."""
        self._transfer = transfer
        self._votes: dict[Voter, bool] = {}
        self._elapsed = 0
        self._patience = max(1, node.patience())

    def begin(self) -> None:
        node = self._node
        for voter in node.configuration.voters:
            if voter != node.me:
                node.say(
                    VoteRequest(
                        self._term,
                        node.me,
                        voter,
                        last_index=node.log.last_index,
                        last_term=node.log.last_term,
                        pre=self.pre,
                        transfer=self._transfer,
                    )
                )
        if self.pre:
            self._count(node.me, granted=True)

    def tick(self) -> None:
        if not self.pre and self._node.saved_term != self._node.term:
            # The disk is slow, not the voters: another term would only be another wait.
            return
        self._elapsed += 1
        if self._elapsed >= self._patience:
            self._node.begin_campaign(pre=True)

    def saved(self) -> None:
        """Its own vote counts once it is on disk."""
        if not self.pre and self._node.saved_term == self._node.term:
            self._count(self._node.me, granted=True)

    def leader_refused(self) -> None:
        """It asks already."""

    def hears_leader(self) -> bool:
        return False

    def voted(self, response: VoteResponse) -> None:
        # A promise names the term that it is for, which may be that of an earlier campaign.
        if response.pre == self.pre and (response.term == self._term or not response.granted):
            self._count(response.source, response.granted)

    def _count(self, voter: Voter, granted: bool) -> None:
        node = self._node
        self._votes.setdefault(voter, granted)
        match count_votes(node.configuration.voters, self._votes):
            case VoteResult.WON if self.pre:
                node.begin_campaign(pre=False)
            case VoteResult.WON:
                node.lead()
            case VoteResult.LOST:
                node.follow(node.term, None)
            case VoteResult.PENDING:
                pass

"""Which candidate gets a vote (Raft 5.2, 5.4.1; pre-votes: thesis 9.6).

Neighbours: `stepping` calls this after the check-quorum rule has admitted the request; `campaigning`
counts the answers.
"""

from __future__ import annotations

from tidelog_broker.core.raft.log import Log
from tidelog_broker.core.raft.messages import VoteRequest
from tidelog_broker.model import Voter


def grants(request: VoteRequest, *, term: int, vote: Voter | None, leader: Voter | None, log: Log) -> bool:
    """Whether a node in `term`, which gave `vote` and knows `leader` in it, grants `request`.

    A node gives one vote a term, and only to a candidate that has everything that its own log has. A
    pre-vote commits a node to nothing, so it is free for any later term. A node with an empty log
    knows no cluster and never votes (M1).
    """
    if request.pre:
        free = request.term > term
    else:
        free = vote == request.source or (vote is None and leader is None)
    whole = (request.last_term, request.last_index) >= (log.last_term, log.last_index)
    return free and whole and log.last_index > 0

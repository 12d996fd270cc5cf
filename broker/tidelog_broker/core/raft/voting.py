"""Who gets a vote (Raft 5.2, 5.4.1; pre-votes: thesis 9.6).

Neighbours: `node` asks, after check-quorum has let the request through; `campaigning`
counts the answers.
"""

from __future__ import annotations

from tidelog_broker.core.raft.log import Log
from tidelog_broker.core.raft.messages import VoteRequest
from tidelog_broker.model import Voter


def grants(request: VoteRequest, *, term: int, vote: Voter | None, leader: Voter | None, log: Log) -> bool:
    """Whether a node in `term`, that gave `vote` and knows `leader` in it, grants `request`.

    A vote is for one in a term, and for one that has everything that this log has. A
    pre-vote binds nobody, so it is free for any later term. An empty log knows nothing of
    any cluster and never votes (M1).
    """
    if request.pre:
        free = request.term > term
    else:
        free = vote == request.source or (vote is None and leader is None)
    whole = (request.last_term, request.last_index) >= (log.last_term, log.last_index)
    return free and whole and log.last_index > 0

"""Why a node refuses a request, which is definite, or cannot go on."""

from __future__ import annotations


class NotRaftLeader(Exception):
    """Only the leader can serve this request; `RaftNode.leader` names it if it is known."""


class Busy(Exception):
    """The node cannot serve the request now; the message says until when."""


class LogForgotten(Exception):
    """This node's log lacks entries that it acknowledged: its disk is an old copy, or lost writes."""

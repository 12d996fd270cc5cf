"""Why a node does not do what it was asked for. Both are definite: nothing was done."""

from __future__ import annotations


class NotLeader(Exception):
    """Only the leader can do this; `RaftNode.leader` may know who it is."""


class Busy(Exception):
    """Not now; the message says until when."""

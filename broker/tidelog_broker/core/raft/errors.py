"""Why a node does not do what it was asked for, which is definite, or cannot go on."""

from __future__ import annotations


class NotRaftLeader(Exception):
    """Only the leader can do this; `RaftNode.leader` may know who it is."""


class Busy(Exception):
    """Not now; the message says until when."""


class LogForgotten(Exception):
    """This node's log lacks entries that it acknowledged: its disk was put back from a copy, or lied."""

"""What a node becomes next. A role returns one of these values, and `node` performs it."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tidelog_broker.model import Voter


class BecomeFollower(NamedTuple):
    """Follow in `term`, which may be a later one."""

    term: int
    leader: Voter | None
    """None: the leader of that term is not known yet."""


class BecomeCandidate(NamedTuple):
    """Ask all voters for their votes."""

    pre: bool
    """Ask only whether they would vote; the term stays (thesis 9.6)."""
    transfer: bool = False
    """The leader asked this node to take over."""


class BecomeLeader(NamedTuple):
    """Lead: the election of this term is won."""


Transition: TypeAlias = BecomeFollower | BecomeCandidate | BecomeLeader

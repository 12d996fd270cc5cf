"""M2: whether two metadata logs are of one history, and what a log of an earlier one may do.

A forced recovery begins a new history: the log of one voter goes on, and what other logs hold behind that
point is not of the cluster any more, committed or not. Raft's promises hold within one history, so its
messages, and everything that rests on the image, pass only between brokers of the same one. A log's history
is the list of recoveries in its newest configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

from tidelog_broker.model import Configuration, Recovery, Voter

History: TypeAlias = tuple[Recovery, ...] | None
"""Recoveries, oldest first. None: an empty log, which is of no history yet."""


class Relation(Enum):
    """What one history is to another."""

    SAME = "same"
    EARLIER = "earlier"
    """The other one went on from it by force."""
    LATER = "later"
    """It went on from the other one by force."""
    OTHER = "other"
    """Both went on by force from what they share: two recoveries were made."""


def relation(mine: History, theirs: History) -> Relation:
    """What `mine` is to `theirs`; an empty log fits any."""
    if mine is None or theirs is None or mine == theirs:
        return Relation.SAME
    shared = min(len(mine), len(theirs))
    if mine[:shared] != theirs[:shared]:
        return Relation.OTHER
    return Relation.EARLIER if len(mine) < len(theirs) else Relation.LATER


def knows_more(
    me: Voter, configuration: Configuration, last: tuple[int, int], theirs: Sequence[Recovery]
) -> bool:
    """Whether this log is that of a voter which should have been recovered instead.

    `last`: term and index of its last entry. That of a learner is never needed for a majority. A voter's
    that ends behind the point of the recovery may hold what was committed, and may even belong to a
    majority that is alive: to give it up is for people to decide.
    """
    begun = theirs[len(configuration.recoveries)]
    return me in configuration.voters and last > (begun.term, begun.index)

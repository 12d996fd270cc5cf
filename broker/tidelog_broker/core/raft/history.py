"""M2: whether two metadata logs are of one history, and what a log of an earlier history may do.

A forced recovery begins a new history: the log of one voter continues, and the entries that other logs hold
after that point do not belong to the cluster any more, committed or not. Raft's promises hold within one
history, so Raft messages, and everything that rests on the image, pass only between brokers of the same
history. A log's history is the list of recoveries in its newest configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

from tidelog_broker.model import Configuration, Recovery, Voter

History: TypeAlias = tuple[Recovery, ...] | None
"""Recoveries, oldest first. None: an empty log, which has no history yet."""


class Relation(Enum):
    """How one history relates to another."""

    SAME = "same"
    EARLIER = "earlier"
    """A forced recovery of this history began the other one."""
    LATER = "later"
    """A forced recovery of the other history began this one."""
    OTHER = "other"
    """Two forced recoveries, made independently, began both from the part that they share."""


def relation(mine: History, theirs: History) -> Relation:
    """How `mine` relates to `theirs`; an empty log counts as the same history as any."""
    if mine is None or theirs is None or mine == theirs:
        return Relation.SAME
    shared = min(len(mine), len(theirs))
    if mine[:shared] != theirs[:shared]:
        return Relation.OTHER
    return Relation.EARLIER if len(mine) < len(theirs) else Relation.LATER


def knows_more(
    me: Voter, configuration: Configuration, last: tuple[int, int], theirs: Sequence[Recovery]
) -> bool:
    """Whether this log belongs to a voter that should have been recovered instead.

    `last`: term and index of its last entry. A learner's log is never needed for a majority. The log of a
    voter that ends after the point of the recovery may hold committed entries, and may even belong to a
    majority that is alive: an administrator must decide whether to discard it.
    """
    begun = theirs[len(configuration.recoveries)]
    return me in configuration.voters and last > (begun.term, begun.index)

"""Who may vote next, and when: one voter more or less than now (thesis 4.1).

Any majority of the old voters and any majority of the new ones then have a voter in
common, so that both can stand side by side while the entry travels.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.errors import InvalidRequest
from tidelog_broker.core.raft.errors import Busy
from tidelog_broker.model import Configuration, Voter


def check_change(old: Configuration, new: Configuration) -> None:
    """Raises `InvalidRequest` if `new` must not follow `old`."""
    assert new.recoveries == old.recoveries, "only a forced recovery begins a history"
    if not new.voters:
        raise InvalidRequest("no voter would be left; one must stay")
    everybody = [*new.voters, *new.learners]
    if len(set(everybody)) != len(everybody):
        # Two disks of one broker may stand side by side, one to vote and one to learn (M2).
        raise InvalidRequest("a broker stands twice among voters and learners; once will do")
    brokers = [voter.broker_id for voter in new.voters]
    if len(set(brokers)) != len(brokers):
        raise InvalidRequest("a broker would vote with two disks; it votes with one")
    changed = set(old.voters) ^ set(new.voters)
    if len(changed) > 1:
        raise InvalidRequest(f"{len(changed)} voters would come or go at once; one may")


def check_settled(commit: int, first_index: int, configuration_index: int) -> None:
    """Raises `Busy` unless the voters of now are agreed upon.

    One change at a time; and a new leader, whose term begins at `first_index`, first commits
    an entry of its own: else an earlier leader's change may come back beside its own
    (Ongaro's correction of 2015).
    """
    if commit < first_index:
        raise Busy("nothing of this term is committed yet")
    if configuration_index > commit:
        raise Busy("an earlier change of the voters is not committed yet")


def check_learnt(
    old: Configuration, new: Configuration, match: Mapping[Voter, int], first_index: int
) -> None:
    """Raises `Busy` unless a new voter has the log up to this term, which begins at `first_index` (M1).

    One with an empty log gives no votes: if its vote were needed before a leader filled its
    log, nobody could be elected to fill it.
    """
    for voter in new.voters:
        if voter not in old.voters and match.get(voter, 0) < first_index:
            raise Busy(f"broker {voter.broker_id} has not learnt what there is; it votes when it has")

"""Which changes of the voters are allowed, and when: one voter more or less at a time (thesis 4.1).

Any majority of the old voters and any majority of the new voters then have a voter in
common, so that some nodes may use the old configuration while others use the new one.
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
        raise InvalidRequest("no voter would be left; the metadata quorum needs at least 1")
    everybody = [*new.voters, *new.learners]
    if len(set(everybody)) != len(everybody):
        # Two disks of one broker may be members at the same time: one votes and the other learns (M2).
        raise InvalidRequest("a broker is listed twice among voters and learners; list it once")
    brokers = [voter.broker_id for voter in new.voters]
    if len(set(brokers)) != len(brokers):
        raise InvalidRequest("a broker would vote with two disks; it may vote with one only")
    changed = set(old.voters) ^ set(new.voters)
    if len(changed) > 1:
        raise InvalidRequest(f"{len(changed)} voters would change at once; change one voter at a time")


def check_settled(commit: int, first_index: int, configuration_index: int) -> None:
    """Raises `Busy` unless the current configuration is committed.

    There is one change at a time. A new leader, whose term begins at `first_index`, first commits
    an entry of its own: otherwise an earlier leader's change may return and take effect beside the
    new leader's change (Ongaro's correction of 2015).
    """
    if commit < first_index:
        raise Busy("nothing of this term is committed yet")
    if configuration_index > commit:
        raise Busy("an earlier change of the voters is not committed yet")


def check_learnt(
    old: Configuration, new: Configuration, match: Mapping[Voter, int], first_index: int
) -> None:
    """Raises `Busy` unless a new voter has the log up to this term, which begins at `first_index` (M1).

    A voter with an empty log gives no votes: if its vote were needed before a leader filled its
    log, no leader could be elected to fill it.
    """
    for voter in new.voters:
        if voter not in old.voters and match.get(voter, 0) < first_index:
            raise Busy(f"broker {voter.broker_id} has not learnt what there is; it votes when it has")

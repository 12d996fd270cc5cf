"""R6: the history of whoever leads says that an unclean election took place."""

from __future__ import annotations

from replication.whole_logs import WholeLog
from tidelog_broker.core.replication.effects import Restart, Truncate
from tidelog_broker.core.replication.log_view import last_epoch
from tidelog_broker.core.replication.messages import Diverged, StartOver
from tidelog_broker.core.replication.reconciliation import compare, way_back
from tidelog_broker.core.replication.unclean_epochs import epoch_to_mark


def log_of(*epochs: int, start: int = 0) -> WholeLog:
    log = WholeLog()
    log.restart_at(start)
    log.append([(epoch, start + number) for number, epoch in enumerate(epochs)])
    return log


def test_who_leads_in_the_unclean_epoch_begins_it_once() -> None:
    log = log_of(1, 1)

    assert epoch_to_mark(log, leader_epoch=4, unclean_epoch=4) == 4
    log.begin_unclean(4)
    assert epoch_to_mark(log, leader_epoch=4, unclean_epoch=4) is None


def test_who_leads_later_without_an_entry_of_it_begins_it_too() -> None:
    assert epoch_to_mark(log_of(1, 1), leader_epoch=6, unclean_epoch=4) == 4
    assert epoch_to_mark(log_of(1, 4), leader_epoch=6, unclean_epoch=4) is None
    assert epoch_to_mark(log_of(1, 5), leader_epoch=6, unclean_epoch=4) is None


def test_without_an_unclean_election_there_is_nothing_to_say() -> None:
    assert epoch_to_mark(log_of(), leader_epoch=1, unclean_epoch=0) is None
    assert epoch_to_mark(log_of(1), leader_epoch=2, unclean_epoch=0) is None


def test_a_follower_may_cut_what_the_unclean_leader_lacked_whoever_tells_it() -> None:
    leader, follower = log_of(1, 1), log_of(1, 1, 1)
    marked = epoch_to_mark(leader, leader_epoch=6, unclean_epoch=4)
    assert marked is not None
    leader.begin_unclean(marked)

    answer = compare(follower.end_offset, last_epoch(follower), leader, 6)

    assert isinstance(answer, Diverged)
    assert way_back(answer, follower, high_watermark=3) == Truncate(2)


def test_an_emptied_leader_does_not_end_epochs_that_others_hold_records_of() -> None:
    """All records are deleted there; a follower still has some, of epochs after the unclean one."""
    leader, follower = log_of(start=5), log_of(1, 1, 4, 5, 5)
    marked = epoch_to_mark(leader, leader_epoch=6, unclean_epoch=4)
    assert marked == 6
    leader.begin_unclean(marked)

    answer = compare(follower.end_offset, last_epoch(follower), leader, 6)

    assert isinstance(answer, StartOver)
    assert way_back(answer, follower, high_watermark=5) == Restart(5)

"""R6: the history of whoever leads says that an unclean election took place."""

from __future__ import annotations

import pytest

from replication.whole_logs import WholeLog
from tidelog.errors import LogTruncated
from tidelog_broker.core.replication.effects import Quarantine, Restart, Truncate
from tidelog_broker.core.replication.log_view import last_epoch
from tidelog_broker.core.replication.messages import Diverged, StartOver
from tidelog_broker.core.replication.positions import check_position
from tidelog_broker.core.replication.reconciliation import compare, resolve_divergence
from tidelog_broker.core.replication.unclean_epochs import epoch_to_mark


def log_of(*epochs: int, start: int = 0) -> WholeLog:
    log = WholeLog()
    log.restart_at(start)
    log.append([(epoch, start + number) for number, epoch in enumerate(epochs)])
    return log


def emptied(start: int, unclean_epoch: int) -> WholeLog:
    """The log of a new leader, which holds no record."""
    log = log_of(start=start)
    marked = epoch_to_mark(log, unclean_epoch)
    assert marked is not None
    log.begin_unclean(marked)
    return log


def check(log: WholeLog, offset: int, epoch: int) -> None:
    check_position(
        offset,
        epoch,
        first=log.epochs.first,
        end_of_epoch=log.epochs.end_of(epoch, log.end_offset),
        log_start_offset=log.start_offset,
        log_end_offset=log.end_offset,
    )


def test_who_leads_in_the_unclean_epoch_begins_it_once() -> None:
    log = log_of(1, 1)

    assert epoch_to_mark(log, unclean_epoch=4) == 4
    log.begin_unclean(4)
    assert epoch_to_mark(log, unclean_epoch=4) is None


def test_who_leads_later_without_an_entry_of_it_begins_it_too() -> None:
    assert epoch_to_mark(log_of(1, 1), unclean_epoch=4) == 4
    assert epoch_to_mark(log_of(1, 4), unclean_epoch=4) is None
    assert epoch_to_mark(log_of(1, 5), unclean_epoch=4) is None


def test_without_an_unclean_election_there_is_nothing_to_say() -> None:
    assert epoch_to_mark(log_of(), unclean_epoch=0) is None
    assert epoch_to_mark(log_of(1), unclean_epoch=0) is None


def test_a_follower_may_cut_what_the_unclean_leader_lacked_whoever_tells_it() -> None:
    leader, follower = log_of(1, 1), log_of(1, 1, 1)
    marked = epoch_to_mark(leader, unclean_epoch=4)
    assert marked is not None
    leader.begin_unclean(marked)

    answer = compare(follower.end_offset, last_epoch(follower), leader, 6)

    assert isinstance(answer, Diverged)
    assert resolve_divergence(answer, follower, high_watermark=3) == Truncate(2)


def test_an_emptied_leader_does_not_end_epochs_that_others_hold_records_of() -> None:
    """All records are deleted there; a follower still has some, of epochs after the unclean one."""
    for follower in (log_of(1, 1, 4, 5, 5), log_of(1, 1, 4, 5, 5, 5), log_of(1, 1, 4, 4, 4, 4, 5)):
        leader = emptied(start=5, unclean_epoch=4)
        for _ in range(2):
            answer = compare(follower.end_offset, last_epoch(follower), leader, 6)
            assert isinstance(answer, StartOver)
            assert resolve_divergence(answer, follower, high_watermark=5) == Restart(5)
            # The same when the epoch has records.
            leader.append([(6, 1), (6, 2)])


def test_an_emptied_leader_says_of_which_epoch_on_records_may_be_lost() -> None:
    """The follower was away since before the unclean election, which lost what it holds."""
    leader, follower = emptied(start=2, unclean_epoch=4), log_of(1, 1, 3, 3, 3)

    answer = compare(follower.end_offset, last_epoch(follower), leader, 6)

    assert isinstance(answer, StartOver)
    assert resolve_divergence(answer, follower, high_watermark=5) == Restart(2)


@pytest.mark.parametrize("appended", [0, 3])
def test_a_clean_epoch_is_no_reason_to_cut_what_was_committed_since_the_unclean_one(appended: int) -> None:
    """A leader that was elected cleanly, and whose log somebody emptied, must not empty the others'."""
    leader = emptied(start=0, unclean_epoch=4)
    leader.append([(8, number) for number in range(appended)])

    for follower in (log_of(4, 4, 7, 7, 7), log_of(4, 4, 4)):
        answer = compare(follower.end_offset, last_epoch(follower), leader, 8)

        assert isinstance(answer, StartOver)
        assert isinstance(resolve_divergence(answer, follower, follower.end_offset), Quarantine)


def test_the_mark_of_an_emptied_leader_goes_on_to_those_who_follow_it_from_there() -> None:
    leader = emptied(start=5, unclean_epoch=4)
    leader.append([(6, 1)])
    heir = log_of(start=5)
    heir.append(leader.read(5, 6), unclean=((4, 5),))

    assert list(heir.epochs) == list(leader.epochs) == [(4, 5, True), (6, 5, False)]
    assert epoch_to_mark(heir, unclean_epoch=4) is None


@pytest.mark.parametrize("appended", [0, 3])
def test_a_reader_stands_at_the_start_of_an_emptied_log_whatever_it_read_before(appended: int) -> None:
    """R13: the records in front of it are deleted, and nothing contradicts them."""
    leader = emptied(start=5, unclean_epoch=4)
    leader.append([(6, number) for number in range(appended)])

    for epoch in (1, 4, 5):
        check(leader, 5, epoch)
    with pytest.raises(LogTruncated) as told:
        check(leader, 6, 5)
    assert told.value.details["divergence_offset"] == "5"


def test_a_reader_of_an_epoch_that_the_log_never_had_is_told() -> None:
    log = log_of(1, 1, 4, 4)

    with pytest.raises(LogTruncated):
        check(log, 2, 3)
    log.advance_start(3)
    with pytest.raises(LogTruncated):
        check(log, 4, 5)

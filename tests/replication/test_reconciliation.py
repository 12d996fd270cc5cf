"""R1, against logs that are compared record by record."""

from __future__ import annotations

import random

import pytest

from replication.whole_logs import Record, WholeLog, parting
from tidelog_broker.core.replication.effects import Quarantine, Restart, Truncate
from tidelog_broker.core.replication.log_view import epoch_before_start, last_epoch
from tidelog_broker.core.replication.messages import Diverged, StartOver
from tidelog_broker.core.replication.reconciliation import Matches, compare, resolve_divergence

REPLICAS = 4


def log_of(*epochs: int, start: int = 0) -> WholeLog:
    """A log whose records have these epochs."""
    log = WholeLog()
    log.restart_at(start)
    log.append([(epoch, start + number) for number, epoch in enumerate(epochs)])
    return log


def reconcile(follower: WholeLog, leader: WholeLog, high_watermark: int) -> int:
    """Asks and cuts until the logs agree; how many questions that took."""
    for questions in range(1, 100):
        answer = compare(follower.end_offset, last_epoch(follower), leader, 99)
        if isinstance(answer, Matches):
            return questions
        before = follower.end_offset
        match resolve_divergence(answer, follower, high_watermark):
            case Truncate(offset):
                follower.truncate(offset)
            case Restart(offset, epoch_before):
                follower.restart_at(offset, epoch_before)
            case other:
                raise AssertionError(f"{other} for {answer}")
        assert follower.end_offset < before or follower.start_offset > before or not follower.records, (
            "every answer leads somewhere"
        )
    raise AssertionError("no end")


class Histories:
    """Replicas with the logs that many short leaderships leave behind; some of it is committed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.logs = [WholeLog() for _ in range(REPLICAS)]
        self.committed = 0
        self.keep: dict[int, Record] = {}
        """What is committed."""
        self.value = 0
        for epoch in range(1, self.rng.randint(2, 14)):
            self.lead(epoch)

    def lead(self, epoch: int) -> None:
        rng = self.rng
        # A clean election: everything committed is in the new leader's log.
        leader = rng.choice([log for log in self.logs if log.end_offset >= self.committed and self.fits(log)])
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            self.value += 1
            leader.append([(epoch, self.value)])
        copied = []
        for follower in self.logs:
            if follower is leader or rng.random() < 0.5:
                continue
            self.follow_ideally(follower, leader)
            follower.append(
                leader.read(follower.end_offset, rng.randint(follower.end_offset, leader.end_offset))
            )
            copied.append(follower.end_offset)
        if len(copied) >= REPLICAS // 2:
            self.committed = max(self.committed, sorted(copied)[-(REPLICAS // 2)])
            for offset in range(leader.start_offset, self.committed):
                self.keep[offset] = leader.at(offset)
        for log in self.logs:
            if rng.random() < 0.15 and self.fits(log):
                log.advance_start(rng.randint(0, min(self.committed, log.end_offset)))

    def fits(self, log: WholeLog) -> bool:
        """Whether a log has everything committed, byte for byte."""
        if log.end_offset < self.committed:
            return False
        return all(log.at(offset) == self.keep[offset] for offset in range(log.start_offset, self.committed))

    def high_watermark_max(self, log: WholeLog) -> int:
        """The highest that a replica with this log can have heard of: all below is committed, and in it."""
        offset = log.start_offset
        while offset < min(log.end_offset, self.committed) and log.at(offset) == self.keep[offset]:
            offset += 1
        return offset

    def follow_ideally(self, follower: WholeLog, leader: WholeLog) -> None:
        """What R1 is to reach, found by looking at all records."""
        below = range(follower.start_offset, min(follower.end_offset, leader.start_offset))
        if follower.end_offset < leader.start_offset or any(follower.at(at) != self.keep[at] for at in below):
            follower.restart_at(leader.start_offset, epoch_before_start(leader))
        at = parting(follower, leader)
        if at < follower.end_offset:
            follower.records = follower.records[: at - follower.start_offset]
            follower.epochs = follower.epochs.cut(follower.end_offset) or follower.epochs


@pytest.mark.parametrize("block", range(8))
def test_a_follower_finds_the_divergence_in_at_most_one_round_for_each_epoch(block: int) -> None:
    several_rounds = emptied = cut = 0
    for seed in range(block * 250, block * 250 + 250):
        made = Histories(seed)
        leader = made.rng.choice([log for log in made.logs if made.fits(log)])
        for follower in made.logs:
            if follower is leader:
                continue
            common = parting(follower, leader)
            before, epochs = follower.end_offset, len(list(follower.epochs))
            knows_nothing = follower.epochs.epoch_at(common - 1) is None

            rounds = reconcile(follower, leader, made.high_watermark_max(follower))

            assert rounds <= epochs + 2, seed
            if follower.records:
                assert parting(follower, leader) == follower.end_offset, seed
                assert follower.end_offset == common, seed
            else:
                # Emptied: nothing that both had and the leader still has was dropped.
                assert leader.start_offset <= follower.start_offset <= leader.end_offset, seed
                assert (
                    common <= follower.start_offset
                    or common <= max(leader.start_offset, 0)
                    or (knows_nothing and follower.start_offset == leader.start_offset)
                ), seed
            several_rounds += rounds > 2
            emptied += not follower.records and before > 0
            cut += follower.end_offset < before
    assert several_rounds > 3
    assert emptied > 10
    assert cut > 50


def test_an_epoch_that_the_leader_lacks_is_cut_where_the_one_before_it_ends_there() -> None:
    leader, follower = log_of(1, 1, 2, 2, 4), log_of(1, 1, 3, 3, 3)

    answer = compare(5, 3, leader, 4)

    assert answer == Diverged(4, epoch=2, end_offset=4, unclean=False)
    assert isinstance(answer, Diverged)
    assert resolve_divergence(answer, follower, 2) == Truncate(2)


def test_a_follower_whose_epoch_goes_on_longer_is_cut_where_it_ends_at_the_leader() -> None:
    answer = compare(4, 1, log_of(1, 1, 2), 2)

    assert answer == Diverged(2, epoch=1, end_offset=2, unclean=False)
    assert isinstance(answer, Diverged)
    assert resolve_divergence(answer, log_of(1, 1, 1, 1), 0) == Truncate(2)


def test_below_the_leaders_start_a_follower_begins_there_with_an_empty_log() -> None:
    leader = log_of(3, 3, start=50)

    assert compare(20, 1, leader, 3) == StartOver(3, 50, unclean=False)
    assert resolve_divergence(StartOver(3, 50, unclean=False), log_of(*[1] * 20), 20) == Restart(50)
    assert compare(50, None, leader, 3) == Matches()


def test_an_epoch_older_than_the_leaders_history_is_not_compared_but_dropped() -> None:
    assert compare(51, 1, log_of(3, 3, start=50), 3) == StartOver(3, 50, unclean=False)
    assert compare(50, 1, log_of(3, 3, start=50), 3) == StartOver(3, 50, unclean=False)


def test_a_cut_below_the_high_watermark_is_refused_unless_an_epoch_began_uncleanly() -> None:
    follower = log_of(1, 1, 1, 1)

    found = resolve_divergence(Diverged(2, 1, 2, unclean=False), follower, 3)
    assert isinstance(found, Quarantine)
    assert "offset 2" in found.reason
    assert resolve_divergence(Diverged(2, 1, 2, unclean=True), follower, 3) == Truncate(2)
    assert isinstance(resolve_divergence(StartOver(2, 0, unclean=False), follower, 3), Quarantine)
    assert resolve_divergence(StartOver(2, 0, unclean=True), follower, 3) == Restart(0)


def test_only_an_unclean_epoch_behind_the_common_one_counts() -> None:
    leader = WholeLog()
    leader.append([(1, 1), (1, 2)])
    leader.begin_unclean(2)
    leader.append([(3, 3)])

    assert compare(5, 1, leader, 3) == Diverged(3, 1, 2, unclean=True)
    assert compare(5, 3, leader, 3) == Diverged(3, 3, 3, unclean=False)


def test_a_follower_starts_over_at_the_end_of_a_shorter_unclean_log() -> None:
    leader = WholeLog()
    leader.append([(1, 1), (1, 2)])
    leader.begin_unclean(2)
    follower = log_of(1, 1, start=10)

    assert reconcile(follower, leader, 12) == 3
    assert (follower.start_offset, follower.end_offset) == (0, 0), "nobody knows what it had below"
    follower = WholeLog()
    follower.append([(1, number) for number in range(12)])
    follower.advance_start(10)
    assert reconcile(follower, leader, 12) == 2
    assert (follower.start_offset, follower.end_offset) == (2, 2), (
        "up to there it had the same, and dropped it"
    )


def test_a_log_that_knows_of_no_record_fits_only_where_the_leaders_log_begins() -> None:
    leader = log_of(1, 1, 2, start=5)

    fits = [compare(at, None, leader, 2) == Matches() for at in (4, 5, 6, 8, 9)]

    assert fits == [False, True, False, False, False]


def test_a_log_that_knows_of_no_record_starts_over_below_its_high_watermark_too() -> None:
    follower = WholeLog()
    follower.restart_at(8)

    answer = compare(8, last_epoch(follower), log_of(1, 1, 2, start=5), 2)

    assert answer == StartOver(2, 5, unclean=False)
    assert isinstance(answer, StartOver)
    assert resolve_divergence(answer, follower, 8) == Restart(5), "it loses nothing"


def test_an_emptied_log_is_compared_by_the_last_record_that_it_dropped() -> None:
    follower = WholeLog()
    follower.append([(3, number) for number in range(500)])
    follower.advance_start(500)
    leader = WholeLog()
    leader.append([(3, number) for number in range(300)])
    leader.begin_unclean(9)
    leader.append([(9, 1000 + number) for number in range(300)])

    answer = compare(500, last_epoch(follower), leader, 9)

    assert answer == Diverged(9, 3, 300, unclean=True)
    assert isinstance(answer, Diverged)
    assert resolve_divergence(answer, follower, 500) == Restart(300, epoch_before=3)
    assert reconcile(follower, leader, 500) == 2
    assert follower.start_offset == 300, "what was deleted before the election may be deleted here, too"


def test_logs_that_retention_emptied_alike_fit_without_starting_over() -> None:
    leader, follower = WholeLog(), WholeLog()
    for log in (leader, follower):
        log.append([(3, 1), (3, 2), (4, 3)])
        log.advance_start(3)
    assert compare(follower.end_offset, last_epoch(follower), leader, 4) == Matches()

    leader.append([(6, 4)])
    assert compare(follower.end_offset, last_epoch(follower), leader, 6) == Matches()


def test_who_starts_over_keeps_what_the_leader_says_of_the_record_below() -> None:
    leader = WholeLog()
    leader.append([(3, 1), (4, 2), (4, 3), (5, 4)])
    leader.advance_start(3)
    follower = WholeLog()
    follower.append([(1, 1)])

    assert reconcile(follower, leader, 0) == 2
    assert (follower.start_offset, last_epoch(follower)) == (3, 4)
    # Another leader, whose log begins earlier, finds that it fits.
    other = WholeLog()
    other.append([(3, 1), (4, 2), (4, 3), (5, 4)])
    assert compare(3, last_epoch(follower), other, 6) == Matches()


def test_an_answer_that_cuts_nothing_is_no_answer_to_this_log() -> None:
    assert resolve_divergence(Diverged(5, 1, 9, unclean=False), log_of(1, 1), 0) is None

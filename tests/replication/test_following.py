"""A follower, answer by answer."""

from __future__ import annotations

from replication.whole_logs import WholeLog
from tidelog_broker.core.replication.effects import (
    AdvanceStart,
    Append,
    BeginUnclean,
    FollowerEffect,
    Quarantine,
    Restart,
    SendDurable,
    SendPosition,
    SwitchLane,
    Truncate,
    Wait,
)
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.messages import (
    Batches,
    Diverged,
    Durable,
    FromLeader,
    LeaderOffsets,
    Position,
    Refusal,
    Refused,
    StartOver,
)

EPOCH = 5


def follower(
    *epochs: int, high_watermark: int = 0, fsync: bool = True, start: int = 0
) -> tuple[FollowerPartition, WholeLog]:
    """A follower in epoch 5 whose log has records of these epochs, and has asked."""
    log = WholeLog()
    log.restart_at(start)
    log.append([(epoch, number) for number, epoch in enumerate(epochs)])
    log.all_durable()
    made = FollowerPartition(2, 1, EPOCH, log, fsync=fsync, high_watermark=high_watermark)
    made.begin()
    return made, log


def batches(offset: int, high_watermark: int = 0, start: int = 0) -> Batches:
    return Batches(EPOCH, high_watermark, start, offset, b"data")


def test_it_asks_from_its_end_and_says_what_is_durable() -> None:
    one, log = follower(3, 3, 4)
    one.lost()
    log.append([(4, 9)])

    assert one.begin() == [SendPosition(Position(EPOCH, 4, 4, 3, 0))]
    assert one.begin() == [], "one question at a time"


def test_r1_an_emptied_log_names_the_epoch_of_the_last_record_it_dropped() -> None:
    one, log = follower(3, 3)
    log.advance_start(2)
    one.lost()

    assert one.begin() == [SendPosition(Position(EPOCH, 2, 3, 2, 0))]


def test_r1_a_log_that_began_empty_names_no_epoch() -> None:
    one, _ = follower(start=2)
    one.lost()

    assert one.begin() == [SendPosition(Position(EPOCH, 2, None, 2, 2))]


def test_data_is_appended_then_it_asks_again_and_sees_what_is_committed() -> None:
    one, log = follower(4, 4)

    assert one.received(batches(2, high_watermark=3)) == [Append(b"data", ())]
    assert one.high_watermark == 0
    log.append([(5, 1), (5, 2)])
    assert one.appended() == [SendPosition(Position(EPOCH, 4, 5, 2, 0))]
    assert one.high_watermark == 3


def test_data_for_another_place_or_without_a_question_is_passed_over() -> None:
    one, _ = follower(4, 4)

    assert one.received(batches(1)) == []
    one.received(batches(2))
    assert one.received(batches(2)) == []


def test_messages_of_other_epochs_are_passed_over() -> None:
    one, _ = follower(4, 4, 4)
    messages: list[FromLeader] = [
        batches(3)._replace(leader_epoch=4),
        LeaderOffsets(6, 3, 0),
        Diverged(4, 4, 1, unclean=True),
        StartOver(6, 9, unclean=True),
    ]

    assert [one.received(message) for message in messages] == [[], [], [], []]
    assert one.high_watermark == 0


def test_the_high_watermark_is_never_above_its_own_end_and_never_goes_back() -> None:
    one, _ = follower(4, 4)

    one.received(LeaderOffsets(EPOCH, 9, 0))
    assert one.high_watermark == 2
    one.received(LeaderOffsets(EPOCH, 1, 0))
    assert one.high_watermark == 2


def test_it_truncates_and_asks_again_only_when_that_is_durable() -> None:
    one, log = follower(3, 4, 4, 4)

    assert one.received(Diverged(EPOCH, 3, 1, unclean=False)) == [Truncate(1)]
    assert one.waited() == []
    log.truncate(1)
    assert one.truncated() == [SendPosition(Position(EPOCH, 1, 3, 1, 0))]


def test_once_its_log_fits_nothing_makes_it_truncate_in_this_epoch() -> None:
    one, _ = follower(4, 4)
    one.received(LeaderOffsets(EPOCH, 0, 0))

    assert one.received(Diverged(EPOCH, 4, 1, unclean=True)) == []
    assert one.received(StartOver(EPOCH, 1, unclean=True)) == []
    assert one.received(StartOver(EPOCH, 2, unclean=False)) == [Restart(2)], "retention passed it"


def test_it_starts_over_where_the_leader_says() -> None:
    one, log = follower(4, 4, high_watermark=2)

    assert one.received(StartOver(EPOCH, 30, unclean=False)) == [Restart(30)]
    log.restart_at(30)
    assert one.restarted() == [SendPosition(Position(EPOCH, 30, None, 30, 30))]
    assert one.high_watermark == 30


def test_a_leader_that_lacks_what_was_committed_is_not_followed() -> None:
    one, _ = follower(4, 4, 4, high_watermark=3)

    (effect,) = one.received(Diverged(EPOCH, 4, 1, unclean=False))

    assert isinstance(effect, Quarantine)
    assert one.received(batches(3)) == one.begin() == one.flushed() == []


def test_after_an_unclean_election_it_follows_and_its_high_watermark_goes_back() -> None:
    one, log = follower(4, 4, 4, high_watermark=3)

    assert one.received(Diverged(EPOCH, 4, 1, unclean=True)) == [Truncate(1)]
    log.truncate(1)
    one.truncated()
    assert one.high_watermark == 1


def test_what_becomes_durable_is_said_once_and_only_when_the_log_fits() -> None:
    one, log = follower(4)
    log.append([(4, 1)])
    log.all_durable()

    assert one.flushed() == []
    assert one.received(LeaderOffsets(EPOCH, 0, 0)) == [SendDurable(Durable(EPOCH, 2, 0))]
    assert one.flushed() == []
    one.lost()
    log.append([(4, 2)])
    log.all_durable()
    assert one.flushed() == []


def test_a_page_cache_stream_counts_what_is_written() -> None:
    one, log = follower(4, fsync=False)
    one.lost()
    log.append([(4, 1)])

    assert one.begin() == [SendPosition(Position(EPOCH, 2, 4, 2, 0, fsync=False))]
    one.received(LeaderOffsets(EPOCH, 0, 0))
    assert one.configured(True) == [SendDurable(Durable(EPOCH, 1, 0))]
    assert one.configured(True) == []


def test_r16_all_that_it_says_names_its_assignment() -> None:
    log = WholeLog()
    log.append([(4, 1)])
    one = FollowerPartition(2, 1, EPOCH, log, fsync=True, high_watermark=0, assignment=41)

    assert one.begin() == [SendPosition(Position(EPOCH, 1, 4, 0, 0, 41))]
    one.received(LeaderOffsets(EPOCH, 0, 0))
    log.all_durable()
    assert one.flushed() == [SendDurable(Durable(EPOCH, 1, 0, 41))]


def test_r17_it_says_of_which_kind_its_durability_is() -> None:
    one, log = follower(4)
    one.received(LeaderOffsets(EPOCH, 0, 0))
    log.append([(4, 1)])

    assert one.configured(False) == [SendDurable(Durable(EPOCH, 2, 0, fsync=False))]
    assert one.configured(True) == [SendDurable(Durable(EPOCH, 1, 0))], "as much as is flushed"


def test_the_leaders_start_is_saved_before_it_is_acknowledged() -> None:
    one, log = follower(4, 4, 4)

    assert one.received(LeaderOffsets(EPOCH, 2, 1)) == [AdvanceStart(1)]
    assert one.received(LeaderOffsets(EPOCH, 3, 2)) == [], "one after the other"
    log.advance_start(1)
    assert one.start_saved() == [SendDurable(Durable(EPOCH, 3, 1)), AdvanceStart(2)]


def test_a_start_above_what_is_committed_here_waits_for_that() -> None:
    one, log = follower(4)
    one.received(batches(1, high_watermark=3, start=2))
    log.append([(4, 1), (4, 2)])

    effects = one.appended()

    # The position speaks of the start as it is; behind the move it would take it back.
    assert [type(one) for one in effects] == [SendPosition, AdvanceStart]
    assert effects[1] == AdvanceStart(2)


def test_an_unclean_epoch_is_noted_where_it_begins() -> None:
    one, log = follower(3, 3)

    assert one.received(LeaderOffsets(EPOCH, 0, 0, ((2, 2), (4, 2), (5, 9)))) == [BeginUnclean(4)]
    log.begin_unclean(4)
    assert one.received(LeaderOffsets(EPOCH, 0, 0, ((4, 2),))) == []


def test_a_later_epoch_of_its_own_hides_no_unclean_epoch_of_the_leader() -> None:
    """Of two brokers that led uncleanly and wrote nothing, the second is in nobody's history but its own."""
    one, log = follower(1, 1)
    log.begin_unclean(4)

    (append,) = one.received(Batches(EPOCH, 0, 0, 2, [(3, 0)], ((2, 2), (3, 2))))  # type: ignore[arg-type]

    assert isinstance(append, Append)
    log.append(append.data, append.unclean)  # type: ignore[arg-type]
    assert [tuple(entry) for entry in log.epochs] == [(1, 0, False), (2, 2, True), (3, 2, True)]


def test_a_refusal_says_how_to_go_on() -> None:
    def after(refusal: Refusal) -> list[FollowerEffect]:
        return follower(4)[0].received(Refused(refusal, 6))

    assert after(Refusal.FENCED_LEADER_EPOCH) == []
    assert after(Refusal.OTHER_LANE) == [SwitchLane()]
    for refusal in (Refusal.UNKNOWN_LEADER_EPOCH, Refusal.UNKNOWN_INCARNATION, Refusal.NOT_LEADER):
        assert after(refusal) == [Wait(50)]
    assert after(Refusal.DAMAGED) == [Wait(1000)]


def test_after_waiting_it_asks_again_unless_the_connection_is_gone() -> None:
    one, _ = follower(4)
    one.received(Refused(Refusal.NOT_LEADER, 5))
    assert one.waited() == [SendPosition(Position(EPOCH, 1, 4, 1, 0))]

    one.lost()
    assert one.waited() == []


def test_what_the_disk_does_not_take_is_asked_for_again_later() -> None:
    one, _ = follower(4)
    one.received(batches(1))

    assert one.not_appended() == [Wait(1000)]
    assert one.waited() == [SendPosition(Position(EPOCH, 1, 4, 1, 0))]


def test_a_log_that_knows_a_later_leader_is_not_shown_to_an_earlier_one() -> None:
    log = WholeLog()
    log.append([(6, 1)])

    assert FollowerPartition(2, 1, EPOCH, log, fsync=True, high_watermark=0).begin() == []


def test_an_append_that_ends_after_the_connection_asks_on_the_next_one() -> None:
    one, log = follower(4)
    one.received(batches(1))
    one.lost()
    assert one.begin() == []
    log.append([(5, 1)])

    assert one.appended() == [SendPosition(Position(EPOCH, 2, 5, 1, 0))]


def test_it_says_what_it_is() -> None:
    assert (
        repr(follower(4)[0]) == "<FollowerPartition broker=2 of 1 epoch=5 leo=1 hw=0 not matching fetching>"
    )

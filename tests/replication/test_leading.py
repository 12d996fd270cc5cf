"""A leader, rule by rule. How the rules go together under faults: `test_pairs`."""

from __future__ import annotations

from typing import Any

from replication.whole_logs import WholeLog
from tidelog_broker.core.replication.effects import (
    AdvanceStart,
    Answer,
    Committed,
    FlushHistory,
    LeaderEffect,
    Member,
    Propose,
    SendBatches,
)
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.membership import Placement, ReplicaBroker
from tidelog_broker.core.replication.messages import (
    Diverged,
    Durable,
    LeaderOffsets,
    Position,
    Refusal,
    Refused,
    StartOver,
)

LEADER, SECOND, THIRD = 1, 2, 3
EPOCH = 5


class Stage:
    """Broker 1 leads epoch 5; the others say what a test has them say."""

    def __init__(
        self,
        isr: tuple[int, ...] = (1, 2, 3),
        *,
        records: int = 10,
        high_watermark: int = 10,
        minimum: int = 2,
        fsync: bool = True,
        may_join: bool = True,
    ) -> None:
        self.log = WholeLog()
        self.log.append([(4, number) for number in range(records)])
        self.log.all_durable()
        self.now = 1000
        self.brokers = {broker: ReplicaBroker(b"run %d" % broker, may_join) for broker in (1, 2, 3)}
        self.placement = Placement((1, 2, 3), isr, 40, minimum, self.brokers)
        self.leader = LeaderPartition(
            LEADER,
            EPOCH,
            self.log,
            fsync=fsync,
            high_watermark=high_watermark,
            placement=self.placement,
            now_ms=self.now,
        )
        self.leader.begin(self.now)

    def append(self, count: int = 1, *, flush: bool = True) -> list[LeaderEffect]:
        self.log.append([(EPOCH, 100 + number) for number in range(count)])
        effects = self.leader.appended(self.now)
        if flush:
            self.log.all_durable()
            effects += self.leader.flushed(self.now)
        return effects

    def position(
        self,
        broker: int,
        end: int,
        durable: int | None = None,
        *,
        last: int | None = 4,
        start: int = 0,
        epoch: int = EPOCH,
        run: bytes | None = None,
        assignment: int = 0,
        fsync: bool = True,
    ) -> list[LeaderEffect]:
        durable = end if durable is None else durable
        said = Position(epoch, end, last, durable, start, assignment, fsync)
        return self.leader.position(broker, run or b"run %d" % broker, said, self.now)

    def durable(
        self,
        broker: int,
        durable: int,
        *,
        run: bytes | None = None,
        epoch: int = EPOCH,
        start: int = 0,
        assignment: int = 0,
        fsync: bool = True,
    ) -> list[LeaderEffect]:
        said = Durable(epoch, durable, start, assignment, fsync)
        return self.leader.durable(broker, run or b"run %d" % broker, said, self.now)

    def wait(self, ms: int) -> list[LeaderEffect]:
        self.now += ms
        return self.leader.tick(self.now)

    def placed(self, **fields: Any) -> list[LeaderEffect]:
        epoch = self.placement.partition_epoch + 1
        self.placement = self.placement._replace(**{"partition_epoch": epoch, **fields})
        return self.leader.placed(self.placement, self.now)


def of(kind: type, effects: list[LeaderEffect]) -> list[LeaderEffect]:
    return [effect for effect in effects if isinstance(effect, kind)]


def proposed(effects: list[LeaderEffect]) -> list[tuple[int, ...]]:
    return [tuple(member.broker for member in one.isr) for one in effects if isinstance(one, Propose)]


# --- R2, R5: what is answered and sent


def test_a_follower_that_has_everything_is_told_so_and_its_position_is_kept() -> None:
    stage = Stage()

    assert stage.position(SECOND, 10) == [Answer(SECOND, LeaderOffsets(EPOCH, 10, 0))]
    assert of(SendBatches, stage.append()) == [SendBatches(SECOND, 10, 11)]
    assert of(SendBatches, stage.append()) == []


def test_the_next_tick_sends_a_new_high_watermark_without_answering_the_position() -> None:
    stage = Stage(high_watermark=4)
    stage.position(SECOND, 10)

    effects = stage.position(THIRD, 10)

    assert of(Committed, effects) == [Committed(10)]
    assert of(Answer, effects) == [Answer(THIRD, LeaderOffsets(EPOCH, 10, 0))], "it did not know that it fits"
    assert stage.leader.needs_ticks
    assert stage.leader.tick(stage.now) == [Answer(SECOND, LeaderOffsets(EPOCH, 10, 0))]
    assert not stage.leader.needs_ticks
    assert of(SendBatches, stage.append()) == [SendBatches(SECOND, 10, 11), SendBatches(THIRD, 10, 11)]


def test_nothing_of_the_epoch_is_sent_or_counted_before_its_beginning_is_on_disk() -> None:
    stage = Stage(isr=(1,), minimum=1, fsync=False, may_join=False)
    stage.position(SECOND, 8)

    effects = stage.append(3, flush=False)

    assert effects == [FlushHistory()]
    assert of(SendBatches, stage.position(THIRD, 8)) == [SendBatches(THIRD, 8, 10)]
    stage.log.all_durable()
    assert of(Committed, stage.leader.flushed(stage.now)) == [Committed(13)]


def test_an_append_of_repeats_begins_no_epoch_and_the_next_append_flushes_it() -> None:
    stage = Stage(isr=(1,), minimum=1, fsync=False, may_join=False)

    assert of(FlushHistory, stage.leader.appended(stage.now)) == []
    assert of(FlushHistory, stage.append(flush=False)) == [FlushHistory()]


def test_messages_of_other_epochs_and_of_unknown_runs_are_refused() -> None:
    stage = Stage()

    def refusals(*effects: LeaderEffect) -> list[Refusal]:
        return [
            one.message.refusal
            for one in effects
            if isinstance(one, Answer) and isinstance(one.message, Refused)
        ]

    assert refusals(*stage.position(SECOND, 10, epoch=4)) == [Refusal.FENCED_LEADER_EPOCH]
    assert refusals(*stage.position(SECOND, 10, epoch=6)) == [Refusal.UNKNOWN_LEADER_EPOCH]
    assert refusals(*stage.position(SECOND, 10, last=6)) == [Refusal.UNKNOWN_LEADER_EPOCH]
    assert refusals(*stage.position(SECOND, 10, run=b"another")) == [Refusal.UNKNOWN_INCARNATION]
    assert refusals(*stage.position(9, 10)) == [Refusal.UNKNOWN_INCARNATION]


def test_a_log_that_parts_is_told_where_and_counts_with_nothing() -> None:
    stage = Stage(high_watermark=3)
    stage.position(THIRD, 10)

    effects = stage.position(SECOND, 12, last=4)

    assert effects == [Answer(SECOND, Diverged(EPOCH, 4, 10, unclean=False))]
    assert stage.leader.high_watermark == 3


# --- R3


def test_a_member_counts_only_with_what_it_acknowledged_in_this_epoch() -> None:
    stage = Stage(high_watermark=2)
    stage.position(SECOND, 10)
    assert stage.leader.high_watermark == 2

    assert of(Committed, stage.position(THIRD, 10, durable=7)) == [Committed(7)]
    assert of(Committed, stage.durable(THIRD, 9)) == [Committed(9)]


def test_acknowledgements_of_another_epoch_run_or_beyond_the_end_do_not_count() -> None:
    stage = Stage(isr=(1, 2), high_watermark=2)
    stage.position(SECOND, 10, durable=5)

    assert stage.durable(SECOND, 9, epoch=4) == []
    assert stage.durable(SECOND, 9, run=b"an earlier one") == []
    assert stage.durable(SECOND, 11) == []
    assert stage.leader.high_watermark == 5


def test_another_run_of_a_members_broker_starts_from_nothing() -> None:
    stage = Stage(isr=(1, 2), high_watermark=2)
    stage.position(SECOND, 10, durable=5)

    stage.placed(brokers={**stage.brokers, SECOND: ReplicaBroker(b"newer", True)}, partition_epoch=40)

    assert stage.durable(SECOND, 9) == []
    stage.position(SECOND, 10, durable=6, run=b"newer")
    assert stage.leader.high_watermark == 6


def test_a_lost_connection_takes_back_what_was_said_but_not_what_is_committed() -> None:
    stage = Stage(isr=(1, 2), high_watermark=2)
    stage.position(SECOND, 10, durable=5)

    stage.leader.disconnected(SECOND, False, stage.now)
    stage.append()

    assert stage.leader.high_watermark == 5
    stage.position(SECOND, 10, durable=9)
    assert stage.leader.high_watermark == 9


def test_below_its_minimum_the_isr_commits_nothing() -> None:
    stage = Stage(isr=(1,), high_watermark=4)

    assert of(Committed, stage.append()) == []
    assert not stage.leader.has_enough_replicas


def test_a_member_proposed_to_leave_counts_except_for_the_minimum() -> None:
    stage = Stage(isr=(1, 2, 3), minimum=3)
    stage.position(SECOND, 10)
    stage.position(THIRD, 10)
    stage.append()
    stage.position(SECOND, 11, last=EPOCH)

    assert proposed(stage.wait(10_000)) == [(1, 2)]

    assert not stage.leader.has_enough_replicas
    assert of(Committed, stage.position(THIRD, 11, last=EPOCH)) == []


def test_r3_a_member_whose_removal_is_proposed_counts_as_gone() -> None:
    stage = Stage(isr=(1, 2, 3), minimum=3)
    stage.position(SECOND, 10)
    stage.position(THIRD, 10)
    stage.append()
    stage.position(SECOND, 11, last=EPOCH)
    assert proposed(stage.wait(10_000)) == [(1, 2)]

    effects = stage.durable(THIRD, 11)

    assert of(Committed, effects) == [], "it may be gone by now, and the ISR too small"
    assert not stage.leader.has_enough_replicas
    assert of(Committed, stage.placed()) == [Committed(11)], "it was not: the image says so"


def test_r5_records_that_are_flushed_wait_for_the_entry_of_their_epoch() -> None:
    stage = Stage(isr=(1,), minimum=1)
    stage.log.append([(EPOCH, 100)])
    stage.leader.appended(stage.now)
    stage.log.durable_offset = 11

    assert of(Committed, stage.leader.flushed(stage.now)) == []
    assert stage.leader.high_watermark == 10
    stage.log.durable_epoch = EPOCH
    assert of(Committed, stage.leader.flushed(stage.now)) == [Committed(11)]


# --- R4: joining


def test_r4_nobody_joins_whose_log_begins_below_the_leaders() -> None:
    """As a leader it would bring back what was deleted."""
    stage = Stage(isr=(1, 2))
    stage.position(SECOND, 10)
    stage.log.advance_start(6)
    stage.leader.start_moved(stage.now)

    assert proposed(stage.position(THIRD, 10, start=5)) == []
    assert proposed(stage.durable(THIRD, 10, start=6)) == [(1, 2, 3)]


def test_a_follower_with_everything_is_proposed_with_everybodys_run() -> None:
    stage = Stage(isr=(1, 2))
    stage.position(SECOND, 10)

    effects = stage.position(THIRD, 10)

    members = (Member(1, b"run 1"), Member(2, b"run 2"), Member(3, b"run 3"))
    assert of(Propose, effects) == [Propose(members, EPOCH, 40)]


def test_no_follower_joins_below_the_high_watermark_or_epoch_start_or_while_stopping() -> None:
    stage = Stage(isr=(1, 2), high_watermark=3)
    assert proposed(stage.position(THIRD, 10, durable=9)) == []
    assert proposed(stage.durable(THIRD, 10)) == [(1, 2, 3)]

    assert proposed(Stage(isr=(1, 2), may_join=False).position(THIRD, 10)) == []


def test_nobody_joins_who_would_bring_deleted_records_back() -> None:
    stage = Stage(isr=(1, 2))
    stage.log.advance_start(6)
    assert proposed(stage.position(THIRD, 10)) == []
    assert proposed(stage.durable(THIRD, 10, start=6)) == [(1, 2, 3)]


def test_a_start_is_not_acknowledged_without_whoever_may_be_a_member_by_now() -> None:
    stage = Stage(isr=(1, 2))
    stage.position(SECOND, 10)
    assert proposed(stage.position(THIRD, 10)) == [(1, 2, 3)]
    stage.log.advance_start(6)
    stage.leader.start_moved(stage.now)
    stage.durable(SECOND, 10, start=6)
    assert stage.leader.start_acknowledged == 0

    stage.durable(THIRD, 10, start=6)
    assert stage.leader.start_acknowledged == 6


def test_the_high_watermark_waits_for_whoever_may_be_a_member_by_now() -> None:
    stage = Stage(isr=(1, 2))
    stage.position(SECOND, 10)
    stage.position(THIRD, 10)
    stage.append()

    stage.position(SECOND, 11, last=EPOCH)
    assert stage.leader.high_watermark == 10
    assert of(Committed, stage.position(THIRD, 11, last=EPOCH)) == [Committed(11)]


def test_a_proposal_without_an_answer_is_followed_by_another_and_stays_undecided() -> None:
    stage = Stage(isr=(1, 2))
    stage.position(SECOND, 10)
    stage.position(THIRD, 10)

    assert proposed(stage.wait(499)) == []
    assert proposed(stage.wait(1)) == [(1, 2, 3)]
    stage.append()
    stage.position(SECOND, 11, last=EPOCH)
    stage.leader.disconnected(THIRD, False, stage.now)
    assert stage.leader.high_watermark == 10

    assert of(Committed, stage.placed(isr=(1, 2))) == [Committed(11)]


def test_an_older_placement_is_passed_over() -> None:
    stage = Stage(isr=(1, 2))
    stage.placed(isr=(1, 2, 3))

    stage.leader.placed(stage.placement._replace(isr=(1,), partition_epoch=40), stage.now)

    assert stage.leader.placement.isr == (1, 2, 3)


def test_the_high_watermark_waits_shortly_and_rarely_for_a_nearly_caught_up_follower() -> None:
    stage = Stage(isr=(1, 2))
    stage.position(SECOND, 10)
    stage.position(THIRD, 9)
    stage.append()
    stage.position(SECOND, 11, last=EPOCH)
    assert stage.leader.high_watermark == 10
    assert of(Committed, stage.wait(49)) == []

    assert of(Committed, stage.wait(1)) == [Committed(11)]

    stage.append()
    assert of(Committed, stage.position(SECOND, 12, last=EPOCH)) == [Committed(12)]
    stage.wait(1000)
    stage.append()
    assert of(Committed, stage.position(SECOND, 13, last=EPOCH)) == []


def test_a_follower_that_is_far_behind_is_not_waited_for() -> None:
    stage = Stage(isr=(1, 2))
    stage.log.bytes_from = lambda offset: (4 << 20) + 1  # type: ignore[method-assign]
    stage.position(SECOND, 10)
    stage.position(THIRD, 3)
    stage.append()

    assert of(Committed, stage.position(SECOND, 11, last=EPOCH)) == [Committed(11)]


# --- R4: leaving


def test_a_member_that_is_not_caught_up_for_too_long_leaves() -> None:
    stage = Stage(isr=(1, 2, 3))
    stage.position(SECOND, 10)
    stage.position(THIRD, 10)
    stage.append()
    stage.position(SECOND, 11, last=EPOCH)

    assert proposed(stage.wait(9_999)) == []
    assert proposed(stage.wait(1)) == [(1, 2)]


def test_a_removed_member_joins_again_only_after_the_waiting_appends_are_committed() -> None:
    stage = Stage(isr=(1, 2, 3))
    stage.position(SECOND, 10)
    stage.position(THIRD, 10)
    stage.append()
    stage.position(SECOND, 11, last=EPOCH)
    assert proposed(stage.wait(10_000)) == [(1, 2)]

    effects = stage.placed(isr=(1, 2))

    assert of(Committed, effects) == [Committed(11)]
    assert proposed([*effects, *stage.wait(1_000), *stage.position(THIRD, 10)]) == []


def test_a_member_that_just_joined_has_as_long_to_catch_up_as_any() -> None:
    stage = Stage(isr=(1, 2), minimum=3)
    stage.position(2, 10)
    # The high watermark stands still, and the log grows beyond it.
    stage.append(50)
    stage.wait(30_000)
    stage.position(2, 60, last=EPOCH)
    assert proposed(stage.position(3, 10)) == []
    assert proposed(stage.durable(3, 10)) == []
    assert proposed(stage.wait(1_000)) == [(1, 2, 3)], "it has all that is committed"
    assert proposed(stage.placed(isr=(1, 2, 3))) == [], "it does not leave at once"
    assert proposed(stage.wait(9_000)) == []
    assert proposed(stage.wait(1_001)) == [(1, 2)]


def test_a_member_that_always_reaches_where_the_leader_was_a_moment_ago_stays() -> None:
    stage = Stage(isr=(1, 2), minimum=1)
    stage.position(SECOND, 10)
    for end in range(11, 40):
        stage.append()
        stage.now += 1000
        assert proposed(stage.durable(SECOND, end - 1)) == []
        assert proposed(stage.wait(0)) == []


def test_an_idle_partition_keeps_its_members_and_needs_no_ticks() -> None:
    stage = Stage()
    stage.position(SECOND, 10)
    assert stage.leader.needs_ticks
    stage.position(THIRD, 10)

    assert not stage.leader.needs_ticks
    assert stage.wait(1_000_000) == []


def test_a_member_that_is_gone_leaves_soon_but_not_below_the_minimum() -> None:
    stage = Stage()
    stage.position(SECOND, 10)
    stage.position(THIRD, 10)
    stage.leader.disconnected(THIRD, False, stage.now)

    assert proposed(stage.wait(499)) == []
    assert proposed(stage.wait(1)) == [(1, 2)]
    stage.placed(isr=(1, 2))
    stage.leader.disconnected(SECOND, False, stage.now)
    assert proposed(stage.wait(500)) == []
    assert proposed(stage.wait(9_500)) == [(1,)]


def test_a_member_whose_machine_refuses_connections_leaves_at_once() -> None:
    stage = Stage()
    stage.position(SECOND, 10)
    stage.position(THIRD, 10)

    assert proposed(stage.leader.disconnected(THIRD, True, stage.now)) == [(1, 2)]


def test_a_member_that_stops_leaves_as_soon_as_its_connection_ends() -> None:
    stage = Stage()
    stage.position(SECOND, 10)
    stage.position(THIRD, 10)
    stage.brokers[THIRD] = ReplicaBroker(b"run %d" % THIRD, False)

    assert proposed(stage.wait(499)) == []
    assert proposed(stage.leader.disconnected(THIRD, False, stage.now)) == [(1, 2)]


def test_a_member_without_positions_leaves_unless_its_broker_is_connected() -> None:
    stage = Stage()
    stage.position(SECOND, 10)
    assert proposed(stage.wait(500)) == [(1, 2)]

    stage = Stage()
    stage.position(SECOND, 10)
    stage.leader.connected(THIRD, b"run 3", stage.now)
    assert proposed(stage.wait(500)) == []


def test_as_soon_as_the_image_moves_it_is_asked_again() -> None:
    stage = Stage(isr=(1, 2))
    stage.position(SECOND, 10)
    stage.position(THIRD, 10)

    assert proposed(stage.placed()) == [(1, 2, 3)]


# --- R11, R15


def test_latest_is_answered_once_the_epochs_start_is_committed() -> None:
    stage = Stage(isr=(1, 2), high_watermark=4)
    assert not stage.leader.may_answer_latest

    stage.position(SECOND, 10)

    assert stage.leader.may_answer_latest


def test_a_start_is_acknowledged_when_every_member_has_it() -> None:
    stage = Stage(isr=(1, 2), may_join=False)
    stage.position(SECOND, 10)
    stage.log.advance_start(6)

    effects = stage.leader.start_moved(stage.now)

    assert Answer(SECOND, LeaderOffsets(EPOCH, 10, 6)) in effects
    assert stage.leader.start_acknowledged == 0
    stage.durable(SECOND, 10, start=6)
    assert stage.leader.start_acknowledged == 6


def test_below_the_minimum_no_log_start_is_acknowledged() -> None:
    stage = Stage(isr=(1,))
    stage.log.advance_start(6)
    stage.leader.start_moved(stage.now)

    assert stage.leader.start_acknowledged == 0


def test_a_new_leader_takes_the_largest_start_once_it_is_committed() -> None:
    stage = Stage(isr=(1, 2), high_watermark=4)

    assert of(AdvanceStart, stage.position(SECOND, 10, durable=5, start=7)) == [AdvanceStart(5)]
    assert of(AdvanceStart, stage.durable(SECOND, 10)) == [AdvanceStart(7)]
    assert of(AdvanceStart, stage.wait(5)) == []


def test_a_waiting_follower_that_retention_passes_starts_over() -> None:
    stage = Stage(isr=(1, 2))
    stage.position(SECOND, 10)
    stage.position(THIRD, 3)
    stage.append()
    stage.leader.followers[THIRD].parked = True
    stage.log.advance_start(6)

    assert Answer(THIRD, StartOver(EPOCH, 6, unclean=False, epoch_before=4)) in stage.leader.start_moved(
        stage.now
    )


def test_unclean_epochs_go_along_with_what_is_sent() -> None:
    stage = Stage()
    stage.log.begin_unclean(EPOCH)

    assert stage.leader.batches(8, b"", 10).unclean == ((EPOCH, 10),)
    assert stage.leader.batches(8, b"", 9).unclean == ()
    assert stage.position(SECOND, 10) == [Answer(SECOND, LeaderOffsets(EPOCH, 10, 0, ((EPOCH, 10),)))]


def durable_of(stage: Stage) -> dict[int, int]:
    return {broker: follower.durable for broker, follower in stage.leader.followers.items()}


def test_r17_what_was_written_does_not_count_once_it_has_to_be_flushed() -> None:
    stage = Stage(fsync=False)
    stage.append(2, flush=False)
    stage.log.all_durable()
    stage.position(SECOND, 12, last=EPOCH, fsync=False)
    stage.position(THIRD, 12, last=EPOCH, fsync=False)
    assert stage.leader.high_watermark == 12

    stage.leader.configured(True, stage.now)
    assert durable_of(stage) == {SECOND: 0, THIRD: 0}
    effects = [*stage.append(), *stage.position(SECOND, 13, last=EPOCH)]

    assert of(Committed, effects) == [], "the other one has not flushed"
    assert stage.leader.high_watermark == 12, "it stands still, and does not go back"
    assert of(Committed, stage.durable(THIRD, 12)) == []
    stage.position(THIRD, 13, durable=12, last=EPOCH)
    assert of(Committed, stage.durable(THIRD, 13)) == [Committed(13)]


def test_r17_a_follower_that_says_written_is_not_counted_as_flushed() -> None:
    stage = Stage()
    stage.append()
    for broker in (SECOND, THIRD):
        stage.position(broker, 11, last=EPOCH, fsync=False)
        stage.durable(broker, 11, fsync=False)

    assert durable_of(stage) == {SECOND: 0, THIRD: 0}
    assert stage.leader.high_watermark == 10


def test_r17_what_a_follower_flushed_before_still_counts_when_fsync_comes_back() -> None:
    stage = Stage()
    stage.position(SECOND, 10, durable=8)
    stage.leader.configured(False, stage.now)
    stage.position(SECOND, 10, durable=10, fsync=False)
    assert durable_of(stage)[SECOND] == 10, "it is written"

    stage.leader.configured(True, stage.now)

    assert durable_of(stage)[SECOND] == 8


def test_r17_what_a_follower_wrote_counts_once_it_says_so() -> None:
    """It has no mark on its disk before, and would be no suspect after a loss of power. Found by the
    simulator (profile "switches", seed 4)."""
    stage = Stage()
    stage.position(SECOND, 10, durable=8)

    stage.leader.configured(False, stage.now)

    assert durable_of(stage)[SECOND] == 8
    stage.position(SECOND, 10, durable=8)
    assert durable_of(stage)[SECOND] == 8, "it still means flushed"
    stage.durable(SECOND, 10, fsync=False)
    assert durable_of(stage)[SECOND] == 10
    stage.leader.configured(False, stage.now)
    assert durable_of(stage)[SECOND] == 10


def test_r17_who_has_only_written_does_not_join() -> None:
    stage = Stage(isr=(1, 2))
    stage.position(SECOND, 10)

    assert proposed(stage.position(THIRD, 10, fsync=False)) == []
    assert proposed(stage.position(THIRD, 10)) == [(1, 2, 3)]


def test_r17_a_follower_whose_log_is_cut_has_flushed_nothing_of_what_comes() -> None:
    stage = Stage(high_watermark=4)
    stage.position(SECOND, 10)
    stage.position(SECOND, 14, last=4)

    stage.position(SECOND, 10, fsync=False)

    assert durable_of(stage)[SECOND] == 0


# --- R16


def given_again(stage: Stage, broker: int, assignment: int) -> list[LeaderEffect]:
    """The image shows another assignment of a replica, perhaps without having shown that it left."""
    stage.brokers[broker] = stage.brokers[broker]._replace(assignment=assignment)
    return stage.placed(isr=tuple(one for one in stage.placement.isr if one != broker), brokers=stage.brokers)


def test_r16_the_state_of_an_earlier_assignment_is_dropped_with_a_newer_image() -> None:
    stage = Stage()
    stage.position(THIRD, 10)

    effects = given_again(stage, THIRD, 41)

    assert proposed(effects) == [], "an empty replica would join"
    assert (stage.leader.followers[THIRD].matching, durable_of(stage)[THIRD]) == (False, 0)


def test_r16_words_of_another_assignment_are_refused_and_do_not_count() -> None:
    stage = Stage()
    given_again(stage, THIRD, 41)
    refused = [Answer(THIRD, Refused(Refusal.UNKNOWN_INCARNATION, EPOCH))]

    assert stage.position(THIRD, 10) == refused, "of the one before"
    assert stage.position(THIRD, 10, assignment=77) == refused, "of one that the leader has not heard of"
    stage.position(THIRD, 3, assignment=41)
    stage.durable(THIRD, 10, assignment=0)
    assert durable_of(stage)[THIRD] == 3

    effects = stage.position(THIRD, 10, assignment=41)

    assert of(Propose, effects) == [
        Propose((Member(1, b"run 1"), Member(2, b"run 2"), Member(3, b"run 3", 41)), EPOCH, 41)
    ]


def test_r16_the_same_assignment_in_a_later_image_keeps_what_is_known() -> None:
    stage = Stage()
    stage.position(THIRD, 10)

    stage.placed()

    assert durable_of(stage)[THIRD] == 10


# --- R1, R11


def test_an_emptied_log_of_before_an_unclean_election_does_not_move_the_start() -> None:
    log = WholeLog()
    log.append([(3, number) for number in range(300)])
    log.begin_unclean(9)
    log.append([(9, 1000 + number) for number in range(300)])
    log.all_durable()
    placement = Placement(
        (1, 2, 3), (1, 3), 40, 2, {one: ReplicaBroker(b"run %d" % one, True) for one in (1, 2, 3)}
    )
    leader = LeaderPartition(1, 9, log, fsync=True, high_watermark=600, placement=placement, now_ms=1000)
    leader.begin(1000)
    leader.state.high_watermark = 600

    for known, answer in ((3, Diverged(9, 3, 300, unclean=True)), (None, StartOver(9, 0, unclean=True))):
        effects = leader.position(2, b"run 2", Position(9, 500, known, 500, 500), 1001)
        assert of(Answer, effects) == [Answer(2, answer)]
        assert of(AdvanceStart, effects) == []


def test_it_says_what_it_is() -> None:
    assert repr(Stage().leader).startswith("<LeaderPartition broker=1 epoch=5 leo=10 hw=10 isr=[1, 2, 3]")

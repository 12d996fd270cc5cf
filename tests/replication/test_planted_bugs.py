"""A test of the tests: each of these mistakes breaks a rule, and the storm of `test_pairs` finds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from replication.cluster import Violation, run
from tidelog_broker.core.replication import commits, following, isr_changes, membership
from tidelog_broker.core.replication.effects import Answer, FollowerEffect, LeaderEffect, Restart, Truncate
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.leader_state import LeaderState
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.messages import (
    Diverged,
    Durable,
    FromLeader,
    Position,
    StartOver,
)
from tidelog_broker.core.replication.proposals import Proposals

SEEDS = 400
STEPS = 2500

Plant = Callable[[pytest.MonkeyPatch], None]


def acknowledged_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FollowerPartition, "_durable", property(lambda self: self.log.end_offset))


def committed_with_too_small_an_isr(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderState, "isr_size", property(lambda self: 99))


def pending_removal_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Proposals, "leaving", property(lambda self: ()))


def pending_join_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Proposals, "joining", property(lambda self: ()))


def joined_before_the_epoch_start(patch: pytest.MonkeyPatch) -> None:
    real = membership.may_join
    patch.setattr(
        isr_changes, "may_join", lambda follower, broker, hw, epoch, log: real(follower, broker, hw, 0, log)
    )


def joined_below_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    real = membership.may_join
    patch.setattr(
        isr_changes,
        "may_join",
        lambda follower, broker, hw, epoch, log: real(follower, broker, 0, epoch, log),
    )


def stale_incarnation_counted(patch: pytest.MonkeyPatch) -> None:
    real = LeaderPartition.durable

    def durable(
        self: LeaderPartition, broker: int, incarnation: bytes, said: Durable, now_ms: int
    ) -> list[LeaderEffect]:
        return real(self, broker, self.followers[broker].incarnation or b"", said, now_ms)

    patch.setattr(LeaderPartition, "durable", durable)
    patch.setattr(LeaderState, "is_current", lambda self, broker, incarnation: True)


def unfit_position_counted(patch: pytest.MonkeyPatch) -> None:
    real = LeaderPartition.position

    def position(
        self: LeaderPartition, broker: int, incarnation: bytes, said: Position, now_ms: int
    ) -> list[LeaderEffect]:
        effects = real(self, broker, incarnation, said, now_ms)
        if any(isinstance(one, Answer) and isinstance(one.message, Diverged) for one in effects):
            follower = self.followers[broker]
            follower.matching, follower.durable = True, said.durable_offset
            effects += self.tick(now_ms)
        return effects

    patch.setattr(LeaderPartition, "position", position)


def truncation_not_fenced(patch: pytest.MonkeyPatch) -> None:
    real = FollowerPartition.received

    def received(self: FollowerPartition, message: FromLeader) -> list[FollowerEffect]:
        if isinstance(message, Diverged | StartOver):
            self.matching = False
            message = message._replace(leader_epoch=self.leader_epoch)
        return real(self, message)

    patch.setattr(FollowerPartition, "received", received)


def a_log_that_fits_cut_again(patch: pytest.MonkeyPatch) -> None:
    real = FollowerPartition._cut

    def cut(self: FollowerPartition, message: Diverged | StartOver) -> list[FollowerEffect]:
        self.matching = False
        return real(self, message)

    patch.setattr(FollowerPartition, "_cut", cut)


def truncated_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    def resolve_divergence(
        answer: Diverged | StartOver, log: Any, high_watermark: int
    ) -> Truncate | Restart | None:
        if isinstance(answer, StartOver):
            return Restart(answer.start_offset)
        if high_watermark >= log.end_offset:
            return None
        return Truncate(high_watermark) if high_watermark > log.start_offset else Restart(high_watermark)

    patch.setattr(following, "resolve_divergence", resolve_divergence)


def proposal_given_up_after_a_while(patch: pytest.MonkeyPatch) -> None:
    real = Proposals.sent

    def sent(self: Proposals, partition_epoch: int, isr: Any, proposed: Any) -> None:
        self._undecided = {}
        real(self, partition_epoch, isr, proposed)

    patch.setattr(Proposals, "sent", sent)


def hold_never_released(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commits, "held", lambda follower, now_ms, times: follower.held_since is not None)
    patch.setattr(membership, "held", lambda follower, now_ms, times: follower.held_since is not None)


def readers_see_what_the_leader_committed(patch: pytest.MonkeyPatch) -> None:
    def commit(self: FollowerPartition) -> None:
        self.high_watermark = max(self.high_watermark, self._leader_high_watermark)

    patch.setattr(FollowerPartition, "_commit", commit)


PLANTS: tuple[Plant, ...] = (
    acknowledged_before_the_flush,
    committed_with_too_small_an_isr,
    pending_removal_counted,
    pending_join_not_waited_for,
    joined_before_the_epoch_start,
    joined_below_the_high_watermark,
    stale_incarnation_counted,
    unfit_position_counted,
    truncation_not_fenced,
    a_log_that_fits_cut_again,
    truncated_to_the_high_watermark,
    proposal_given_up_after_a_while,
    hold_never_released,
    readers_see_what_the_leader_committed,
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)

    with pytest.raises((Violation, AssertionError, IndexError)):
        _run_all()


def _run_all() -> None:
    for seed in range(SEEDS):
        run(seed, STEPS)

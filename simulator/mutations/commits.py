"""Bugs in the high watermark: which acknowledgements count, of which epoch, from which disk (R3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simulator.mutations.plant import mutation, patched
from tidelog_broker.core.replication import commits, leader_state
from tidelog_broker.core.replication import membership as isr_membership
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.proposals import Proposals


@mutation("R3")
def a_leader_acknowledges_before_its_own_fsync() -> Iterator[None]:
    begin = LeaderPartition.__init__

    def careless(self: LeaderPartition, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **{**options, "fsync": False})

    with patched((LeaderPartition, "__init__", careless), (LeaderPartition, "configured", lambda *_: [])):
        yield


@mutation("R3")
def a_follower_acknowledges_before_its_fsync() -> Iterator[None]:
    with patched((FollowerPartition, "_durable", property(lambda self: self.log.end_offset))):
        yield


@mutation("R3", "small ISRs")
def the_high_watermark_moves_with_too_small_an_isr() -> Iterator[None]:
    def careless(current: int, *, leader_durable: int, maximal_isr_durable: Any, **_: Any) -> int:
        ends: list[int] = [leader_durable, *maximal_isr_durable]
        return max(current, min(ends))

    with patched((commits, "high_watermark", careless)):
        yield


@mutation("R3")
def the_high_watermark_waits_only_for_a_majority() -> Iterator[None]:
    def most(current: int, *, leader_durable: int, maximal_isr_durable: Any, **_: Any) -> int:
        ends: list[int] = sorted((leader_durable, *maximal_isr_durable), reverse=True)
        return max(current, ends[len(ends) // 2])

    with patched((commits, "high_watermark", most)):
        yield


@mutation("R3", "flapping")
def a_pending_member_is_not_waited_for() -> Iterator[None]:
    with patched((Proposals, "joining", property(lambda self: ()))):
        yield


@mutation("R3")
def an_unfit_followers_word_counts() -> Iterator[None]:
    def counts(progress: Any, broker: Any) -> bool:
        return broker is not None and progress.incarnation == broker.incarnation

    def diverged(self: Any) -> None:
        self.parked, self.sent_offsets = False, None

    from tidelog_broker.core.replication.follower_state import FollowerState

    def position(self: LeaderPartition, broker: int, incarnation: bytes, words: Any, now_ms: int) -> Any:
        known = self.followers.get(broker)
        if known is not None:
            known.durable = max(known.durable, min(words.durable_offset, self.log.end_offset))
        return original(self, broker, incarnation, words, now_ms)

    original = LeaderPartition.position
    with patched(
        (leader_state, "counts", counts),
        (isr_membership, "counts", counts),
        (FollowerState, "diverged", diverged),
        (LeaderPartition, "position", position),
    ):
        yield


@mutation("R3")
def a_new_leader_takes_its_end_for_committed() -> Iterator[None]:
    begin = LeaderPartition.__init__

    def bold(self: LeaderPartition, broker_id: int, leader_epoch: int, log: Any, **options: Any) -> None:
        begin(self, broker_id, leader_epoch, log, **{**options, "high_watermark": log.end_offset})

    with patched((LeaderPartition, "__init__", bold)):
        yield

"""Bugs in the roles of a replica: when a role begins, and what counts of the last one (R2, R3, R10, R16)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from simulator.mutations.plant import mutation, patched, uncaught
from tidelog_broker.core.replication import commits, fetches, isr_changes, leading
from tidelog_broker.core.replication import membership as isr_membership
from tidelog_broker.core.replication.follower_state import FollowerState
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.leader_state import LeaderState
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.hosting.record_deletion import START_LOOK_SECONDS
from tidelog_broker.hosting.replica_host import BrokerPartitionHost
from tidelog_broker.replication.replica import Replica
from tidelog_broker.replication.uplink import Uplink
from tidelog_broker.storage.directory.opening import LogOpener


@mutation("R2", "deposals")
def a_role_begins_while_a_write_of_the_last_one_is_on_its_way() -> Iterator[None]:
    def at_once(self: Replica) -> None:
        operations, self._operations = self._operations, 0
        try:
            begin(self)
        finally:
            self._operations += operations

    begin = Replica.begin_when_idle
    with patched((Replica, "begin_when_idle", at_once)):
        yield


@mutation("R10", "restarts")
def a_run_leads_what_the_run_before_it_led() -> Iterator[None]:
    with patched((BrokerPartitionHost, "is_this_run", lambda self, incarnation: True)):
        yield


@mutation("R3", "deposals")
def the_high_watermark_of_the_last_role_is_forgotten() -> Iterator[None]:
    def forgetful(self: Replica) -> None:
        known = self._high_watermark
        end(self)
        self._high_watermark = known

    end = Replica.end_role
    with patched((Replica, "end_role", forgetful)):
        yield


@mutation("R1", "standstills")
def a_follower_waits_for_what_was_lost_with_its_connection() -> Iterator[None]:
    def patient(self: FollowerPartition) -> None:
        self._connected = False

    with patched((FollowerPartition, "lost", patient)):
        yield


@uncaught("R1", "returns")
def a_follower_stays_with_its_last_leader() -> Iterator[None]:
    with patched((BrokerPartitionHost, "unfollow", lambda self, replica, leader: None)):
        yield


@mutation("R1", "flapping")
def a_connection_that_is_open_again_is_told_to_nobody() -> Iterator[None]:
    def silent(self: Uplink, connection: Any) -> None:
        self.connection, self._run = connection, connection.peer.incarnation

    with patched((Uplink, "opened", silent)):
        yield


@uncaught("R4", "flapping")
def a_leader_has_no_ticks() -> Iterator[None]:
    with patched((BrokerPartitionHost, "needs_ticks", lambda self, replica: None)):
        yield


@mutation("R4", "flapping")
def who_is_proposed_to_leave_is_not_waited_for() -> Iterator[None]:
    """An ISR change is acted on before the image shows it."""

    def hasty(leader: LeaderState, now_ms: int) -> list[int]:
        leaving = leader.proposals.leaving
        return [broker for broker in maximal(leader, now_ms) if broker not in leaving]

    maximal = commits.maximal_isr
    with patched((commits, "maximal_isr", hasty)):
        yield


@uncaught("R4", "unanswered heartbeats")
def a_refused_proposal_counts_as_decided() -> Iterator[None]:
    """After `proposal_repeat` without a newer image, the leader waits for no proposed member."""
    from tidelog_broker.core.replication.proposals import Proposals

    def forgets(self: Proposals, partition_epoch: int, isr: Any, proposed: Any) -> None:
        self._undecided = {}
        sent(self, partition_epoch, isr, proposed)

    sent = Proposals.sent
    with patched((Proposals, "sent", forgets)):
        yield


@mutation("R4, R11", "starts")
def a_follower_joins_without_the_log_start() -> Iterator[None]:
    def may_join(progress: Any, broker: Any, high_watermark: int, epoch_start: int, log_start: int) -> bool:
        return original(progress, broker, high_watermark, epoch_start, 0)

    original = isr_membership.may_join
    with patched((isr_changes, "may_join", may_join)):
        yield


@mutation("R11", "starts")
def records_count_as_deleted_when_the_leader_has_deleted_them() -> Iterator[None]:
    with patched((LeaderPartition, "start_acknowledged", property(lambda self: self.log.start_offset))):
        yield


@mutation("R11", "small ISRs")
def a_deletion_is_acknowledged_below_the_minimum() -> Iterator[None]:
    """Seed 7434 showed this bug before it became a mutation."""

    def few(self: LeaderPartition) -> int:
        leader = self.state
        members = (*leader.placement.isr, *leader.proposals.joining)
        others = [leader.acknowledged(broker)[1] for broker in members if broker != leader.broker_id]
        return min((leader.log.start_offset, *others))

    async def delete(self: Broker, partition: Any, before: int) -> int:
        await self._maintenance.advance_starts([(partition, min(before, partition.high_watermark))])
        start = int(partition.log.start_offset)
        while partition.replica.start_acknowledged < start:  # noqa: ASYNC110  as the function that it stands in for
            await asyncio.sleep(START_LOOK_SECONDS)
        return start

    with patched((LeaderPartition, "start_acknowledged", property(few)), (Broker, "delete_records", delete)):
        yield


@uncaught("R11", "starts")
def a_new_leader_does_not_take_the_largest_log_start() -> Iterator[None]:
    with patched((leading, "catch_up_start", lambda leader: [])):
        yield


@mutation("R5", "leader alone")
def the_high_watermark_passes_the_epoch_start_before_that_is_on_disk() -> Iterator[None]:
    def hasty(leader: LeaderState, now_ms: int) -> Any:
        with patched((LeaderState, "epoch_durable", property(lambda self: True))):
            return commit(leader, now_ms)

    commit = commits.advance_high_watermark
    with patched((leading, "advance_high_watermark", hasty)):
        yield


@mutation("R1", "losses")
def unclean_epochs_are_not_told_to_followers() -> Iterator[None]:
    with patched((fetches, "unclean_marks", lambda leader, first, last: ())):
        yield


@mutation("R1", "losses")
def an_unclean_epoch_is_not_marked() -> Iterator[None]:
    from tidelog_broker.replication import replica

    with patched((replica, "epoch_to_mark", lambda log, unclean_epoch: None)):
        yield


@mutation("R16", "moves")
def a_replica_that_left_and_came_goes_on_with_its_log() -> Iterator[None]:
    """Every broker and every leader ignores the identity of the assignment."""
    from tidelog_broker.hosting.image_follower import ImageFollower

    def placed(self: ImageFollower, partition: Any, stream: Any) -> bool:
        return self._broker_id in stream.partitions[partition.partition].replicas

    def refusal(leader: LeaderState, broker: int, incarnation: bytes, position: Any) -> Any:
        follower = leader.followers.get(broker)
        if follower is not None:
            position = position._replace(assignment=follower.assignment)
        return refuse(leader, broker, incarnation, position)

    def durable(self: LeaderPartition, broker: int, incarnation: bytes, said: Any, now_ms: int) -> Any:
        follower = self.followers.get(broker)
        if follower is not None:
            said = said._replace(assignment=follower.assignment)
        return hear(self, broker, incarnation, said, now_ms)

    def known(self: LeaderState, broker: int, now_ms: int) -> FollowerState:
        one = self.followers.get(broker)
        if one is None:
            return follower_of(self, broker, now_ms)
        one.assignment = self.placement.brokers[broker].assignment
        return one

    refuse, hear = fetches.refusal, LeaderPartition.durable
    follower_of = LeaderState.follower_of
    with patched(
        (ImageFollower, "_is_placed", placed),
        (LogOpener, "_set_earlier_aside", lambda self, want: ""),
        (leading, "refusal", refusal),
        (LeaderPartition, "durable", durable),
        (LeaderState, "follower_of", known),
    ):
        yield


@mutation("R17", "switches")
def a_leader_goes_on_counting_what_is_only_written() -> Iterator[None]:
    """The stream becomes `fsync`, and the leading role does not learn it."""
    with patched((LeaderPartition, "configured", lambda self, fsync, now_ms: [])):
        yield


@mutation("R17", "switches")
def a_follower_goes_on_counting_what_is_only_written() -> Iterator[None]:
    """It does not say so either: the leader assumes that the records are flushed."""

    def trusting(self: Replica, broker: int, incarnation: bytes, message: Any) -> None:
        asked(self, broker, incarnation, message._replace(fsync=self.fsync))

    asked = Replica.asked
    with patched((Replica, "asked", trusting), (FollowerPartition, "configured", lambda self, fsync: [])):
        yield


@mutation("R17", "quick switches")
def a_stream_that_becomes_fsync_counts_what_was_only_written() -> Iterator[None]:
    """The offsets that followers have written still count, until the followers say what they flushed."""

    def careless(self: LeaderPartition, fsync: bool, now_ms: int) -> Any:
        self.state.fsync = fsync
        return self._settle(now_ms)

    with patched((LeaderPartition, "configured", careless)):
        yield


@mutation("R3", "lost followers")
def an_isr_counts_members_that_are_proposed_to_leave() -> Iterator[None]:
    with patched((LeaderState, "isr_size", property(lambda self: len(self.placement.isr)))):
        yield


@mutation("R3", "flapping")
def members_that_are_proposed_to_leave_count_and_are_not_waited_for() -> Iterator[None]:
    def hasty(leader: LeaderState, now_ms: int) -> list[int]:
        leaving = leader.proposals.leaving
        return [broker for broker in maximal(leader, now_ms) if broker not in leaving]

    maximal = commits.maximal_isr
    with patched(
        (LeaderState, "isr_size", property(lambda self: len(self.placement.isr))),
        (commits, "maximal_isr", hasty),
    ):
        yield

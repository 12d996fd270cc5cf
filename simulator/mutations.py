"""Planted bugs: rules broken one at a time, each of which the simulator has to catch. A test of the test.

A mutation replaces one function or value of the code that decides, as somebody might write it who did not
know the rule. `python -m simulator --mutations` runs seeds with each of them until an invariant fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

from msgspec.structs import replace

from tidelog_broker.core.metadata import eligibility, isr_changes, membership
from tidelog_broker.core.metadata.liveness import Sessions
from tidelog_broker.core.raft.leading import Leader
from tidelog_broker.core.raft.node import RaftNode
from tidelog_broker.core.raft.quorum import quorum_index
from tidelog_broker.core.replication import following, leadership, leading, reconciliation
from tidelog_broker.core.replication import membership as isr_membership
from tidelog_broker.core.replication.effects import Truncate
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.core.replication.proposals import Proposals
from tidelog_broker.storage.log import PartitionLog


class Mutation(NamedTuple):
    name: str
    rule: str
    """The one that it breaks."""
    plant: Callable[[], contextlib.AbstractContextManager[Any]]


_ALL: list[Mutation] = []


def mutation(rule: str) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    def register(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        _ALL.append(Mutation(plant.__name__.replace("_", " "), rule, contextmanager(plant)))
        return plant

    return register


def mutations() -> list[Mutation]:
    return list(_ALL)


def _patched(*patches: tuple[Any, str, Any]) -> ExitStack:
    stack = ExitStack()
    for owner, name, value in patches:
        stack.enter_context(mock.patch.object(owner, name, value))
    return stack


# --- the metadata log


@mutation("M Raft 5.2")
def the_vote_is_forgotten_on_restart() -> Iterator[None]:
    begin = RaftNode.__init__

    def forget(self: RaftNode, me: Any, storage: Any, hard_state: Any, *rest: Any, **options: Any) -> None:
        begin(self, me, storage, hard_state._replace(vote=None), *rest, **options)

    with _patched((RaftNode, "__init__", forget)):
        yield


@mutation("M Raft 5.4.1")
def a_vote_is_given_to_a_shorter_log() -> Iterator[None]:
    def grants(request: Any, *, term: int, vote: Any, leader: Any, log: Any) -> bool:
        free = (
            request.term > term
            if request.pre
            else vote == request.source or (vote is None and leader is None)
        )
        return free and log.last_index > 0

    with mock.patch("tidelog_broker.core.raft.stepping.grants", grants):
        yield


@mutation("M1")
def an_empty_directory_votes() -> Iterator[None]:
    def grants(request: Any, *, term: int, vote: Any, leader: Any, log: Any) -> bool:
        free = (
            request.term > term
            if request.pre
            else vote == request.source or (vote is None and leader is None)
        )
        return free and (request.last_term, request.last_index) >= (log.last_term, log.last_index)

    def anybody(self: RaftNode, message: Any) -> None:
        # And it answers for whatever disk it had before (M2).
        step(self, replace(message, target=self.me))

    step = RaftNode.step
    with (
        mock.patch("tidelog_broker.core.raft.stepping.grants", grants),
        _patched((RaftNode, "step", anybody)),
    ):
        yield


@mutation("M Raft 5.4.2")
def an_older_terms_entry_is_committed_by_count() -> Iterator[None]:
    def commit(self: Leader) -> None:
        log = self._node.log
        reached = {peer: progress.match for peer, progress in self.progress.items()}
        reached[self._node.me] = log.saved_index
        log.commit = max(log.commit, quorum_index(self._node.configuration.voters, reached))
        original(self)

    original = Leader._commit
    with _patched((Leader, "_commit", commit)):
        yield


@mutation("M Raft, persist before you speak")
def an_answer_is_sent_before_it_is_on_disk() -> Iterator[None]:
    def at_once(self: RaftNode, message: Any) -> None:
        self._outbox.say_now(message)

    with _patched((RaftNode, "say", at_once)):
        yield


# --- acknowledgements


@mutation("R3")
def a_leader_acknowledges_before_its_own_fsync() -> Iterator[None]:
    begin = LeaderPartition.__init__

    def careless(self: LeaderPartition, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **{**options, "fsync": False})

    with _patched((LeaderPartition, "__init__", careless), (LeaderPartition, "configured", lambda *_: [])):
        yield


@mutation("R3")
def a_follower_acknowledges_before_its_fsync() -> Iterator[None]:
    with _patched((FollowerPartition, "_durable", property(lambda self: self.log.end_offset))):
        yield


@mutation("R3")
def the_high_watermark_moves_with_too_small_an_isr() -> Iterator[None]:
    def careless(current: int, *, leader_durable: int, maximal_isr_durable: Any, **_: Any) -> int:
        return max(current, min((leader_durable, *maximal_isr_durable)))

    with _patched((leadership, "next_high_watermark", careless)):
        yield


@mutation("R3")
def the_high_watermark_waits_only_for_a_majority() -> Iterator[None]:
    def most(current: int, *, leader_durable: int, maximal_isr_durable: Any, **_: Any) -> int:
        ends = sorted((leader_durable, *maximal_isr_durable), reverse=True)
        return max(current, ends[len(ends) // 2])

    with _patched((leadership, "next_high_watermark", most)):
        yield


@mutation("R3")
def a_pending_member_is_not_waited_for() -> Iterator[None]:
    with _patched((Proposals, "joining", property(lambda self: ()))):
        yield


@mutation("R3")
def an_unfit_followers_word_counts() -> Iterator[None]:
    def counts(progress: Any, broker: Any) -> bool:
        return broker is not None and progress.incarnation == broker.incarnation

    def unfit(self: Any) -> None:
        self.parked, self.told = False, None

    from tidelog_broker.core.replication.progress import Progress

    def position(self: LeaderPartition, broker: int, incarnation: bytes, words: Any, now_ms: int) -> Any:
        known = self.followers.get(broker)
        if known is not None:
            known.durable = max(known.durable, min(words.durable_offset, self.log.end_offset))
        return original(self, broker, incarnation, words, now_ms)

    original = LeaderPartition.position
    with _patched(
        (leadership, "counts", counts),
        (isr_membership, "counts", counts),
        (Progress, "unfit", unfit),
        (LeaderPartition, "position", position),
    ):
        yield


@mutation("R3")
def a_new_leader_takes_its_end_for_committed() -> Iterator[None]:
    begin = LeaderPartition.__init__

    def bold(self: LeaderPartition, broker_id: int, leader_epoch: int, log: Any, **options: Any) -> None:
        begin(self, broker_id, leader_epoch, log, **{**options, "high_watermark": log.end_offset})

    with _patched((LeaderPartition, "__init__", bold)):
        yield


@mutation("R8")
def a_duplicate_is_answered_before_its_first_copy_is_committed() -> Iterator[None]:
    from simulator.replica import Produced, Replica

    original = Replica.produce

    def hasty(self: Replica, item: Any, answer: Any) -> None:
        role = self.role
        if isinstance(role, LeaderPartition):
            try:
                known = self.log.guard.check(item.header, None)
            except Exception:
                known = None
            if known is not None:
                from tidelog_broker.storage.log import Appended

                outcome = Appended(
                    known.base_offset, known.base_offset + known.records - 1, role.leader_epoch, 0, True
                )
                self.broker.checks.acknowledged(self, outcome)
                answer(Produced(outcome))
                return
        original(self, item, answer)

    with _patched((Replica, "produce", hasty)):
        yield


@mutation("R8")
def followers_do_not_remember_producers() -> Iterator[None]:
    original = PartitionLog.replicate

    def forgetful(self: PartitionLog, *arguments: Any, **options: Any) -> Any:
        with mock.patch.object(type(self.guard), "record"):
            done = original(self, *arguments, **options)
        self.guard.offset = self.end_offset
        return done

    with _patched((PartitionLog, "replicate", forgetful)):
        yield


# --- the ISR


@mutation("R4")
def a_follower_joins_before_it_has_the_start_of_the_epoch() -> Iterator[None]:
    def may_join(progress: Any, broker: Any, high_watermark: int, epoch_start: int) -> bool:
        counts = isr_membership.counts(progress, broker)
        return counts and bool(broker.may_join) and progress.durable >= high_watermark

    with _patched((leadership, "may_join", may_join)):
        yield


@mutation("R4")
def a_follower_joins_though_it_lacks_what_is_committed() -> Iterator[None]:
    def may_join(progress: Any, broker: Any, high_watermark: int, epoch_start: int) -> bool:
        return isr_membership.counts(progress, broker) and bool(broker.may_join)

    with _patched((leadership, "may_join", may_join)):
        yield


@mutation("R4")
def the_controller_takes_any_partition_epoch() -> Iterator[None]:
    original = isr_changes._refusal

    def lenient(image: Any, partition: Any, proposal: Any) -> Any:
        return original(image, partition, proposal._replace(partition_epoch=partition.partition_epoch))

    with _patched((isr_changes, "_refusal", lenient)):
        yield


@mutation("R4, R10")
def a_stale_incarnation_joins_the_isr() -> Iterator[None]:
    def lenient(image: Any, partition: Any, proposal: Any) -> Any:
        current = tuple(
            member._replace(incarnation=image.brokers[member.broker].incarnation)
            for member in proposal.isr
            if member.broker in image.brokers
        )
        proposer = proposal.proposer
        return original(
            image,
            partition,
            proposal._replace(
                isr=current,
                proposer=proposer._replace(incarnation=image.brokers[proposer.broker].incarnation),
            ),
        )

    original = isr_changes._ineligible
    with _patched(
        (isr_changes, "_ineligible", lenient),
        (LeaderPartition, "_known", lambda self, broker, incarnation: True),
        (isr_membership, "counts", lambda progress, broker: progress.fit),
        (leadership, "counts", lambda progress, broker: progress.fit),
    ):
        yield


@mutation("R4")
def a_fenced_broker_joins_the_isr() -> Iterator[None]:
    from tidelog_broker.core.metadata.image import BrokerImage

    with _patched((BrokerImage, "may_join", property(lambda self: True))):
        yield


# --- elections


@mutation("R6")
def anybody_is_elected() -> Iterator[None]:
    from tidelog_broker.core.metadata import elections

    def careless(image: Any, partition: Any, *, without: Any = ()) -> list[int]:
        return [
            broker
            for broker in partition.replicas
            if broker in image.brokers and not image.brokers[broker].fenced and broker not in without
        ]

    from tidelog_broker.core.metadata import partition_change

    def after(stream: Any, partition: Any, change: Any) -> Any:
        if isinstance(change.leader, int) and change.leader not in (*partition.isr, *partition.eligible):
            partition = replace(partition, isr=(*partition.isr, change.leader))
        return after_change(stream, partition, change)

    after_change = partition_change.after_change
    with (
        _patched((elections, "candidates", careless)),
        mock.patch("tidelog_broker.core.metadata.apply.after_change", after),
    ):
        yield


@mutation("R6")
def eligibility_does_not_end_when_the_isr_is_whole() -> Iterator[None]:
    original = eligibility.with_isr

    def sticky(stream: Any, partition: Any, isr: Any) -> Any:
        after = original(stream, partition, isr)
        clean = dict.fromkeys((*partition.eligible, *partition.isr))
        return replace(after, eligible=tuple(broker for broker in clean if broker not in isr))

    with _patched((eligibility, "with_isr", sticky)):
        yield


@mutation("R6")
def eligibility_outlives_a_lower_minimum() -> Iterator[None]:
    with _patched((eligibility, "reconfigured", lambda stream, partition: partition)):
        yield


@mutation("R6")
def a_new_directory_is_taken_for_the_old_one() -> Iterator[None]:
    original = membership._restarted

    def trusting(stream: Any, partition: Any, broker: Any, new_disk: bool, found: Any) -> Any:
        return original(stream, partition, broker, False, found)

    with _patched((membership, "_restarted", trusting)):
        yield


@mutation("R6")
def a_suspect_replica_stays_in_the_isr() -> Iterator[None]:
    original = membership._restarted

    def trusting(stream: Any, partition: Any, broker: Any, new_disk: bool, found: Any) -> Any:
        return original(stream, partition, broker, new_disk, None)

    with _patched((membership, "_restarted", trusting)):
        yield


@mutation("R10")
def a_restarted_leader_keeps_its_epoch() -> Iterator[None]:
    def lenient(stream: Any, partition: Any, broker: Any, new_disk: bool, found: Any) -> Any:
        if partition.leader == broker.id and not new_disk and found is None:
            return partition
        return original(stream, partition, broker, new_disk, found)

    original = membership._restarted
    with _patched((membership, "_restarted", lenient)):
        yield


# --- reconciliation


@mutation("R1")
def a_follower_truncates_to_its_high_watermark() -> Iterator[None]:
    original = reconciliation.way_back

    def old_way(answer: Any, log: Any, high_watermark: int) -> Any:
        found = original(answer, log, high_watermark)
        if isinstance(found, Truncate):
            return (
                Truncate(max(log.start_offset, high_watermark)) if high_watermark < log.end_offset else None
            )
        return found

    def always_fits(end_offset: int, last_epoch: Any, log: Any, leader_epoch: int) -> Any:
        found = compare(end_offset, last_epoch, log, leader_epoch)
        if isinstance(found, reconciliation.Diverged) and end_offset <= log.end_offset:
            return reconciliation.Fits()
        return found

    compare = reconciliation.compare
    with _patched((following, "way_back", old_way), (leading, "compare", always_fits)):
        yield


@mutation("R1")
def a_follower_appends_without_comparing_histories() -> Iterator[None]:
    original = reconciliation.compare

    def trusting(end_offset: int, last_epoch: Any, log: Any, leader_epoch: int) -> Any:
        if log.start_offset <= end_offset <= log.end_offset:
            return reconciliation.Fits()
        return original(end_offset, last_epoch, log, leader_epoch)

    with _patched((leading, "compare", trusting)):
        yield


@mutation("R2")
def truncation_is_not_fenced() -> Iterator[None]:
    def unfenced(self: FollowerPartition, message: Any) -> Any:
        if hasattr(message, "refusal"):
            return received(self, message)
        return received(self, message._replace(leader_epoch=self.leader_epoch))

    def any_epoch(self: LeaderPartition, broker: int, incarnation: bytes, position: Any) -> Any:
        return None if broker in self.followers else refusal(self, broker, incarnation, position)

    def to_anybody(self: Any, connection: Any, message: Any) -> None:
        key, _, words = message
        replica = self.replicas.get(key)
        if replica is not None:
            replica.received(words)

    from simulator.links import _Up

    received, refusal = FollowerPartition.received, LeaderPartition._refusal
    with _patched(
        (FollowerPartition, "received", unfenced),
        (LeaderPartition, "_refusal", any_epoch),
        (_Up, "received", to_anybody),
    ):
        yield


@mutation("R5")
def an_epoch_is_sent_before_its_beginning_is_on_disk() -> Iterator[None]:
    with _patched((LeaderPartition, "_epoch_durable", lambda self: True)):
        yield


@mutation("R11")
def a_log_start_offset_is_not_saved() -> Iterator[None]:
    from simulator.replica import Replica

    def forgetful(self: Replica, role: Any, offset: int) -> None:
        self.log.advance_start(offset)
        if isinstance(role, LeaderPartition):
            self._do_all(role, role.start_moved(self.broker.now_ms))
        else:
            self._do_all(role, role.start_saved())

    from simulator.broker import Broker

    with _patched((Replica, "_advance_start", forgetful), (Broker, "save_checkpoints", lambda self, _: None)):
        yield


@mutation("R13")
def a_reader_is_not_told_of_a_truncation() -> Iterator[None]:
    def lenient(*arguments: Any, **facts: Any) -> None:
        return None

    with mock.patch("simulator.clients.check_position", lenient):
        yield


@mutation("R15")
def a_new_leader_answers_latest_at_once() -> Iterator[None]:
    with _patched((LeaderPartition, "may_answer_latest", property(lambda self: True))):
        yield


# --- the disk


@mutation("2a")
def an_unsynced_tail_is_trusted_after_a_restart() -> Iterator[None]:
    from simulator.disk import FakeFile
    from tidelog_broker.storage import recovery

    original = recovery._Tail._scan_file

    def trusting(self: Any, *arguments: Any) -> Any:
        with mock.patch.object(FakeFile, "datasync"):
            return original(self, *arguments)

    with _patched((recovery._Tail, "_scan_file", trusting)):
        yield


@mutation("2b")
def a_power_loss_is_taken_for_a_kill() -> Iterator[None]:
    from simulator.broker import Broker

    original = Broker.crash

    def mistaken(self: Broker, *, power: bool) -> None:
        original(self, power=power)
        self.same_boot = True

    with _patched((Broker, "crash", mistaken)):
        yield


# --- time


@mutation("M3")
def a_new_controller_grants_nobody_a_session() -> Iterator[None]:
    def strict(self: Sessions, image: Any, now_ms: int) -> list[int]:
        late = [
            broker.id
            for broker in image.brokers.values()
            if not broker.fenced
            and (heard := self._of(broker)) is not None
            and heard.granted
            and now_ms - heard.at_ms >= 100
        ]
        return late or original(self, image, now_ms)

    original = Sessions.expired
    with _patched((Sessions, "expired", strict)):
        yield

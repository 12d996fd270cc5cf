"""A leader's state in one epoch, and what follows from it after each event: R3–R5, R11 and R15.

The rules are the neighbours' (`high_watermark`, `membership`, `proposals`); here is in
which order they are asked and what comes out as `effects`. `leading` has the events.
"""

from __future__ import annotations

from tidelog_broker.core.replication.effects import (
    AdvanceStart,
    Answer,
    Committed,
    LeaderEffect,
    Member,
    Propose,
    SendBatches,
)
from tidelog_broker.core.replication.high_watermark import high_watermark as next_high_watermark
from tidelog_broker.core.replication.log_view import LogView
from tidelog_broker.core.replication.membership import (
    Placement,
    counts,
    held,
    may_join,
    outsiders,
    remaining,
    update_hold,
)
from tidelog_broker.core.replication.messages import Batches, EpochMark, LeaderOffsets
from tidelog_broker.core.replication.progress import FollowerState
from tidelog_broker.core.replication.proposals import Proposals
from tidelog_broker.core.replication.reconciliation import start_over
from tidelog_broker.core.replication.times import DEFAULT_TIMES, ReplicationTimes


class Leadership:
    """See the module."""

    __slots__ = (
        "_advancing",
        "_end",
        "_flushing_history",
        "_largest_start",
        "_proposals",
        "_propose_after",
        "broker_id",
        "epoch_start",
        "followers",
        "fsync",
        "high_watermark",
        "leader_epoch",
        "log",
        "placement",
        "times",
    )

    def __init__(
        self,
        broker_id: int,
        leader_epoch: int,
        log: LogView,
        *,
        fsync: bool,
        high_watermark: int,
        placement: Placement,
        now_ms: int,
        times: ReplicationTimes = DEFAULT_TIMES,
    ) -> None:
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.log = log
        self.fsync = fsync
        """Durable means on disk; else written (`page-cache`)."""
        self.high_watermark = max(min(high_watermark, log.end_offset), log.start_offset)
        self.placement = placement
        self.times = times
        self.epoch_start = log.end_offset
        """The leader's end when its epoch began: an earlier leader may have committed up to here."""
        self.followers = {
            broker: FollowerState(now_ms, placement.brokers[broker].assignment, fsync=fsync)
            for broker in placement.replicas
            if broker != broker_id
        }
        self._end = log.end_offset
        """As of the last event."""
        self._flushing_history = False
        self._largest_start = log.start_offset
        """The largest LSO that a follower told of (R11)."""
        self._advancing = 0
        """The log start offset that was last asked for."""
        self._proposals = Proposals()
        self._propose_after = now_ms
        """Nothing is proposed before. ms."""

    def __repr__(self) -> str:
        return (
            f"<LeaderPartition broker={self.broker_id} epoch={self.leader_epoch} leo={self.log.end_offset} "
            f"hw={self.high_watermark} isr={list(self.placement.isr)} {self._proposals} {self.followers}>"
        )

    # --- what others ask

    @property
    def may_answer_latest(self) -> bool:
        """R15: whether the high watermark says where the log really is committed to."""
        return self.high_watermark >= self.epoch_start

    @property
    def has_enough_replicas(self) -> bool:
        """R7: whether an append with acks=all is taken, or refused at once."""
        return self._isr_size() >= self.placement.min_insync_effective

    @property
    def start_acknowledged(self) -> int:
        """R11: the log start offset that all members of the ISR have on disk, proposed ones included.

        Below the minimum nothing is acknowledged: an eligible member that has not heard of it may lead next
        (R6).
        """
        if not self.has_enough_replicas:
            return 0
        members = (*self.placement.isr, *self._proposals.joining)
        others = [self._acknowledged(broker)[1] for broker in members if broker != self.broker_id]
        return min((self.log.start_offset, *others))

    @property
    def needs_ticks(self) -> bool:
        """Whether time alone can change anything: an idle partition whose members are all here needs none."""
        if self._proposals.undecided:
            return True
        for broker, follower in self.followers.items():
            if broker in self.placement.isr:
                if follower.lost_since is not None or follower.durable < self.log.end_offset:
                    return True
            elif follower.fit and self.placement.brokers[broker].may_join:
                return True
            if follower.parked and follower.told != (self.high_watermark, self.log.start_offset):
                return True
        return False

    def batches(self, offset: int, data: bytes | memoryview, next_offset: int) -> Batches:
        """The message for batches that were read for a `SendBatches`."""
        marks = self._unclean(offset, next_offset)
        return Batches(self.leader_epoch, self.high_watermark, self.log.start_offset, offset, data, marks)

    def _unclean(self, first: int, last: int) -> tuple[EpochMark, ...]:
        return tuple(
            (epoch, start) for epoch, start, marked in self.log.epochs if marked and first <= start <= last
        )

    # --- after each event

    def _settle(self, now_ms: int) -> list[LeaderEffect]:
        """Who comes and goes is decided first, because the high watermark waits for them from then on."""
        effects: list[LeaderEffect] = []
        self._update_members(now_ms, effects)
        return self._advance(now_ms, effects, tell=True)

    def _advance(self, now_ms: int, effects: list[LeaderEffect], *, tell: bool = False) -> list[LeaderEffect]:
        """As `_settle`, after what can change no membership; the most frequent events are such.

        After them a new high watermark is not told by itself: the next batches bring it, or the next
        tick. Telling it would cost as much as the record did, and nobody is waiting for it.
        """
        self._commit(now_ms, effects)
        self._feed(effects, tell=tell)
        if self._largest_start > self.log.start_offset:
            self._catch_up_start(effects)
        return effects

    def _update_members(self, now_ms: int, effects: list[LeaderEffect]) -> None:
        """R4: holds, and a proposal if the ISR should be another one and nobody is asked already."""
        placement, proposals = self.placement, self._proposals
        joining = []
        for broker in outsiders(placement, self.followers):
            follower, described = self.followers[broker], placement.brokers[broker]
            if may_join(follower, described, self.high_watermark, self.epoch_start, self.log.start_offset):
                joining.append(broker)
            elif broker not in proposals.joining:
                update_hold(follower, described, self.log, now_ms, self.times)
        if now_ms < self._propose_after:
            return
        stay = remaining(
            placement.isr,
            self.broker_id,
            self.followers,
            placement.brokers,
            placement.min_insync_effective,
            self.log.end_offset,
            now_ms,
            self.times,
        )
        proposed = (*stay, *joining)
        if proposed == placement.isr and not proposals.undecided:
            return
        proposals.sent(placement.partition_epoch, placement.isr, proposed)
        self._propose_after = now_ms + self.times.proposal_repeat_ms
        members = tuple(self._member(broker) for broker in proposed)
        effects.append(Propose(members, self.leader_epoch, placement.partition_epoch))

    def _member(self, broker: int) -> Member:
        known = self.placement.brokers[broker]
        follower = self.followers.get(broker)
        return Member(broker, known.incarnation, (known if follower is None else follower).assignment)

    def _progress_of(self, broker: int, now_ms: int) -> FollowerState:
        """What is known of a follower; of another assignment than that of now nothing is (R16)."""
        assignment = self.placement.brokers[broker].assignment
        known = self.followers.get(broker)
        if known is not None and known.assignment == assignment:
            return known
        return FollowerState(now_ms, assignment, fsync=self.fsync)

    def _isr_size(self) -> int:
        """Of the committed ISR; whose removal is proposed counts as gone (R3)."""
        leaving = self._proposals.leaving
        if not leaving:
            return len(self.placement.isr)
        return sum(broker not in leaving for broker in self.placement.isr)

    def _maximal_isr(self, now_ms: int) -> list[int]:
        """All but the leader: members, those who may be members by now, and those who are waited for."""
        isr, joining = self.placement.isr, self._proposals.joining
        return [
            broker
            for broker, follower in self.followers.items()
            if broker in isr or broker in joining or held(follower, now_ms, self.times)
        ]

    def _acknowledged(self, broker: int) -> tuple[int, int]:
        """Durable end and LSO of a follower; nothing of one that does not count (R3)."""
        follower = self.followers.get(broker)
        if follower is None or not counts(follower, self.placement.brokers.get(broker)):
            return 0, 0
        return follower.durable, follower.start_offset

    def _epoch_durable(self) -> bool:
        """R5: whether this epoch's beginning is on disk."""
        return self.log.durable_epoch == self.leader_epoch

    def _commit(self, now_ms: int, effects: list[LeaderEffect]) -> None:
        """R3."""
        own = self.log.durable_offset if self.fsync else self.log.end_offset
        if own > self.epoch_start and not self._epoch_durable():
            own = self.epoch_start
        if own <= self.high_watermark:
            return
        reached = next_high_watermark(
            self.high_watermark,
            leader_durable=own,
            maximal_isr_durable=[self._acknowledged(broker)[0] for broker in self._maximal_isr(now_ms)],
            committed_isr_size=self._isr_size(),
            min_insync_effective=self.placement.min_insync_effective,
        )
        if reached != self.high_watermark:
            self.high_watermark = reached
            effects.append(Committed(reached))

    def _feed(self, effects: list[LeaderEffect], *, tell: bool) -> None:
        """Answers the positions that wait, as far as there is something new for them.

        A high watermark alone is told if `tell`.
        """
        limit = self.log.end_offset if self._epoch_durable() else self.epoch_start
        known = (self.high_watermark, self.log.start_offset)
        for broker, follower in self.followers.items():
            if not follower.parked:
                continue
            if follower.end < known[1]:
                # Retention has passed a follower that waited (R1).
                follower.unfit()
                effects.append(Answer(broker, start_over(self.log, self.leader_epoch, self.leader_epoch)))
            elif follower.end < limit:
                follower.parked = False
                follower.told = known
                effects.append(SendBatches(broker, follower.end, limit))
            elif follower.told != known and (tell or follower.told is None or follower.told[1] != known[1]):
                follower.told = known
                marks = self._unclean(follower.end, follower.end)
                effects.append(Answer(broker, LeaderOffsets(self.leader_epoch, *known, marks)))

    def _catch_up_start(self, effects: list[LeaderEffect]) -> None:
        """R11: a new leader takes the largest log start offset it learns, once that is committed here."""
        wanted = min(self._largest_start, self.high_watermark)
        if wanted > max(self.log.start_offset, self._advancing):
            self._advancing = wanted
            effects.append(AdvanceStart(wanted))

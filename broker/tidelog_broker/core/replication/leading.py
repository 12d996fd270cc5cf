"""A partition on the broker that leads it, in one leader epoch: events in, effects out (R1–R5, R11, R15).

Events are method calls with the time; they return `effects`. `LeaderState` has the state; the rules over it
are `commits`, `fetches`, `isr_changes` and `log_starts`; here stands in which order they are applied. The
other end is `following`.

Three conditions hold before a leader is made: the log's writes of earlier epochs are done, the image has the
broker's current incarnation (R10), and, if the image calls the epoch unclean, the log's history has the entry
that says so. A leader does not append to the log; `appended` reports an append.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog_broker.core.replication import fetches, isr_changes, log_starts
from tidelog_broker.core.replication.commits import advance_high_watermark
from tidelog_broker.core.replication.effects import Answer, FlushHistory, LeaderEffect
from tidelog_broker.core.replication.fetches import answer_parked, refusal
from tidelog_broker.core.replication.follower_state import FollowerState
from tidelog_broker.core.replication.isr_changes import propose_isr
from tidelog_broker.core.replication.leader_state import LeaderState
from tidelog_broker.core.replication.log_starts import catch_up_start
from tidelog_broker.core.replication.log_view import LogView
from tidelog_broker.core.replication.membership import Placement
from tidelog_broker.core.replication.messages import Batches, Durable, Position, Refused
from tidelog_broker.core.replication.reconciliation import Matches, compare
from tidelog_broker.core.replication.times import DEFAULT_TIMES, ReplicationTimes


class LeaderPartition:
    """A leader's role. After `begin`, every method may be called at any time, in any order."""

    __slots__ = ("state",)

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
        self.state = LeaderState(
            broker_id,
            leader_epoch,
            log,
            fsync=fsync,
            high_watermark=high_watermark,
            placement=placement,
            now_ms=now_ms,
            times=times,
        )

    def __repr__(self) -> str:
        return repr(self.state)

    # --- status

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def epoch_start(self) -> int:
        """The end of the log when the epoch began."""
        return self.state.epoch_start

    @property
    def log(self) -> LogView:
        return self.state.log

    @property
    def high_watermark(self) -> int:
        """Everything below is committed."""
        return self.state.high_watermark

    @property
    def placement(self) -> Placement:
        return self.state.placement

    @property
    def followers(self) -> Mapping[int, FollowerState]:
        return self.state.followers

    @property
    def may_answer_latest(self) -> bool:
        """R15: whether the high watermark covers everything that earlier leaders may have committed."""
        return self.state.high_watermark >= self.state.epoch_start

    @property
    def has_enough_replicas(self) -> bool:
        """R7: whether an append with acks=all is accepted, or refused at once."""
        return self.state.has_enough_replicas

    @property
    def start_acknowledged(self) -> int:
        """R11: the log start offset that all members of the ISR have on disk."""
        return log_starts.start_acknowledged(self.state)

    @property
    def needs_ticks(self) -> bool:
        """Whether time alone can change anything."""
        return isr_changes.needs_ticks(self.state)

    def batches(self, offset: int, data: bytes | memoryview, next_offset: int) -> Batches:
        """The message for batches that were read for a `SendBatches`."""
        return fetches.batches(self.state, offset, data, next_offset)

    # --- events on this broker

    def begin(self, now_ms: int) -> list[LeaderEffect]:
        """The epoch begins. Called once, before every other event."""
        return self._settle(now_ms)

    def placed(self, placement: Placement, now_ms: int) -> list[LeaderEffect]:
        """The image has another placement, in this leader epoch."""
        state = self.state
        if placement.partition_epoch < state.placement.partition_epoch:
            return []
        if placement.partition_epoch > state.placement.partition_epoch:
            state.propose_after = now_ms
        joined = [broker for broker in placement.isr if broker not in state.placement.isr]
        state.placement = placement
        state.proposals.image_at(placement.partition_epoch)
        state.followers = {
            broker: state.follower_of(broker, now_ms)
            for broker in placement.replicas
            if broker != state.broker_id
        }
        for broker in joined:
            if broker in state.followers:
                # A new member has everything that is committed, not everything: its lag is counted from now.
                state.followers[broker].caught_up_at = now_ms
        for broker, follower in state.followers.items():
            if follower.incarnation not in (None, placement.brokers[broker].incarnation):
                follower.disconnect(now_ms, refused=False)
        # The high watermark moves before any follower is proposed as a member. A follower that was removed
        # because its disk takes nothing has everything committed as long as nothing more is committed: it
        # would join again at once, and the high watermark would wait for it for ever.
        committed = advance_high_watermark(state, now_ms)
        return [*committed, *self._settle(now_ms)]

    def configured(self, fsync: bool, now_ms: int) -> list[LeaderEffect]:
        """The stream's durability changed. (Its minimum comes with the placement.)"""
        if fsync != self.state.fsync:
            # R17: records that were only written must be flushed, and acknowledged as flushed.
            for follower in self.state.followers.values():
                follower.configured(fsync)
        self.state.fsync = fsync
        return self._settle(now_ms)

    def appended(self, now_ms: int) -> list[LeaderEffect]:
        """The log has more records."""
        state = self.state
        before, state.end = state.end, state.log.end_offset
        for follower in state.followers.values():
            follower.leader_appended(before, state.end, now_ms)
        effects = self._advance(now_ms, send_offsets=False)
        if (
            not state.fsync
            and not state.flushing_history
            and not state.epoch_durable
            and state.log.epochs.latest == state.leader_epoch
        ):
            # (If the append had only repeats, no epoch begins before them.)
            state.flushing_history = True
            effects.append(FlushHistory())
        return effects

    def flushed(self, now_ms: int) -> list[LeaderEffect]:
        """More of the log, or of its history, is durable."""
        return self._advance(now_ms, send_offsets=False)

    def start_moved(self, now_ms: int) -> list[LeaderEffect]:
        """The log start offset moved, durably (R11)."""
        return self._settle(now_ms)

    def tick(self, now_ms: int) -> list[LeaderEffect]:
        """Time passed."""
        return self._settle(now_ms)

    # --- events from followers

    def connected(self, broker: int, incarnation: bytes, now_ms: int) -> list[LeaderEffect]:
        """There is a connection to a follower's broker, over which its positions will arrive."""
        if broker in self.state.followers and self.state.is_current(broker, incarnation):
            self.state.followers[broker].connect(incarnation)
        return self._settle(now_ms)

    def disconnected(self, broker: int, refused: bool, now_ms: int) -> list[LeaderEffect]:
        """The connection is lost; `refused`: the broker's machine refuses another connection as well."""
        follower = self.state.followers.get(broker)
        if follower is not None:
            since = follower.lost_since
            follower.disconnect(now_ms if since is None else since, refused=refused)
        return self._settle(now_ms)

    def position(
        self, broker: int, incarnation: bytes, position: Position, now_ms: int
    ) -> list[LeaderEffect]:
        """A follower fetches and acknowledges. It is answered now, or parked until there is an answer."""
        state = self.state
        refused = refusal(state, broker, incarnation, position)
        if refused is not None:
            return [Answer(broker, Refused(refused, state.leader_epoch))]
        follower = state.followers[broker]
        follower.connect(incarnation)
        found = compare(position.end_offset, position.last_epoch, state.log, state.leader_epoch)
        if not isinstance(found, Matches):
            follower.diverged()
            return [Answer(broker, found), *self._settle(now_ms)]
        follower.matched(position, state.end, now_ms)
        state.largest_start = max(state.largest_start, position.start_offset)
        return self._acknowledged(broker, now_ms)

    def durable(self, broker: int, incarnation: bytes, durable: Durable, now_ms: int) -> list[LeaderEffect]:
        """A follower acknowledges. An acknowledgement that does not count (R2, R3) is ignored."""
        state = self.state
        follower = state.followers.get(broker)
        if (
            follower is None
            or durable.leader_epoch != state.leader_epoch
            or durable.assignment != follower.assignment
            or follower.incarnation != incarnation
            or not follower.matching
            or durable.durable_offset > state.log.end_offset
        ):
            return []
        follower.made_durable(durable, state.end, now_ms)
        state.largest_start = max(state.largest_start, durable.start_offset)
        return self._acknowledged(broker, now_ms)

    def _acknowledged(self, broker: int, now_ms: int) -> list[LeaderEffect]:
        """An acknowledgement of a member does not change the membership."""
        if broker in self.state.placement.isr:
            return self._advance(now_ms, send_offsets=False)
        return self._settle(now_ms)

    # --- after each event

    def _settle(self, now_ms: int) -> list[LeaderEffect]:
        """Applies all rules. Membership comes first: the high watermark waits for new ones at once."""
        proposed = propose_isr(self.state, now_ms)
        return [*proposed, *self._advance(now_ms, send_offsets=True)]

    def _advance(self, now_ms: int, *, send_offsets: bool) -> list[LeaderEffect]:
        """As `_settle`, after events that cannot change the membership; they are the most frequent ones.

        After them a new high watermark is not sent alone: the next batches bring it, or the next
        tick. To send it would cost as much as the record did, and no client waits for it.
        """
        state = self.state
        effects: list[LeaderEffect] = [
            *advance_high_watermark(state, now_ms),
            *answer_parked(state, send_offsets=send_offsets),
        ]
        if state.largest_start > state.log.start_offset:
            effects += catch_up_start(state)
        return effects

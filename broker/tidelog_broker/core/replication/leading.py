"""A partition on the broker that leads it, for one leader epoch: what it makes of each event (R1–R5).

Events come in as method calls, with the time; what is to be done comes out as `effects`.
`leadership` has the state and says what follows from it. The other end is `following`.

Whoever makes one has the log's writes of earlier epochs behind it, its broker's own
incarnation in the image (R10), and, if the image calls the epoch unclean, the entry that
says so in the log's history. Nothing here appends to the log; `appended` tells of it.
"""

from __future__ import annotations

from tidelog_broker.core.replication.effects import (
    Answer,
    FlushHistory,
    LeaderEffect,
)
from tidelog_broker.core.replication.leadership import Leadership
from tidelog_broker.core.replication.membership import (
    Placement,
)
from tidelog_broker.core.replication.messages import (
    Durable,
    Position,
    Refusal,
    Refused,
)
from tidelog_broker.core.replication.reconciliation import Fits, compare


class LeaderPartition(Leadership):
    """See the module. Every method may be called at any time, in any order, after `begin`."""

    __slots__ = ()

    # --- events on this broker

    def begin(self, now_ms: int) -> list[LeaderEffect]:
        """Once, before everything else."""
        return self._settle(now_ms)

    def placed(self, placement: Placement, now_ms: int) -> list[LeaderEffect]:
        """The image has another placement, of this leader epoch."""
        if placement.partition_epoch < self.placement.partition_epoch:
            return []
        if placement.partition_epoch > self.placement.partition_epoch:
            self._propose_after = now_ms
        joined = [broker for broker in placement.isr if broker not in self.placement.isr]
        self.placement = placement
        self._proposals.image_at(placement.partition_epoch)
        self.followers = {
            broker: self._progress_of(broker, now_ms)
            for broker in placement.replicas
            if broker != self.broker_id
        }
        for broker in joined:
            if broker in self.followers:
                # It had everything committed, not everything: it gets as long as any member.
                self.followers[broker].caught_up_at = now_ms
        for broker, follower in self.followers.items():
            if follower.incarnation not in (None, placement.brokers[broker].incarnation):
                follower.lose(now_ms, refused=False)
        effects: list[LeaderEffect] = []
        # Before anybody is asked in: whoever left because it takes nothing has all that is committed as long
        # as nothing more is. It would come back at once, and the high watermark would wait for it for ever.
        self._commit(now_ms, effects)
        return [*effects, *self._settle(now_ms)]

    def configured(self, fsync: bool, now_ms: int) -> list[LeaderEffect]:
        """The stream's durability is another one. (Its minimum comes with the placement.)"""
        if fsync != self.fsync:
            # R17: what was only written has to be flushed, and acknowledged as that.
            for follower in self.followers.values():
                follower.configured(fsync)
        self.fsync = fsync
        return self._settle(now_ms)

    def appended(self, now_ms: int) -> list[LeaderEffect]:
        """The log has more records."""
        before, self._end = self._end, self.log.end_offset
        for follower in self.followers.values():
            follower.leader_appended(before, self._end, now_ms)
        effects = self._advance(now_ms, [])
        if (
            not self.fsync
            and not self._flushing_history
            and not self._epoch_durable()
            and self.log.epochs.latest == self.leader_epoch
        ):
            # (What was appended may all have been repeats, before which no epoch begins.)
            self._flushing_history = True
            effects.append(FlushHistory())
        return effects

    def flushed(self, now_ms: int) -> list[LeaderEffect]:
        """More of the log, or of its history, is durable."""
        return self._advance(now_ms, [])

    def start_moved(self, now_ms: int) -> list[LeaderEffect]:
        """The log start offset moved, durably (R11)."""
        return self._settle(now_ms)

    def tick(self, now_ms: int) -> list[LeaderEffect]:
        """Time passed."""
        return self._settle(now_ms)

    # --- events from followers

    def connected(self, broker: int, incarnation: bytes, now_ms: int) -> list[LeaderEffect]:
        """There is a connection to a follower's broker, over which its positions will come."""
        if broker in self.followers and self._known(broker, incarnation):
            self.followers[broker].connect(incarnation)
        return self._settle(now_ms)

    def disconnected(self, broker: int, refused: bool, now_ms: int) -> list[LeaderEffect]:
        """The connection is lost; `refused`: and the broker's machine refuses another."""
        follower = self.followers.get(broker)
        if follower is not None:
            since = follower.lost_since
            follower.lose(now_ms if since is None else since, refused=refused)
        return self._settle(now_ms)

    def position(
        self, broker: int, incarnation: bytes, position: Position, now_ms: int
    ) -> list[LeaderEffect]:
        """A follower asks, and acknowledges. It is answered now, or kept until there is an answer."""
        refusal = self._refusal(broker, incarnation, position)
        if refusal is not None:
            return [Answer(broker, Refused(refusal, self.leader_epoch))]
        follower = self.followers[broker]
        follower.connect(incarnation)
        found = compare(position.end_offset, position.last_epoch, self.log, self.leader_epoch)
        if not isinstance(found, Fits):
            follower.unfit()
            return [Answer(broker, found), *self._settle(now_ms)]
        follower.fits(position, self._end, now_ms)
        self._largest_start = max(self._largest_start, position.start_offset)
        return self._heard_from(broker, now_ms)

    def durable(self, broker: int, incarnation: bytes, durable: Durable, now_ms: int) -> list[LeaderEffect]:
        """A follower acknowledges. What does not count (R2, R3) is passed over."""
        follower = self.followers.get(broker)
        if (
            follower is None
            or durable.leader_epoch != self.leader_epoch
            or durable.assignment != follower.assignment
            or follower.incarnation != incarnation
            or not follower.fit
            or durable.durable_offset > self.log.end_offset
        ):
            return []
        follower.made_durable(durable, self._end, now_ms)
        self._largest_start = max(self._largest_start, durable.start_offset)
        return self._heard_from(broker, now_ms)

    def _heard_from(self, broker: int, now_ms: int) -> list[LeaderEffect]:
        """A member that is heard from makes no difference to who is one."""
        return self._advance(now_ms, []) if broker in self.placement.isr else self._settle(now_ms)

    def _refusal(self, broker: int, incarnation: bytes, position: Position) -> Refusal | None:
        """R2."""
        if position.leader_epoch < self.leader_epoch:
            return Refusal.FENCED_LEADER_EPOCH
        if position.leader_epoch > self.leader_epoch or (position.last_epoch or 0) > self.leader_epoch:
            return Refusal.UNKNOWN_LEADER_EPOCH
        if broker not in self.followers or not self._known(broker, incarnation):
            return Refusal.UNKNOWN_INCARNATION
        if position.assignment != self.followers[broker].assignment:
            return Refusal.UNKNOWN_INCARNATION
        return None

    def _known(self, broker: int, incarnation: bytes) -> bool:
        return self.placement.brokers[broker].incarnation == incarnation

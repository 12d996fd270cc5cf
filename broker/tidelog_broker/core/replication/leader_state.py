"""A leader's state in one epoch: what the rules over it read and change.

The rules are small modules: `commits` (R3, R5), `fetches` (R1, R2), `isr_changes` (R4) and `log_starts`
(R11). `leading` has the events and says in which order the rules are applied.
"""

from __future__ import annotations

from tidelog_broker.core.replication.follower_state import FollowerState
from tidelog_broker.core.replication.log_view import LogView
from tidelog_broker.core.replication.membership import Placement, counts
from tidelog_broker.core.replication.proposals import Proposals
from tidelog_broker.core.replication.times import ReplicationTimes


class LeaderState:
    """One partition, on the broker that leads it, in one leader epoch."""

    __slots__ = (
        "broker_id",
        "end",
        "epoch_start",
        "flushing_history",
        "followers",
        "fsync",
        "high_watermark",
        "largest_start",
        "leader_epoch",
        "log",
        "placement",
        "proposals",
        "propose_after",
        "requested_start",
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
        times: ReplicationTimes,
    ) -> None:
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.log = log
        self.fsync = fsync
        """Durable means on disk; otherwise it means written (`page-cache`)."""
        self.high_watermark = max(min(high_watermark, log.end_offset), log.start_offset)
        """Everything below is committed; it only grows."""
        self.placement = placement
        self.times = times
        self.epoch_start = log.end_offset
        """The end of the log when the epoch began: an earlier leader may have committed up to here."""
        self.followers = {
            broker: FollowerState(now_ms, placement.brokers[broker].assignment, fsync=fsync)
            for broker in placement.replicas
            if broker != broker_id
        }
        self.end = log.end_offset
        """The end of the log as of the last append."""
        self.flushing_history = False
        """`FlushHistory` was returned in this epoch."""
        self.largest_start = log.start_offset
        """The largest LSO that a follower reported (R11)."""
        self.requested_start = 0
        """The log start offset of the last `AdvanceStart`."""
        self.proposals = Proposals()
        self.propose_after = now_ms
        """No ISR change is proposed before this time. ms."""

    def __repr__(self) -> str:
        return (
            f"<LeaderPartition broker={self.broker_id} epoch={self.leader_epoch} leo={self.log.end_offset} "
            f"hw={self.high_watermark} isr={list(self.placement.isr)} {self.proposals} {self.followers}>"
        )

    @property
    def epoch_durable(self) -> bool:
        """R5: whether the start of this epoch is on disk."""
        return self.log.durable_epoch == self.leader_epoch

    @property
    def isr_size(self) -> int:
        """The size of the committed ISR; a member whose removal is proposed does not count (R3)."""
        leaving = self.proposals.leaving
        if not leaving:
            return len(self.placement.isr)
        return sum(broker not in leaving for broker in self.placement.isr)

    @property
    def has_enough_replicas(self) -> bool:
        """R7: whether an append with acks=all is accepted, or refused at once."""
        return self.isr_size >= self.placement.min_insync_effective

    def acknowledged(self, broker: int) -> tuple[int, int]:
        """Durable end and LSO of a follower; (0, 0) for a follower that does not count (R3)."""
        follower = self.followers.get(broker)
        if follower is None or not counts(follower, self.placement.brokers.get(broker)):
            return 0, 0
        return follower.durable, follower.start_offset

    def is_current(self, broker: int, incarnation: bytes) -> bool:
        """Whether the image has this run of a replica's broker (R2)."""
        return self.placement.brokers[broker].incarnation == incarnation

    def follower_of(self, broker: int, now_ms: int) -> FollowerState:
        """The state of a follower; empty if its assignment is another one now (R16)."""
        assignment = self.placement.brokers[broker].assignment
        known = self.followers.get(broker)
        if known is not None and known.assignment == assignment:
            return known
        return FollowerState(now_ms, assignment, fsync=self.fsync)

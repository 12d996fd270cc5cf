"""One partition on this broker: appends that wait to be written or committed, and readers at its end.

A partition has a replica, which has the log and the role and calls the partition (`replication.owner`).
Neighbours: `write_rounds` decides when a partition writes, `flush_rounds` when its log is flushed;
`batching` turns single records into batches. All methods run on the event loop, except `write_round`,
which runs in the thread that writes at that time.

The steps of an append, in order: `submit` → queue → `write_round` → `written` → (flush,
followers) → `committed` → answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Protocol

import structlog

from tidelog.errors import (
    NotEnoughReplicas,
    NotLeader,
    Stopping,
    TidelogError,
    TimedOut,
)
from tidelog.model import Durability, StreamConfig
from tidelog.records import BatchLimits
from tidelog_broker.core.replication.leading import LeaderPartition
from tidelog_broker.replication.owner import Done
from tidelog_broker.replication.replica import Key, Replica
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.writing.append_queue import AppendQueue
from tidelog_broker.writing.append_requests import Acks, Append, BatchAppend, Outcome
from tidelog_broker.writing.batching import batches_of
from tidelog_broker.writing.partition_host import PartitionHost
from tidelog_broker.writing.refusals import (
    Refusals,
    deposed,
    in_doubt,
    not_leader,
    queue_full,
    too_few_replicas,
    too_many_uncommitted,
)
from tidelog_broker.writing.uncommitted import Uncommitted, answer

log = structlog.get_logger(__name__)

QUEUE_BYTES_MAX = 64 << 20
"""Bytes that wait to be written, per partition; above this limit appends are refused (retriable)."""

UNCOMMITTED_MAX = 100_000
"""Appends that wait to be committed, per partition."""


class TailReader(Protocol):
    """A reader at the end of a partition."""

    def on_commit(self, partition: Partition) -> None:
        """There are more records to read, or the reader must check the partition for another reason."""


class Partition:
    """One partition and its replica on this broker. Implements `replication.owner.ReplicaOwner`."""

    __slots__ = (
        "_doubt", "_ended", "_followers", "_host", "_in_round", "_left", "_on_role", "_queue",
        "_refuse_new", "_uncommitted", "checkpointed", "config", "dirty_since", "leaving",
        "limits", "partition", "replica", "siblings", "stopped", "stream_id", "written_count",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        stream_id: bytes,
        partition: int,
        config: StreamConfig,
        log: PartitionLog,
        host: PartitionHost[Partition],
        *,
        high_watermark: int = 0,
        siblings: int = 1,
        on_role: Callable[[Partition], None] = lambda partition: None,
    ) -> None:
        """`high_watermark`: as last saved. `siblings`: number of partitions of the stream, with this one.
        `on_role` is called when this broker begins to lead the partition or ceases to lead it."""
        self.stream_id = stream_id
        self.partition = partition
        self.siblings = siblings
        """Number of partitions of the stream, with this one."""
        self._host = host
        self._on_role = on_role
        self.replica = Replica(
            name,
            (stream_id, partition),
            log,
            host,
            self,
            fsync=config.durability is Durability.FSYNC,
            high_watermark=high_watermark,
        )
        self.stopped = False
        """The partition no longer takes appends."""
        self.leaving = False
        """Another broker is about to lead the partition: appends of clients are refused, readers stay."""
        self.written_count = 0
        """Appends that left the queue, written or refused."""
        self.dirty_since: float | None = None
        """Time of the oldest unflushed byte of a page-cache stream, on the event loop's clock."""
        self.checkpointed = (-1, -1)
        """Recovery point and LSO as last saved."""
        self._queue = AppendQueue()
        self._in_round = 0
        """Appends that are being written."""
        self._refuse_new: TidelogError | None = None
        """The answer to appends with acks=all in the round being written (R7); None: they are written."""
        self._uncommitted = Uncommitted()
        self._ended: Refusals | None = None
        """The answers after the partition was given up for good; None: it was not."""
        self._left: Refusals | None = None
        """The answers after the leadership ended, while no other role has begun; None otherwise."""
        self._doubt: Refusals | None = None
        """The answers while this broker leads but cannot know whether it still does; None otherwise."""
        self._followers: dict[TailReader, None] = {}
        self.configure(config)

    def configure(self, config: StreamConfig) -> None:
        self.config = config
        self.limits = BatchLimits(batch_bytes_max=config.batch_bytes_max)
        self.replica.set_durability(fsync=config.durability is Durability.FSYNC)

    def __repr__(self) -> str:
        replica = self.replica
        role = "leader" if replica.leads else "follower" if replica.role is not None else "idle"
        return (
            f"<Partition {self.name}/{self.partition} {role} epoch={replica.leader_epoch} "
            f"leo={self.log.end_offset} hw={self.high_watermark} lso={self.log.start_offset} "
            f"isr={list(replica.placed.isr)} queued={len(self._queue)} uncommitted={self.uncommitted}>"
        )

    @property
    def name(self) -> str:
        """Name of the stream."""
        return self.replica.name

    @property
    def full_name(self) -> str:
        """Stream name and partition number, for messages."""
        return f"{self.replica.name}/{self.partition}"

    @property
    def key(self) -> Key:
        return self.replica.key

    @property
    def log(self) -> PartitionLog:
        return self.replica.log

    @property
    def leads(self) -> bool:
        return self.replica.leads

    @property
    def leader_epoch(self) -> int:
        return self.replica.leader_epoch

    @property
    def high_watermark(self) -> int:
        """All records below this offset are committed."""
        return self.replica.high_watermark

    @property
    def removed(self) -> bool:
        """The partition was deleted, moved away from this broker, or set aside."""
        return self.replica.removed

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def queued_bytes(self) -> int:
        return self._queue.bytes

    @property
    def uncommitted(self) -> int:
        return len(self._uncommitted)

    @property
    def waiting(self) -> int:
        """Appends without an answer."""
        return len(self._queue) + self._in_round + self.uncommitted

    @property
    def taken(self) -> int:
        """The value that `written_count` has once all appends submitted until now are written."""
        return self.written_count + len(self._queue) + self._in_round

    # --- appending

    def not_leader(self) -> NotLeader:
        return not_leader(self.full_name, self.replica.placed.leader)

    def check_room(self, size: int, *, recorded: bool = False) -> None:
        """Raises the error with which an append of `size` bytes would be refused now.

        Raises `ResourceExhausted`, `Stopping`, `NotLeader`, or `Unavailable` while the leadership is in
        doubt. `recorded`: the append comes from a NATS subject, not from a client.
        """
        if self.stopped:
            raise Stopping(f"the broker no longer writes {self.name}/{self.partition}", retry_after_ms=500)
        if not self.leads:
            raise self.not_leader()
        if self.leaving and not recorded:
            raise NotLeader(
                f"this broker hands {self.name}/{self.partition} over to another one", retry_after_ms=20
            )
        if self._doubt is not None:
            raise self._doubt.unwritten
        if self._queue.bytes + size > QUEUE_BYTES_MAX and self._queue:
            raise queue_full(self.full_name, self._queue.bytes, QUEUE_BYTES_MAX)
        if self.uncommitted + len(self._queue) >= UNCOMMITTED_MAX:
            raise too_many_uncommitted(self.full_name, UNCOMMITTED_MAX)

    def submit(self, append: Append) -> None:
        """Queues an append for the next write round; raises the same errors as `check_room`."""
        self.check_room(append.bytes, recorded=append.recorded)
        self._queue.put(append)

    def take_queue(self, bytes_max: int) -> list[Append]:
        """Takes the appends for this round from the queue: about `bytes_max` bytes, at least one append."""
        appends = self._queue.take(bytes_max)
        if appends:
            self.replica.write_began()
            self._in_round += len(appends)
            self._refuse_new = self.too_few()
        return appends

    def too_few(self) -> NotEnoughReplicas | None:
        """The reason why acks=all cannot be acknowledged now (R7); None: enough replicas are in sync."""
        role = self.replica.role
        if not isinstance(role, LeaderPartition) or role.has_enough_replicas:
            return None
        needed = self.config.min_insync_effective
        return too_few_replicas(self.full_name, self.replica.isr_size, needed)

    def write_round(self, appends: list[Append], now_us: int) -> list[Outcome]:
        """Writes queued appends; raises `StorageFailure`. Single records become batches here."""
        if not appends:
            return []
        self.replica.warm = True
        if self._refuse_new is None:
            return self._write_appends(appends, now_us, None)
        # Rare: only appends with acks=all are refused, and the order is kept.
        outcomes: list[Outcome] = []
        for all_replicas, some in groupby(appends, lambda append: append.acks is Acks.ALL):
            outcomes += self._write_appends(list(some), now_us, self._refuse_new if all_replicas else None)
        return outcomes

    def _write_appends(
        self, appends: list[Append], now_us: int, refuse_new: TidelogError | None
    ) -> list[Outcome]:
        # Message ids are stored with their append time, which may be ahead of the clock (F7).
        plan = batches_of(appends, self.log.guard, self.limits, self.log.writer.time_at(now_us))
        written = self.log.writer.append(
            plan.items, leader_epoch=self.leader_epoch, now_us=now_us, refuse_new=refuse_new
        )
        return plan.outcomes(written, self.leader_epoch)

    def written(self, outcomes: Sequence[Outcome]) -> None:
        """Answers refused appends and those with acks=none; the others wait for their commit."""
        if not outcomes:
            return
        self.replica.write_ended()
        self._in_round -= len(outcomes)
        self.written_count += len(outcomes)
        ended = self._ended or self._left
        unheard = ended or self._doubt
        for append, outcome in outcomes:
            if isinstance(outcome, TidelogError) or append.acks is Acks.NONE:
                answer(append.done, outcome)
            elif unheard is not None:
                # Given up while it was being written: it is in the log, but its commit is unknown here.
                answer(append.done, unheard.written)
            else:
                self._uncommitted.add(append, outcome)
        if ended is None:
            self.replica.appended()
            # Duplicates may be committed already.
            self._answer_committed()
        else:
            self.replica.begin_when_idle()

    # --- committing

    def committed(self, high_watermark: int) -> None:
        """Answers the appends below the high watermark, and wakes the readers."""
        self._answer_committed()
        if self._followers:
            self.wake_followers()

    def flushed(self) -> None:
        """More of the log or of its epoch history is durable."""
        self.replica.flushed()
        if self._uncommitted.waits_for_disk:
            self._answer_committed()

    def _answer_committed(self) -> None:
        here = self.log.durable_offset if self.replica.fsync else self.log.end_offset
        self._uncommitted.answer_below(self.high_watermark, here)

    def expire(self, now: float) -> None:
        """Answers appends whose deadline passed.

        Written appends may still be committed. Appends in the queue are removed from it, and
        later appends of the same sender are refused.
        """
        self._uncommitted.expire(
            now, TimedOut("the append was not committed in time; it may be committed later")
        )
        self._refuse(self._queue.expire(now), TimedOut("the append was not written in time"))

    def _refuse(self, appends: Iterable[Append], error: TidelogError) -> None:
        """Answers appends that left the queue unwritten."""
        for append in appends:
            self.written_count += 1
            if isinstance(append, BatchAppend) and append.item.sender is not None:
                append.item.sender.failed = True
            answer(append.done, error)

    def give_up(self, unwritten: TidelogError, uncommitted: TidelogError) -> None:
        """Answers all waiting appends, those in the log with `uncommitted`; takes no more appends."""
        self.stopped = True
        # The first reason is kept: a broker that failed then also stops.
        self._ended = self._ended or Refusals(unwritten, uncommitted)
        self._answer_waiting(Refusals(unwritten, uncommitted))
        self.wake_followers()

    def _answer_waiting(self, ended: Refusals) -> None:
        self._refuse(self._queue.give_up(), ended.unwritten)
        self._uncommitted.give_up(ended.written)

    # --- called by the replica

    def write(self, work: Callable[[], object], done: Done, size: int) -> None:
        self._host.write(self, work, done, size)

    def flush(self) -> None:
        self._host.flush(self)

    def advance_start(self, offset: int) -> None:
        self._host.advance_start(self, offset)

    def quarantine(self, reason: str) -> None:
        self._host.quarantine(self, reason)

    def doubt_may_have_changed(self) -> None:
        """A leader that may have been replaced answers its clients, so that they look for the new leader."""
        if not self.replica.in_doubt:
            self._doubt = None
        elif self._doubt is None:
            self._doubt = in_doubt(self.full_name)
            self._answer_waiting(self._doubt)

    def role_began(self) -> None:
        self._left = self._doubt = None
        if self.leads:
            self._on_role(self)

    def role_ended(self, *, led: bool) -> None:
        if not led:
            return
        self.leaving = False
        self._left = deposed(self.full_name, self.not_leader())
        self._answer_waiting(self._left)
        self._on_role(self)
        self.wake_followers()

    # --- reading

    def wake_followers(self) -> None:
        """Wakes all readers at the end of the partition."""
        for follower in list(self._followers):
            follower.on_commit(self)

    def follow(self, follower: TailReader) -> None:
        self._followers[follower] = None

    def unfollow(self, follower: TailReader) -> None:
        self._followers.pop(follower, None)

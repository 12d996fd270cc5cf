"""One partition on this broker: its log, what waits to be written, what waits to be committed.

Neighbours: `rounds` decides when a partition writes and when its log is flushed;
`coalescing` turns single records into batches; `storage.log` holds the data. All
methods run on the event loop, except `write_round`, which runs in the one thread that
writes at that time.

The order of things for an append: `submit` → queue → `write_round` → `written` →
(flush) → `flushed` → high watermark → answer.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from tidelog.errors import ResourceExhausted, Stopping, TidelogError, TimedOut
from tidelog.model import Durability, StreamConfig
from tidelog.records import BatchLimits
from tidelog_broker.core.replication.high_watermark import high_watermark
from tidelog_broker.runtime.appends import Acks, Append, Outcome, SinglesAppended
from tidelog_broker.runtime.coalescing import coalesce
from tidelog_broker.storage.log import Appended, PartitionLog

QUEUE_BYTES_MAX = 64 << 20
"""Bytes that wait to be written, per partition; over it appends are refused (retriable)."""

UNCOMMITTED_MAX = 100_000
"""Appends that wait to be committed, per partition."""


class Follower(Protocol):
    """Somebody who wants to know when there is more to read."""

    def on_commit(self, partition: Partition) -> None: ...


class Partition:
    """See the module."""

    __slots__ = (
        "_followers",
        "_queue",
        "_uncommitted",
        "checkpointed",
        "config",
        "dirty_since",
        "high_watermark",
        "isr_size",
        "leader_epoch",
        "limits",
        "log",
        "name",
        "partition",
        "queued_bytes",
        "replicas",
        "stopped",
        "stream_id",
    )

    def __init__(
        self,
        name: str,
        stream_id: bytes,
        partition: int,
        config: StreamConfig,
        log: PartitionLog,
        leader_epoch: int,
    ) -> None:
        self.name = name
        self.stream_id = stream_id
        self.partition = partition
        self.log = log
        self.leader_epoch = leader_epoch
        self.high_watermark = log.durable_offset
        """Everything below is committed."""
        self.isr_size = 1
        self.queued_bytes = 0
        self.stopped = False
        self.dirty_since: float | None = None
        """When a page-cache stream got its oldest unflushed byte; event loop's clock."""
        self.checkpointed = (-1, -1)
        """Recovery point and LSO as last saved."""
        self._queue: deque[Append] = deque()
        self._uncommitted: deque[tuple[int, Append, Appended | SinglesAppended]] = deque()
        self._followers: dict[Follower, None] = {}
        self.configure(config)

    def configure(self, config: StreamConfig) -> None:
        self.config = config
        self.limits = BatchLimits(batch_bytes_max=config.batch_bytes_max)

    def __repr__(self) -> str:
        return (
            f"<Partition {self.name}/{self.partition} leader epoch={self.leader_epoch} "
            f"leo={self.log.end_offset} hw={self.high_watermark} lso={self.log.start_offset} "
            f"queued={len(self._queue)} uncommitted={len(self._uncommitted)}>"
        )

    @property
    def fsync(self) -> bool:
        return self.config.durability is Durability.FSYNC

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def uncommitted(self) -> int:
        return len(self._uncommitted)

    # --- appending

    def submit(self, append: Append) -> None:
        """Queues an append for the next write round; raises `ResourceExhausted` or `Stopping`."""
        if self.stopped:
            raise Stopping(f"the broker no longer writes {self.name}/{self.partition}", retry_after_ms=500)
        if self.queued_bytes + append.bytes > QUEUE_BYTES_MAX and self._queue:
            raise ResourceExhausted(
                f"{self.queued_bytes} bytes wait to be written to {self.name}/{self.partition}; "
                f"{QUEUE_BYTES_MAX} may (queue_bytes_max)",
                retry_after_ms=100,
            )
        if len(self._uncommitted) >= UNCOMMITTED_MAX:
            raise ResourceExhausted(
                f"{UNCOMMITTED_MAX} appends wait to be committed (uncommitted_max)", retry_after_ms=100
            )
        self._queue.append(append)
        self.queued_bytes += append.bytes

    def take_queue(self) -> list[Append]:
        """What is to be written in this round."""
        appends = list(self._queue)
        self._queue.clear()
        self.queued_bytes = 0
        return appends

    def write_round(self, appends: list[Append], now_us: int) -> list[Outcome]:
        """Writes queued appends; raises `StorageFailure`. Single records become batches here."""
        guard = self.log.guard
        plan = coalesce(appends, guard, self.limits, now_us)
        written = self.log.append(plan.items, leader_epoch=self.leader_epoch, now_us=now_us)
        return plan.outcomes(written, self.leader_epoch)

    def written(self, outcomes: list[Outcome]) -> None:
        """Answers what was refused; the rest waits for the high watermark."""
        for append, outcome in outcomes:
            if isinstance(outcome, TidelogError) or append.acks is Acks.NONE:
                append.done(outcome)  # type: ignore[arg-type]
            else:
                end = outcome.last_offset + 1 if isinstance(outcome, Appended) else outcome.end
                self._uncommitted.append((end, append, outcome))
        self.advance()

    # --- committing

    def advance(self) -> None:
        """Moves the high watermark as far as R3 allows, answers what it passes, wakes readers."""
        durable = self.log.durable_offset if self.fsync else self.log.end_offset
        before = self.high_watermark
        self.high_watermark = high_watermark(
            before,
            leader_durable=durable,
            maximal_isr_durable=(),
            committed_isr_size=self.isr_size,
            min_insync_effective=self.config.min_insync_effective,
        )
        reached = self.high_watermark
        waiting = self._uncommitted
        while waiting and waiting[0][0] <= reached:
            _, append, outcome = waiting.popleft()
            append.done(outcome)  # type: ignore[arg-type]
        if reached != before and self._followers:
            for follower in list(self._followers):
                follower.on_commit(self)

    def expire(self, now: float) -> None:
        """Answers appends whose deadline passed: they are in the log and may yet be committed."""
        if not any(append.deadline <= now for _, append, _ in self._uncommitted):
            return
        kept: deque[tuple[int, Append, Appended | SinglesAppended]] = deque()
        for entry in self._uncommitted:
            if entry[1].deadline <= now:
                entry[1].done(TimedOut("the append was not committed in time; it may be later"))
            else:
                kept.append(entry)
        self._uncommitted = kept

    def give_up(self, unwritten: TidelogError, uncommitted: TidelogError) -> None:
        """Answers everything that waits, by whether it is in the log already; takes nothing more."""
        self.stopped = True
        for append in self.take_queue():
            append.done(unwritten)
        waiting, self._uncommitted = self._uncommitted, deque()
        for _, append, _ in waiting:
            append.done(uncommitted)
        for follower in list(self._followers):
            follower.on_commit(self)

    # --- reading

    def follow(self, follower: Follower) -> None:
        self._followers[follower] = None

    def unfollow(self, follower: Follower) -> None:
        self._followers.pop(follower, None)

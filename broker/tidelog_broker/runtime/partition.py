"""One partition on this broker: its log, what waits to be written, what waits to be committed.

Neighbours: `rounds` decides when a partition writes and when its log is flushed;
`coalescing` turns single records into batches; `storage.log` holds the data. All
methods run on the event loop, except `write_round`, which runs in the one thread that
writes at that time.

The order of things for an append: `submit` → queue → `write_round` → `written` →
(flush) → `advance` → high watermark → answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import structlog

from tidelog.errors import ResourceExhausted, Stopping, TidelogError, TimedOut
from tidelog.model import Durability, StreamConfig
from tidelog.records import BatchLimits
from tidelog_broker.core.replication.commit_queue import CommitQueue
from tidelog_broker.core.replication.high_watermark import high_watermark
from tidelog_broker.runtime.appends import Acks, Append, BatchAppend, Outcome, SinglesAppended
from tidelog_broker.runtime.coalescing import coalesce
from tidelog_broker.storage.log import Appended, PartitionLog

log = structlog.get_logger(__name__)

QUEUE_BYTES_MAX = 64 << 20
"""Bytes that wait to be written, per partition; over it appends are refused (retriable)."""

UNCOMMITTED_MAX = 100_000
"""Appends that wait to be committed, per partition."""


class _Waiting(NamedTuple):
    """A written append that waits for its commit; its bytes are let go."""

    done: Callable[[Any], None]
    outcome: Appended | SinglesAppended


class Follower(Protocol):
    """Somebody who wants to know when there is more to read."""

    def on_commit(self, partition: Partition) -> None: ...


class Partition:
    """See the module."""

    __slots__ = (
        "_ended",
        "_followers",
        "_in_round",
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
        "removed",
        "stopped",
        "stream_id",
        "warm",
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
        """Takes no appends any more."""
        self.removed = False
        """Its stream was deleted, and its files go."""
        self.warm = False
        """It has written since the start, so the append guard is in memory."""
        self.dirty_since: float | None = None
        """When a page-cache stream got its oldest unflushed byte; event loop's clock."""
        self.checkpointed = (-1, -1)
        """Recovery point and LSO as last saved."""
        self._queue: deque[Append] = deque()
        self._in_round = 0
        """Appends that are being written."""
        self._uncommitted: CommitQueue[_Waiting] = CommitQueue()
        self._ended: tuple[TidelogError, TidelogError] | None = None
        """What was given up: the answers to what was not written, and to what was."""
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

    @property
    def waiting(self) -> int:
        """Appends without an answer."""
        return len(self._queue) + self._in_round + len(self._uncommitted)

    # --- appending

    def check_room(self, size: int) -> None:
        """Raises `ResourceExhausted` or `Stopping` if an append of `size` bytes cannot be queued now."""
        if self.stopped:
            raise Stopping(f"the broker no longer writes {self.name}/{self.partition}", retry_after_ms=500)
        if self.queued_bytes + size > QUEUE_BYTES_MAX and self._queue:
            raise ResourceExhausted(
                f"{self.queued_bytes} bytes wait to be written to {self.name}/{self.partition}; "
                f"{QUEUE_BYTES_MAX} may (queue_bytes_max)",
                retry_after_ms=100,
            )
        if len(self._uncommitted) + len(self._queue) >= UNCOMMITTED_MAX:
            raise ResourceExhausted(
                f"{UNCOMMITTED_MAX} appends wait to be committed (uncommitted_max)", retry_after_ms=100
            )

    def submit(self, append: Append) -> None:
        """Queues an append for the next write round; raises what `check_room` raises."""
        self.check_room(append.bytes)
        self._queue.append(append)
        self.queued_bytes += append.bytes

    def take_queue(self, bytes_max: int) -> list[Append]:
        """What is to be written in this round: up to about `bytes_max` bytes, at least one append."""
        queue = self._queue
        appends: list[Append] = []
        taken = 0
        while queue and taken < bytes_max:
            append = queue.popleft()
            appends.append(append)
            taken += append.bytes
        self.queued_bytes -= taken
        self._in_round += len(appends)
        return appends

    def write_round(self, appends: list[Append], now_us: int) -> list[Outcome]:
        """Writes queued appends; raises `StorageFailure`. Single records become batches here."""
        guard = self.log.guard
        self.warm = True
        plan = coalesce(appends, guard, self.limits, now_us)
        written = self.log.append(plan.items, leader_epoch=self.leader_epoch, now_us=now_us)
        return plan.outcomes(written, self.leader_epoch)

    def written(self, outcomes: list[Outcome]) -> None:
        """Answers what was refused; the rest waits for the high watermark."""
        self._in_round -= len(outcomes)
        for append, outcome in outcomes:
            if isinstance(outcome, TidelogError) or append.acks is Acks.NONE:
                _answer(append.done, outcome)
            elif self._ended is not None:
                # Given up while it was being written: it is in the log, and nobody commits it any more.
                _answer(append.done, self._ended[1])
            else:
                end = outcome.last_offset + 1 if isinstance(outcome, Appended) else outcome.end
                self._uncommitted.add(end, _Waiting(append.done, outcome), append.deadline)
        if self._ended is None:
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
        for entry in self._uncommitted.advance(reached):
            _answer(entry.done, entry.outcome)
        if reached != before and self._followers:
            self.wake_followers()

    def expire(self, now: float) -> None:
        """Answers appends whose deadline passed.

        Those that were written may yet be committed; those still in the queue are taken
        out of it, and what their sender sends behind them is refused.
        """
        for entry in self._uncommitted.expire(now):
            _answer(entry.done, TimedOut("the append was not committed in time; it may be later"))
        if any(append.deadline <= now for append in self._queue):
            overdue = [append for append in self._queue if append.deadline <= now]
            self._queue = deque(append for append in self._queue if append.deadline > now)
            self.queued_bytes = sum(append.bytes for append in self._queue)
            for append in overdue:
                if isinstance(append, BatchAppend) and append.item.sender is not None:
                    append.item.sender.failed = True
                _answer(append.done, TimedOut("the append was not written in time"))

    def give_up(self, unwritten: TidelogError, uncommitted: TidelogError) -> None:
        """Answers everything that waits, by whether it is in the log already; takes nothing more."""
        self.stopped = True
        # The first reason stands: a broker that failed goes on to stop.
        self._ended = self._ended or (unwritten, uncommitted)
        queue, self._queue, self.queued_bytes = self._queue, deque(), 0
        for append in queue:
            _answer(append.done, unwritten)
        for entry in self._uncommitted.give_up():
            _answer(entry.done, uncommitted)
        self.wake_followers()

    def wake_followers(self) -> None:
        """Has everybody who reads look again."""
        for follower in list(self._followers):
            follower.on_commit(self)

    # --- reading

    def follow(self, follower: Follower) -> None:
        self._followers[follower] = None

    def unfollow(self, follower: Follower) -> None:
        self._followers.pop(follower, None)


def _answer(done: Callable[[Any], None], outcome: Appended | SinglesAppended | TidelogError) -> None:
    """Tells one who waits. A bug of theirs must not cost the others their answers."""
    try:
        done(outcome)
    except Exception:
        log.exception("an answer could not be given")

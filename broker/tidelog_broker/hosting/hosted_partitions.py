"""The partitions that the image places on this broker: served partitions and lost partitions.

Neighbours: `partition` is a served partition; `image_follower` opens, creates, changes and
removes partitions as the image says; `broker` gives doors access to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Protocol

import structlog

from tidelog.errors import (
    DataCorrupt,
    NotLeader,
    PartitionNotFound,
    StreamNotFound,
    TidelogError,
    TimedOut,
    Unavailable,
)
from tidelog.model import Durability, StreamConfig, id_text
from tidelog_broker.core.metadata.commands import ReplicaName
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage, StreamImage
from tidelog_broker.replication.replica import Replica
from tidelog_broker.storage.directory.opening import Wanted
from tidelog_broker.storage.guard.append_guard import GuardLimits
from tidelog_broker.storage.log.partition_log import PartitionLog
from tidelog_broker.storage.log.write_batch import LogConfig
from tidelog_broker.writing.partition import Partition
from tidelog_broker.writing.partition_host import PartitionHost

log = structlog.get_logger(__name__)


HALTED_RETRY_MS = 1_000
"""Delay before a client should try again: another broker may lead the partition by then."""


class PartitionListener(Protocol):
    """Follows which partitions this broker leads (the NATS recorder does, N5)."""

    def partition_added(self, partition: Partition) -> None:
        """This broker begins to lead the partition."""

    def partition_changed(self, partition: Partition) -> None:
        """The settings of a partition that this broker leads changed."""

    def partition_removed(self, partition: Partition) -> None:
        """This broker no longer leads the partition."""

    async def settled(self) -> None:
        """Waits until all earlier calls have taken effect."""


class HostedPartitions:
    """The partitions of one broker in the image, by (stream id, partition). Runs on one event loop."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self.served: dict[tuple[bytes, int], Partition] = {}
        self.replicas: dict[tuple[bytes, int], Replica] = {}
        """The replicas of the served partitions."""
        self.lost: dict[tuple[bytes, int], str] = {}
        """Partitions of this broker without a usable log, and the reasons."""
        self._lost_of: dict[tuple[bytes, int], int] = {}
        """The assignments of the lost replicas (R16)."""
        self.uncreated: set[tuple[bytes, int]] = set()
        """Lost partitions for which no folder could be created yet; the broker tries again at intervals."""
        self.kept: set[tuple[bytes, int]] = set()
        """Lost partitions that are not created again without a command: their folder belongs to another
        partition (2d), their log contradicted the leader's log (2c), or they failed unexpectedly."""
        self.halted: set[tuple[bytes, int]] = set()
        """Lost partitions that failed unexpectedly in this run. Their files stay in place, and the next start
        opens them again."""
        self.strays: list[str] = []
        """Folders that belong to no partition of this broker; they are kept (2d)."""
        self._listeners: list[PartitionListener] = []
        self._led: dict[Partition, None] = {}
        """The partitions that were reported to listeners."""

    def __repr__(self) -> str:
        return f"<HostedPartitions served={len(self.served)} lost={len(self.lost)}>"

    def listen(self, listener: PartitionListener) -> None:
        """Reports every partition that this broker leads to `listener`, now and in the future."""
        self._listeners.append(listener)
        for partition in self._led:
            listener.partition_added(partition)

    def _role_changed(self, partition: Partition) -> None:
        if partition.leads == (partition in self._led):
            return
        if partition.leads:
            self._led[partition] = None
        else:
            del self._led[partition]
        for listener in self._listeners:
            if partition.leads:
                listener.partition_added(partition)
            else:
                listener.partition_removed(partition)

    async def listeners_settled(self) -> None:
        """Waits until all reports to listeners have taken effect."""
        for listener in self._listeners:
            await listener.settled()

    def damaged(self, at_most: int) -> tuple[ReplicaName, ...]:
        """Replicas with a range that cannot be read (2c): the first `at_most` of them."""
        found = (ReplicaName(*key) for key, one in self.served.items() if one.log.damaged)
        return tuple(islice(found, at_most))

    # --- as the image says

    def add(
        self,
        image: ClusterImage,
        stream: StreamImage,
        number: int,
        one: PartitionLog,
        host: PartitionHost[Partition],
        high_watermark: int,
    ) -> None:
        """Serves a partition from now on, even if it was lost; the image decides its role."""
        key = (stream.id, number)
        self.uncreated.discard(key)
        self.lost.pop(key, None)
        self._lost_of.pop(key, None)
        partition = Partition(
            stream.name,
            stream.id,
            number,
            stream.config,
            one,
            host,
            high_watermark=high_watermark,
            siblings=len(stream.partitions),
            on_role=self._role_changed,
        )
        self.served[key], self.replicas[key] = partition, partition.replica
        partition.replica.imaged(image, stream)

    def configure(self, image: ClusterImage, partition: Partition, stream: StreamImage) -> None:
        """Applies the stream's changes to a partition."""
        changed = partition.config != stream.config
        if changed:
            partition.configure(stream.config)
            partition.log.configure(log_config(stream.config))
        if partition.siblings != len(stream.partitions):
            partition.siblings = len(stream.partitions)
            changed = True
        if changed and partition in self._led:
            for listener in self._listeners:
                listener.partition_changed(partition)
        partition.replica.imaged(image, stream)

    def remove(self, stream: StreamImage) -> list[Partition]:
        """Ends the service of a deleted stream, and answers all waiting requests.

        Returns the partitions that were served.
        """
        gone = [partition for key, partition in self.served.items() if key[0] == stream.id]
        answer = StreamNotFound(f"stream {stream.name} was deleted")
        for partition in gone:
            self._take_out(partition, answer)
        for key in [key for key in self.lost if key[0] == stream.id]:
            self._forget_lost(key)
        return gone

    def lose(self, key: tuple[bytes, int], assignment: int, reason: str, *, kept: bool = False) -> None:
        """A partition has no usable log. `kept`: it is created again only on command."""
        self.lost[key], self._lost_of[key] = reason, assignment
        if kept:
            self.kept.add(key)

    def lost_assignment(self, key: tuple[bytes, int]) -> int:
        """The assignment of a lost replica (R16)."""
        return self._lost_of[key]

    def leave(self, partition: Partition) -> None:
        """Ends the service of a replica that the image no longer places on this broker."""
        name = f"{partition.name}/{partition.partition}"
        written = TimedOut(f"this broker no longer has a replica of {name}; the records may be in the log")
        self._take_out(partition, partition.not_leader(), written)

    def forget_lost_elsewhere(self, stream: StreamImage) -> None:
        """Forgets lost replicas that the image no longer places on this broker.

        If the image places the replica here again, it is created again. One image may show both changes:
        then the assignment here is not the lost one. So a reassignment is the command by which a log that
        was set aside is replaced (2c). The old folder stays.
        """
        for key in [key for key in self.lost if key[0] == stream.id]:
            placed = stream.partitions[key[1]]
            if (
                self._broker_id not in placed.replicas
                or placed.assignment_of(self._broker_id) != self._lost_of[key]
            ):
                self._forget_lost(key)

    def _forget_lost(self, key: tuple[bytes, int]) -> None:
        del self.lost[key], self._lost_of[key]
        for some in (self.uncreated, self.kept, self.halted):
            some.discard(key)

    def halt(self, partition: Partition, reason: str) -> None:
        """Ends the service of a partition in this run after an unexpected exception."""
        key, name = partition.key, f"{partition.name}/{partition.partition}"
        # The same error could damage a new log too, and there is no sign that this log is bad.
        self.lose(key, partition.log.assignment, reason, kept=True)
        self.halted.add(key)
        self._take_out(
            partition,
            Unavailable(f"{name} failed on this broker: {reason}", retry_after_ms=HALTED_RETRY_MS),
            TimedOut(
                f"{name} failed on this broker before it knew of the commit; the records may be in the log"
            ),
        )

    def set_aside(self, partition: Partition, reason: str) -> None:
        """Ends the service of a replica with a log that contradicts the leader's log (R1, 2c)."""
        self.lose(partition.key, partition.log.assignment, reason, kept=True)
        answer = DataCorrupt(f"{partition.name}/{partition.partition} cannot be served: {reason}")
        self._take_out(partition, answer)

    def _take_out(
        self, partition: Partition, unwritten: TidelogError, written: TidelogError | None = None
    ) -> None:
        partition.replica.removed = True
        del self.served[partition.key], self.replicas[partition.key]
        partition.give_up(unwritten, written or unwritten)
        partition.replica.end_role()

    def is_missing(self, want: Wanted, placed: PartitionImage) -> bool:
        """Whether the partition must be created.

        A lost log is replaced by an empty log only if the cluster does not count on it: the image
        has taken the replica out of the ISR, and other replicas have the data (2c).
        """
        key = (want.stream_id, want.partition)
        if key in self.served or key in self.kept:
            return False
        if key not in self.lost or key in self.uncreated:
            return True
        members = (*placed.isr, *placed.eligible)
        return bool(members) and self._broker_id not in members

    def not_made(self, want: Wanted, error: OSError) -> None:
        """A partition could not be created, probably because the disk is full; the broker tries again later.

        The stream exists all the same.
        """
        key = (want.stream_id, want.partition)
        self.lose(key, want.assignment, f"its folder could not be made: {error}")
        self.uncreated.add(key)
        log.warning(
            "a partition could not be created; the broker tries again",
            stream=want.name, partition=want.partition, error=str(error),
        )  # fmt: skip

    # --- refusals of requests

    def refusal(self, stream_id: bytes, partition: int, image: ClusterImage) -> TidelogError:
        """Why this broker does not serve a partition."""
        stream = image.streams.get(stream_id)
        if stream is None:
            text = id_text(stream_id) if len(stream_id) == 16 else f"of {len(stream_id)} bytes"
            return StreamNotFound(
                f"there is no stream with id {text}; it was deleted, or belongs to another cluster: resolve "
                f"its name again"
            )
        if partition >= len(stream.partitions):
            return PartitionNotFound.numbered(partition, stream=stream.name, count=len(stream.partitions))
        key, leader = (stream_id, partition), stream.partitions[partition].leader
        if key in self.halted and leader in (None, self._broker_id):
            return Unavailable(
                f"{stream.name}/{partition} failed on this broker: {self.lost[key]}",
                retry_after_ms=HALTED_RETRY_MS,
            )
        reason = self.lost.get(key)
        if reason is not None and key not in self.halted:
            if key in self.uncreated:
                return Unavailable(
                    f"{stream.name}/{partition} does not exist on this broker yet: {reason}",
                    retry_after_ms=1000,
                )
            return DataCorrupt(f"{stream.name}/{partition} cannot be served: {reason}")
        facts: dict[str, Any] = {} if leader is None else {"leader": leader}
        return NotLeader(f"this broker does not lead {stream.name}/{partition}", retry_after_ms=50, **facts)


def placed_on(broker_id: int, stream: StreamImage) -> Iterator[Wanted]:
    """The partitions of a stream of which a broker has a replica."""
    for number, partition in enumerate(stream.partitions):
        if broker_id in partition.replicas:
            yield Wanted(
                stream.name,
                stream.id,
                number,
                log_config(stream.config),
                partition.assignment_of(broker_id),
                stream.config.durability is Durability.PAGE_CACHE,
            )


def log_config(config: StreamConfig) -> LogConfig:
    """The settings of a stream's logs."""
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_age_us=config.segment_age_ms * 1000,
        guard=GuardLimits(
            dedupe_window_us=config.dedupe_window_ms * 1000, dedupe_count_max=config.dedupe_count_max
        ),
    )

"""The partitions that the image places on this broker: those it serves, and those it lost.

Neighbours: `partition` is one that is served; `image_follower` opens, makes, changes and
removes them as the image says; `broker` hands them to the doors.
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
"""Another broker may lead it by then."""


class PartitionListener(Protocol):
    """Somebody who follows which partitions this broker leads (the NATS recorder, N5)."""

    def partition_added(self, partition: Partition) -> None:
        """It is led here from now on."""

    def partition_changed(self, partition: Partition) -> None:
        """What is led here has other settings."""

    def partition_removed(self, partition: Partition) -> None:
        """It is led here no more."""

    async def settled(self) -> None:
        """Waits until what was said by the calls before has taken effect."""


class HostedPartitions:
    """The partitions that the image places on one broker. Of one event loop. By (stream id, partition)."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self.served: dict[tuple[bytes, int], Partition] = {}
        self.replicas: dict[tuple[bytes, int], Replica] = {}
        """Of the partitions that are served."""
        self.lost: dict[tuple[bytes, int], str] = {}
        """Partitions of ours without a usable log, and why."""
        self._lost_of: dict[tuple[bytes, int], int] = {}
        """Which assignments of the lost these were (R16)."""
        self.uncreated: set[tuple[bytes, int]] = set()
        """Those of the lost whose folder could not be made yet; tried again now and then."""
        self.kept: set[tuple[bytes, int]] = set()
        """Those of the lost that are never made again by themselves: their folder is another
        partition's (2d), or their log contradicted its leader's (2c)."""
        self.halted: set[tuple[bytes, int]] = set()
        """Those of the lost that failed unexpectedly in this run. Their files are where they were, and the
        next start opens them again."""
        self.strays: list[str] = []
        """Folders that belong to no partition of this broker; kept (2d)."""
        self._listeners: list[PartitionListener] = []
        self._led: dict[Partition, None] = {}
        """Those of which listeners were told."""

    def __repr__(self) -> str:
        return f"<HostedPartitions served={len(self.served)} lost={len(self.lost)}>"

    def listen(self, listener: PartitionListener) -> None:
        """Tells `listener` of every partition led here, now and from now on."""
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
        """Waits until what listeners were told has taken effect."""
        for listener in self._listeners:
            await listener.settled()

    def damaged(self, at_most: int) -> tuple[ReplicaName, ...]:
        """Replicas with a range that cannot be read (2c); the first of them."""
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
        """Serves a partition from now on, whatever became of it before; it leads or follows."""
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
        """Has a partition take what changed in its stream."""
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
        """Serves a deleted stream no more: whoever waits is told; those that were served."""
        gone = [partition for key, partition in self.served.items() if key[0] == stream.id]
        answer = StreamNotFound(f"stream {stream.name} was deleted")
        for partition in gone:
            self._take_out(partition, answer)
        for key in [key for key in self.lost if key[0] == stream.id]:
            self._forget_lost(key)
        return gone

    def lose(self, key: tuple[bytes, int], assignment: int, reason: str, *, kept: bool = False) -> None:
        """A partition has no usable log; `kept`: it is made again only on command."""
        self.lost[key], self._lost_of[key] = reason, assignment
        if kept:
            self.kept.add(key)

    def lost_assignment(self, key: tuple[bytes, int]) -> int:
        """Of a replica that is lost (R16)."""
        return self._lost_of[key]

    def leave(self, partition: Partition) -> None:
        """Serves a replica no more that the image has taken away from this broker."""
        name = f"{partition.name}/{partition.partition}"
        written = TimedOut(f"this broker has no replica of {name} any more; the records may be in the log")
        self._take_out(partition, partition.not_leader(), written)

    def forget_lost_elsewhere(self, stream: StreamImage) -> None:
        """What is lost and was taken away from this broker is lost no more; given again, it is made again.

        Also if both came in one image: then another assignment is placed here than the one that is lost.
        So a reassignment is the command by which a log that was set aside is replaced (2c). Its
        folder stays.
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
        """Serves a partition no more in this run: an exception that nobody foresaw came out of it."""
        key, name = partition.key, f"{partition.name}/{partition.partition}"
        # What failed here would write another log in its place, too; and nothing says that this one is bad.
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
        """Serves a replica no more whose log contradicts its leader's (R1, 2c)."""
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
        """Whether it is to be made.

        A log that was there and is lost is not replaced by an empty one, unless nobody
        counts on it: the image has taken it out of the ISR, and others have the data (2c).
        """
        key = (want.stream_id, want.partition)
        if key in self.served or key in self.kept:
            return False
        if key not in self.lost or key in self.uncreated:
            return True
        members = (*placed.isr, *placed.eligible)
        return bool(members) and self._broker_id not in members

    def not_made(self, want: Wanted, error: OSError) -> None:
        """A full disk, most likely. The stream is there all the same, and its partition comes later."""
        key = (want.stream_id, want.partition)
        self.lose(key, want.assignment, f"its folder could not be made: {error}")
        self.uncreated.add(key)
        log.warning(
            "a partition could not be created; the broker tries again",
            stream=want.name, partition=want.partition, error=str(error),
        )  # fmt: skip

    # --- for who asks in vain

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
            return PartitionNotFound(
                f"stream {stream.name} has partitions 0–{len(stream.partitions) - 1}, not {partition}"
            )
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
                    f"{stream.name}/{partition} is not there yet: {reason}", retry_after_ms=1000
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
    """What the logs of a stream need of its configuration."""
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_age_us=config.segment_age_ms * 1000,
        guard=GuardLimits(
            dedupe_window_us=config.dedupe_window_ms * 1000, dedupe_count_max=config.dedupe_count_max
        ),
    )

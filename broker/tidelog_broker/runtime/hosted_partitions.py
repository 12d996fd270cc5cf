"""The partitions that the image places on this broker: those it serves, and those it lost.

Neighbours: `partition` is one that is served; `image_follower` opens, makes, changes and
removes them as the image says; `broker` hands them to the doors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import structlog

from tidelog.errors import (
    DataCorrupt,
    NotLeader,
    PartitionNotFound,
    StreamNotFound,
    TidelogError,
    Unavailable,
)
from tidelog.model import StreamConfig, id_text
from tidelog_broker.core.metadata.image import ClusterImage, StreamImage
from tidelog_broker.runtime.partition import Partition
from tidelog_broker.storage.append_guard import GuardLimits
from tidelog_broker.storage.log import LogConfig, PartitionLog
from tidelog_broker.storage.store import Wanted

log = structlog.get_logger(__name__)


class PartitionListener(Protocol):
    """Somebody who follows which partitions this broker leads (the NATS recorder)."""

    def partition_added(self, partition: Partition) -> None: ...

    def partition_changed(self, partition: Partition) -> None: ...

    def partition_removed(self, partition: Partition) -> None: ...

    async def settled(self) -> None:
        """Waits until what was said by the calls before has taken effect."""


class HostedPartitions:
    """See the module. By (stream id, partition)."""

    def __init__(self) -> None:
        self.served: dict[tuple[bytes, int], Partition] = {}
        self.lost: dict[tuple[bytes, int], str] = {}
        """Partitions of ours without a usable log, and why."""
        self.uncreated: set[tuple[bytes, int]] = set()
        """Those of the lost whose folder could not be made yet; tried again now and then."""
        self.strays: list[str] = []
        """Folders that belong to no partition of this broker; kept (2d)."""
        self._listeners: list[PartitionListener] = []

    def __repr__(self) -> str:
        return f"<HostedPartitions served={len(self.served)} lost={len(self.lost)}>"

    def listen(self, listener: PartitionListener) -> None:
        """Tells `listener` of every partition served here, now and from now on."""
        self._listeners.append(listener)
        for partition in self.served.values():
            listener.partition_added(partition)

    async def listeners_settled(self) -> None:
        """Waits until what listeners were told has taken effect."""
        for listener in self._listeners:
            await listener.settled()

    # --- as the image says

    def add(self, stream: StreamImage, number: int, one: PartitionLog) -> None:
        """Serves a partition from now on, whatever became of it before."""
        key = (stream.id, number)
        self.uncreated.discard(key)
        self.lost.pop(key, None)
        placed = stream.partitions[number]
        partition = Partition(stream.name, stream.id, number, stream.config, one, placed.leader_epoch)
        partition.isr_size = len(placed.isr)
        self.served[key] = partition
        for listener in self._listeners:
            listener.partition_added(partition)

    def configure(self, partition: Partition, stream: StreamImage) -> None:
        """Has a partition take what changed in its stream."""
        placed = stream.partitions[partition.partition]
        partition.leader_epoch = placed.leader_epoch
        partition.isr_size = len(placed.isr)
        if partition.config != stream.config:
            partition.configure(stream.config)
            partition.log.configure(log_config(stream.config))
            for listener in self._listeners:
                listener.partition_changed(partition)

    def remove(self, stream: StreamImage) -> list[Partition]:
        """Serves a deleted stream no more: whoever waits is told; those that were served."""
        gone = [partition for key, partition in self.served.items() if key[0] == stream.id]
        answer = StreamNotFound(f"stream {stream.name} was deleted")
        for partition in gone:
            for listener in self._listeners:
                listener.partition_removed(partition)
            partition.removed = True
            del self.served[partition.stream_id, partition.partition]
            partition.give_up(answer, answer)
        for key in [key for key in self.lost if key[0] == stream.id]:
            del self.lost[key]
            self.uncreated.discard(key)
        return gone

    def is_missing(self, want: Wanted) -> bool:
        """Whether it is to be made: a log that was there and is lost must not be replaced by an empty one."""
        key = (want.stream_id, want.partition)
        return key not in self.served and (key not in self.lost or key in self.uncreated)

    def not_made(self, want: Wanted, error: OSError) -> None:
        """A full disk, most likely. The stream is there all the same, and its partition comes later."""
        key = (want.stream_id, want.partition)
        self.lost[key] = f"its folder could not be made: {error}"
        self.uncreated.add(key)
        log.warning(
            "a partition could not be made; it is tried again",
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
        reason = self.lost.get((stream_id, partition))
        if reason is not None:
            if (stream_id, partition) in self.uncreated:
                return Unavailable(
                    f"{stream.name}/{partition} is not there yet: {reason}", retry_after_ms=1000
                )
            return DataCorrupt(f"{stream.name}/{partition} cannot be served: {reason}")
        leader = stream.partitions[partition].leader
        facts: dict[str, Any] = {} if leader is None else {"leader": leader}
        return NotLeader(f"this broker does not lead {stream.name}/{partition}", retry_after_ms=50, **facts)


def placed_on(broker_id: int, stream: StreamImage) -> Iterator[Wanted]:
    """The partitions of a stream of which a broker has a replica."""
    for number, partition in enumerate(stream.partitions):
        if broker_id in partition.replicas:
            yield Wanted(stream.name, stream.id, number, log_config(stream.config))


def log_config(config: StreamConfig) -> LogConfig:
    """What the logs of a stream need of its configuration."""
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_age_us=config.segment_age_ms * 1000,
        guard=GuardLimits(
            dedupe_window_us=config.dedupe_window_ms * 1000, dedupe_count_max=config.dedupe_count_max
        ),
    )

"""A replica on a simulated broker, as checks and faults look at it. The replica itself is the product's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_broker.core.metadata.image import PartitionImage
from tidelog_broker.core.replication.following import FollowerPartition
from tidelog_broker.core.replication.leading import LeaderPartition

if TYPE_CHECKING:
    from simulator.node import Node
    from tidelog_broker.storage.log.partition_log import PartitionLog
    from tidelog_broker.writing.partition import Partition

Key = tuple[bytes, int]
"""Stream id and partition."""


class Looks(NamedTuple):
    """What of a replica was seen last."""

    role: LeaderPartition | FollowerPartition | None
    high_watermark: int
    start_offset: int
    end_offset: int
    durable_offset: int
    damaged: int
    """Ranges that cannot be read."""


class Replica:
    """See the module."""

    __slots__ = ("looks", "node", "partition")

    def __init__(self, node: Node, partition: Partition) -> None:
        self.node = node
        self.partition = partition
        self.looks: Looks | None = None
        """None: it was not looked at yet."""

    def __repr__(self) -> str:
        return f"<Replica on {self.node.id} {self.partition!r}>"

    @property
    def key(self) -> Key:
        return self.partition.key

    @property
    def name(self) -> str:
        return f"{self.partition.name}/{self.partition.partition}"

    @property
    def log(self) -> PartitionLog:
        return self.partition.log

    @property
    def role(self) -> LeaderPartition | FollowerPartition | None:
        return self.partition.replica.role

    @property
    def leads(self) -> bool:
        return isinstance(self.partition.replica.role, LeaderPartition)

    @property
    def fsync(self) -> bool:
        return self.partition.replica.fsync

    @property
    def placed(self) -> PartitionImage:
        return self.partition.replica.placed

    @property
    def high_watermark(self) -> int:
        return self.partition.high_watermark

    def now(self) -> Looks:
        partition = self.partition
        role, log = partition.replica.role, partition.log
        reached = partition.high_watermark if role is None else role.high_watermark
        return Looks(role, reached, log.start_offset, log.end_offset, log.durable_offset, len(log.damaged))

"""The state of the cluster in memory: streams, their logs and their leaders.

`_services` answers requests from it, `_cluster` changes it for tests, `_faults` has the planned failures.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tidelog.errors import InvalidRequest, PartitionNotFound, StreamNotFound
from tidelog.model import (
    PartitionDescription,
    StreamConfig,
    StreamDescription,
    id_text,
)
from tidelog.placement import BrokerLoad, place
from tidelog.testing._log import MemoryLog

Change = Callable[[PartitionDescription], PartitionDescription]


class State:
    """The state that all brokers of one cluster share."""

    def __init__(self, broker_ids: range) -> None:
        self.cluster_id = uuid.uuid4().bytes
        self.version = 1
        """The version of the metadata."""
        self.alive = dict.fromkeys(broker_ids, True)
        """By broker id, in order."""
        self.streams: dict[str, StreamDescription] = {}
        self.next_producer_id = 1
        self.changed = asyncio.Event()
        """Set at the next change, and replaced by a new event then."""
        self._logs: dict[bytes, list[MemoryLog]] = {}

    def notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    # --- streams

    def stream(self, name: str) -> StreamDescription:
        found = self.streams.get(name)
        if found is None:
            raise StreamNotFound(f"there is no stream {name!r}", name=name)
        return found

    def stream_with_id(self, stream_id: bytes) -> StreamDescription:
        for stream in self.streams.values():
            if stream.stream_id == stream_id:
                return stream
        raise StreamNotFound(f"there is no stream with id {id_text(stream_id)}")

    def log(self, stream_id: bytes, partition: int) -> MemoryLog:
        return self._logs[stream_id][partition]

    def create(
        self,
        name: str,
        config: StreamConfig,
        labels: Mapping[str, str],
        owner: str = "",
        replicas: Sequence[tuple[int, ...]] = (),
    ) -> StreamDescription:
        stream = StreamDescription(
            name=name,
            stream_id=uuid.uuid4().bytes,
            config=config,
            version=1,
            created_us=time.time_ns() // 1000,
            partitions=(),
            labels=dict(labels),
            owner=owner,
        )
        self._logs[stream.stream_id] = []
        return self.grow(stream, config, replicas)

    def grow(
        self, stream: StreamDescription, config: StreamConfig, replicas: Sequence[tuple[int, ...]] = ()
    ) -> StreamDescription:
        """Sets the configuration of the stream, and adds the partitions that it lacks, on these brokers."""
        first = len(stream.partitions)
        parts = [part for one in self.streams.values() for part in one.partitions]
        loads = [
            BrokerLoad(
                broker_id=broker_id,
                replicas=sum(broker_id in part.replicas for part in parts),
                leaders=sum(part.leader == broker_id for part in parts),
            )
            for broker_id in self.alive
        ]
        placed = list(replicas) or place(loads, config.partitions - first, config.replication_factor)
        logs = self._logs[stream.stream_id]
        made = []
        for number, members in enumerate(placed, first):
            logs.append(MemoryLog(stream.stream_id, number))
            made.append(PartitionDescription(number, None, 0, 0, members, members))
        self.put(replace(stream, config=config, partitions=(*stream.partitions, *made)))
        for number in range(first, config.partitions):
            self.elect(stream.name, number)
        return self.stream(stream.name)

    def put(self, stream: StreamDescription) -> None:
        self.streams[stream.name] = stream
        self.version += 1
        self.notify()

    def delete(self, name: str) -> None:
        stream = self.streams.pop(name)
        del self._logs[stream.stream_id]
        self.version += 1
        self.notify()

    # --- leaders

    def partition(self, name: str, partition: int) -> PartitionDescription:
        parts = self.stream(name).partitions
        if not 0 <= partition < len(parts):
            raise PartitionNotFound.numbered(partition, stream=name, count=len(parts))
        return parts[partition]

    def elect(self, name: str, partition: int, leader: int | None = None) -> int | None:
        """Elects a leader in a new epoch: `leader`, or the first in-sync replica that is up.

        If there is none, the partition has no leader.
        """
        found = self.partition(name, partition)
        candidates = [broker for broker in found.isr if self.alive[broker]]
        if leader is not None and leader not in candidates:
            raise InvalidRequest(
                f"broker {leader} cannot lead {name}/{partition}; brokers that can: {candidates}"
            )
        if leader is None and candidates:
            leader = candidates[0]
        epoch = found.leader_epoch + (leader is not None)
        self._replace(name, partition, lambda part: replace(part, leader=leader, leader_epoch=epoch))
        return leader

    def depose(self, name: str, partition: int) -> None:
        """Takes the leader of the partition away."""
        self.partition(name, partition)
        self._replace(name, partition, lambda part: replace(part, leader=None))

    def stop(self, broker_id: int) -> None:
        """Stops a broker: other replicas take over its leaderships, and it leaves every ISR."""
        self.alive[broker_id] = False
        for name, partition in self._all(lambda part: broker_id in part.isr):
            found = self.partition(name, partition)
            others = tuple(broker for broker in found.isr if broker != broker_id)
            # The last replica stays in the ISR: no other replica surely has all records.
            isr = others or found.isr
            self._replace(name, partition, lambda part, isr=isr: replace(part, isr=isr))  # type: ignore[misc]
            if found.leader == broker_id:
                self.elect(name, partition)

    def start(self, broker_id: int) -> None:
        """Starts a broker: it has caught up, and leads the partitions without a leader."""
        self.alive[broker_id] = True
        for name, partition in self._all(lambda part: broker_id in part.replicas):
            found = self.partition(name, partition)
            if found.leader is None and broker_id in found.isr:
                self.elect(name, partition)
            found = self.partition(name, partition)
            if broker_id not in found.isr and found.leader is not None:
                isr = (*found.isr, broker_id)
                self._replace(name, partition, lambda part, isr=isr: replace(part, isr=isr))  # type: ignore[misc]

    def _all(self, condition: Callable[[PartitionDescription], bool]) -> list[tuple[str, int]]:
        return [
            (stream.name, part.partition)
            for stream in self.streams.values()
            for part in stream.partitions
            if condition(part)
        ]

    def _replace(self, name: str, partition: int, change: Change) -> None:
        stream = self.stream(name)
        parts = list(stream.partitions)
        parts[partition] = replace(
            change(parts[partition]), partition_epoch=parts[partition].partition_epoch + 1
        )
        self.put(replace(stream, partitions=tuple(parts)))

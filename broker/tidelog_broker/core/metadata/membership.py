"""How partitions change when a broker registers, is fenced, loses logs or is unregistered.

A part of `apply`: pure, and without refusals. `eligibility` says which replicas stay in ISR or eligible
(R6); a new incarnation leads no partition that an earlier run led (R10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from msgspec import UNSET
from msgspec.structs import replace

from tidelog_broker.core.metadata import eligibility
from tidelog_broker.core.metadata.commands import (
    ChangeBroker,
    RegisterBroker,
    ReplicaName,
    ReplicasLost,
    Suspect,
    UnregisterBroker,
)
from tidelog_broker.core.metadata.image import (
    BrokerImage,
    ClusterImage,
    LastKnown,
    PartitionImage,
    StreamImage,
    Vote,
)

ChangedStreams: TypeAlias = dict[bytes, StreamImage]
"""Streams with a changed partition, by id."""


def register(
    image: ClusterImage, command: RegisterBroker, index: int
) -> tuple[dict[int, BrokerImage], ChangedStreams]:
    """A registered broker is neither fenced nor stopping; a cordon and the vote setting survive restarts."""
    old = image.brokers.get(command.broker_id)
    same_run = old is not None and (old.incarnation, old.directory_id) == (
        command.incarnation,
        command.directory_id,
    )
    broker = BrokerImage(
        id=command.broker_id,
        incarnation=command.incarnation,
        directory_id=command.directory_id,
        listeners=command.listeners,
        rack=command.rack,
        solo_epoch=command.solo_epoch,
        starts=command.starts,
        stopping=old is not None and same_run and old.stopping,
        cordoned=old is not None and old.cordoned,
        vote=Vote.ANY if old is None else old.vote,
        version=index if old is None else old.version,
    )
    brokers = dict(sorted({**image.brokers, broker.id: broker}.items()))
    if same_run:
        # Suspect and lost replicas took effect when this run first registered.
        return brokers, {}
    new_disk = old is not None and old.directory_id != command.directory_id
    found = _found(command)

    def restarted(stream: StreamImage, number: int, partition: PartitionImage) -> PartitionImage:
        return _restarted(stream, partition, broker, new_disk, found.get((stream.id, number)))

    return brokers, _each_replica(image, broker.id, restarted)


def change(
    image: ClusterImage, command: ChangeBroker, index: int
) -> tuple[dict[int, BrokerImage], ChangedStreams] | None:
    """None: another incarnation is registered, or the broker is not registered."""
    old = image.brokers.get(command.broker_id)
    if old is None or command.incarnation not in (b"", old.incarnation):
        return None
    broker = replace(
        old,
        fenced=old.fenced if command.fenced is UNSET else command.fenced,
        stopping=old.stopping if command.stopping is UNSET else command.stopping,
        cordoned=old.cordoned if command.cordoned is UNSET else command.cordoned,
        vote=old.vote if command.vote is UNSET else command.vote,
        version=old.version if command.cordoned is UNSET and command.vote is UNSET else index,
    )
    brokers = {**image.brokers, broker.id: broker}
    if not broker.fenced or old.fenced:
        return brokers, {}
    fenced = (broker.id,)

    def without(stream: StreamImage, number: int, partition: PartitionImage) -> PartitionImage:
        return _counted(partition, eligibility.leave(stream, partition, fenced))

    return brokers, _each_replica(image, broker.id, without)


def unregister(
    image: ClusterImage, command: UnregisterBroker
) -> tuple[dict[int, BrokerImage], ChangedStreams]:
    brokers = {number: broker for number, broker in image.brokers.items() if number != command.broker_id}

    def without(stream: StreamImage, number: int, partition: PartitionImage) -> PartitionImage:
        return _counted(partition, eligibility.forfeit(partition, command.broker_id))

    return brokers, _each_replica(image, command.broker_id, without)


def lose(image: ClusterImage, command: ReplicasLost) -> ChangedStreams | None:
    """None: another incarnation is registered, or the broker is not registered."""
    broker = image.brokers.get(command.broker_id)
    if broker is None or broker.incarnation != command.incarnation:
        return None
    changed: ChangedStreams = {}
    for name in command.partitions:
        stream = changed.get(name.stream_id) or image.streams.find(name.stream_id)
        if stream is None or not 0 <= name.partition < len(stream.partitions):
            continue
        partition = stream.partitions[name.partition]
        if broker.id not in partition.replicas or partition.assignment_of(broker.id) != name.assignment:
            # The lost log was of an earlier assignment; the broker has made no replica for this one yet.
            continue
        partitions = list(stream.partitions)
        partitions[name.partition] = _counted(partition, eligibility.lose(partition, broker.id))
        changed[stream.id] = replace(stream, partitions=tuple(partitions))
    return changed


def _found(command: RegisterBroker) -> dict[tuple[bytes, int], Suspect | ReplicaName]:
    found: Iterable[Suspect | ReplicaName] = (*command.suspects, *command.lost)
    return {(one.stream_id, one.partition): one for one in found}


def _restarted(
    stream: StreamImage,
    partition: PartitionImage,
    broker: BrokerImage,
    new_disk: bool,
    found: Suspect | ReplicaName | None,
) -> PartitionImage:
    """R10: a new incarnation loses its leaderships; R6: a replica without its log leaves ISR and eligible."""
    after = partition
    if after.leader == broker.id:
        after = replace(after, leader=None)
    if new_disk or isinstance(found, ReplicaName):
        after = eligibility.forfeit(after, broker.id)
    elif isinstance(found, Suspect) and found.assignment != partition.assignment_of(broker.id):
        # The log is of an earlier assignment: the broker holds no record of this one (R16).
        after = eligibility.forfeit(after, broker.id)
    elif isinstance(found, Suspect):
        known = LastKnown(broker.id, found.leader_epoch, found.log_end_offset)
        after = eligibility.suspect(after, known)
    clean = broker.id in after.isr or broker.id in after.eligible
    if broker.solo_epoch and after.leader is None and clean:
        after = eligibility.elected(stream, after, broker.id, epoch_min=broker.solo_epoch)
    return _counted(partition, after)


def _counted(before: PartitionImage, after: PartitionImage) -> PartitionImage:
    if after is before:
        return before
    return replace(after, partition_epoch=before.partition_epoch + 1)


def _each_replica(
    image: ClusterImage,
    broker: int,
    change_partition: Callable[[StreamImage, int, PartitionImage], PartitionImage],
) -> ChangedStreams:
    """The streams in which `change_partition` changes a partition of which `broker` has a replica."""
    changed: ChangedStreams = {}
    for stream_id, stream in image.streams.items():
        partitions: list[PartitionImage] | None = None
        for number, partition in enumerate(stream.partitions):
            if broker not in partition.replicas:
                continue
            after = change_partition(stream, number, partition)
            if after is not partition:
                if partitions is None:
                    partitions = list(stream.partitions)
                partitions[number] = after
        if partitions is not None:
            changed[stream_id] = replace(stream, partitions=tuple(partitions))
    return changed

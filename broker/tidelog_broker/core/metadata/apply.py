"""Image and command to the next image: pure, cheap, and never a refusal (M4).

What is wrong is refused before it is proposed, in `decide`. What stands in the log has
happened; a command that no longer fits (its stream is gone) changes nothing, on every
broker alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from msgspec import UNSET
from msgspec.structs import replace

from tidelog_broker.core.metadata.commands import (
    AllocateProducerIds,
    AlterStream,
    ChangePartitions,
    Command,
    CreateStream,
    DeleteStream,
    FormatCluster,
    NewPartition,
    PartitionChange,
    RegisterBroker,
)
from tidelog_broker.core.metadata.image import (
    BrokerImage,
    ClusterImage,
    PartitionImage,
    Share,
    StreamImage,
)


def apply(image: ClusterImage, command: Command, index: int) -> ClusterImage:
    """The image after the entry `index`, which says `command`."""
    match command:
        case FormatCluster():
            after = _format_cluster(image, command)
        case RegisterBroker():
            after = _register_broker(image, command)
        case CreateStream():
            after = _create_stream(image, command, index)
        case AlterStream():
            after = _alter_stream(image, command, index)
        case DeleteStream():
            after = _delete_stream(image, command)
        case AllocateProducerIds():
            after = replace(image, next_producer_id=image.next_producer_id + command.count)
        case ChangePartitions():
            after = _change_partitions(image, command)
        case _:
            assert_never(command)
    return replace(after, version=index)


def share_of(streams: Iterable[StreamImage]) -> dict[int, Share]:
    """Replicas and leaders by broker, counted."""
    shares: dict[int, Share] = {}
    for stream in streams:
        _count(shares, stream.partitions, 1)
    return dict(sorted(shares.items()))


def _format_cluster(image: ClusterImage, command: FormatCluster) -> ClusterImage:
    if image.cluster_id:
        return image
    return replace(image, cluster_id=command.cluster_id, feature_level=command.feature_level)


def _register_broker(image: ClusterImage, command: RegisterBroker) -> ClusterImage:
    old = image.brokers.get(command.broker_id)
    broker = BrokerImage(
        id=command.broker_id,
        incarnation=command.incarnation,
        directory_id=command.directory_id,
        listeners=command.listeners,
        rack=command.rack,
        solo_epoch=command.solo_epoch,
    )
    if old is not None and old.incarnation == command.incarnation:
        broker = replace(broker, state=old.state)
    brokers = dict(sorted({**image.brokers, broker.id: broker}.items()))
    after = replace(image, brokers=brokers)
    if old is None or old.incarnation != command.incarnation:
        new_disk = old is not None and old.directory_id != command.directory_id
        after = _each_partition(after, lambda stream, part: _restarted(stream, part, broker, new_disk))
    return after


def _restarted(
    stream: StreamImage, partition: PartitionImage, broker: BrokerImage, new_disk: bool
) -> PartitionImage:
    """R10: a new incarnation leads nothing of before; R6: a new disk holds nothing of before."""
    if broker.id not in partition.replicas:
        return partition
    after = partition
    if after.leader == broker.id:
        after = replace(after, leader=None)
    if new_disk:
        after = replace(
            after,
            isr=_without(after.isr, broker.id),
            eligible=_without(after.eligible, broker.id),
            last_known=tuple(known for known in after.last_known if known.broker != broker.id),
        )
    clean = broker.id in after.isr or broker.id in after.eligible
    if broker.solo_epoch and after.leader is None and clean:
        after = _elect(stream, after, broker.id, broker.solo_epoch)
    if after == partition:
        return partition
    return replace(after, partition_epoch=partition.partition_epoch + 1)


def _elect(
    stream: StreamImage, partition: PartitionImage, leader: int, epoch_min: int, *, unclean: bool = False
) -> PartitionImage:
    """`leader` begins an epoch that is newer than any before it, at least `epoch_min`."""
    isr = partition.isr if leader in partition.isr else (*partition.isr, leader)
    return replace(
        partition,
        leader=leader,
        leader_epoch=max(epoch_min, partition.leader_epoch + 1),
        unclean=unclean,
        isr=isr,
        eligible=_still_eligible(stream, isr, partition.eligible),
        last_known=(),
    )


def _still_eligible(stream: StreamImage, isr: Sequence[int], eligible: Sequence[int]) -> tuple[int, ...]:
    """R6: eligibility ends when the ISR is back at its minimum."""
    if len(isr) >= stream.config.min_insync_effective:
        return ()
    return tuple(broker for broker in eligible if broker not in isr)


def _create_stream(image: ClusterImage, command: CreateStream, index: int) -> ClusterImage:
    if command.name in image.names or command.stream_id in image.streams:
        return image
    stream = StreamImage(
        name=command.name,
        id=command.stream_id,
        config=command.config,
        version=index,
        created_us=command.created_us,
        partitions=_begin(command.partitions),
        labels=command.labels,
        owner=command.owner,
    )
    after = replace(image, names=image.names.set(command.name, command.stream_id))
    return _put(after, stream)


def _alter_stream(image: ClusterImage, command: AlterStream, index: int) -> ClusterImage:
    stream = image.streams.find(command.stream_id)
    if stream is None:
        return image
    after = replace(stream, config=command.config, version=index)
    partitions = tuple(
        replace(part, eligible=_still_eligible(after, part.isr, part.eligible)) if part.eligible else part
        for part in stream.partitions
    )
    return _put(image, replace(after, partitions=(*partitions, *_begin(command.new_partitions))))


def _begin(partitions: Sequence[NewPartition]) -> tuple[PartitionImage, ...]:
    return tuple(
        PartitionImage(
            replicas=partition.replicas,
            isr=partition.replicas,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
        )
        for partition in partitions
    )


def _delete_stream(image: ClusterImage, command: DeleteStream) -> ClusterImage:
    stream = image.streams.find(command.stream_id)
    if stream is None:
        return image
    shares = dict(image.shares)
    _count(shares, stream.partitions, -1)
    return replace(
        image,
        streams=image.streams.remove(stream.id),
        names=image.names.remove(stream.name),
        shares=shares,
        partition_count=image.partition_count - len(stream.partitions),
    )


def _change_partitions(image: ClusterImage, command: ChangePartitions) -> ClusterImage:
    changed: dict[bytes, list[PartitionImage]] = {}
    for change in command.changes:
        stream = image.streams.find(change.stream_id)
        if stream is None or change.partition >= len(stream.partitions):
            continue
        partitions = changed.setdefault(stream.id, list(stream.partitions))
        partitions[change.partition] = _changed(stream, partitions[change.partition], change)
    return _put_all(
        image,
        {
            stream_id: replace(image.streams[stream_id], partitions=tuple(partitions))
            for stream_id, partitions in changed.items()
        },
    )


def _changed(stream: StreamImage, partition: PartitionImage, change: PartitionChange) -> PartitionImage:
    after = partition
    if change.replicas is not UNSET:
        after = replace(after, replicas=change.replicas)
    if change.isr is not UNSET:
        after = replace(after, isr=change.isr)
    if change.eligible is not UNSET:
        after = replace(after, eligible=change.eligible)
    if change.last_known is not UNSET:
        after = replace(after, last_known=change.last_known)
    if change.leader is None:
        after = replace(after, leader=None)
    elif change.leader is not UNSET:
        after = _elect(stream, after, change.leader, 1, unclean=change.unclean)
    eligible = _still_eligible(stream, after.isr, after.eligible)
    return replace(after, eligible=eligible, partition_epoch=partition.partition_epoch + 1)


def _each_partition(
    image: ClusterImage, change: Callable[[StreamImage, PartitionImage], PartitionImage]
) -> ClusterImage:
    changed: dict[bytes, StreamImage] = {}
    for stream_id, stream in image.streams.items():
        partitions = tuple(change(stream, partition) for partition in stream.partitions)
        if any(new is not old for new, old in zip(partitions, stream.partitions, strict=True)):
            changed[stream_id] = replace(stream, partitions=partitions)
    return _put_all(image, changed)


def _put_all(image: ClusterImage, changed: dict[bytes, StreamImage]) -> ClusterImage:
    """With streams that are there already, changed; counts them anew if they are many."""
    streams = image.streams.update(changed)
    if len(changed) > len(image.streams) // 2:
        shares = share_of(streams.values())
    else:
        shares = dict(image.shares)
        for stream_id, stream in changed.items():
            _count(shares, image.streams[stream_id].partitions, -1)
            _count(shares, stream.partitions, 1)
    return replace(image, streams=streams, shares=shares)


def _put(image: ClusterImage, stream: StreamImage) -> ClusterImage:
    """With one stream, new or changed."""
    old = image.streams.find(stream.id)
    shares = dict(image.shares)
    if old is not None:
        _count(shares, old.partitions, -1)
    _count(shares, stream.partitions, 1)
    return replace(
        image,
        streams=image.streams.set(stream.id, stream),
        shares=shares,
        partition_count=image.partition_count + len(stream.partitions) - (len(old.partitions) if old else 0),
    )


def _count(shares: dict[int, Share], partitions: Sequence[PartitionImage], sign: int) -> None:
    for partition in partitions:
        for broker in partition.replicas:
            share = shares.get(broker, Share())
            leads = sign if broker == partition.leader else 0
            shares[broker] = Share(share.replicas + sign, share.leaders + leads)
            if not shares[broker].replicas:
                del shares[broker]


def _without(brokers: tuple[int, ...], broker: int) -> tuple[int, ...]:
    return tuple(other for other in brokers if other != broker)

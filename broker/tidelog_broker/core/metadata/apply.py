"""Applies a command to an image: pure, cheap, and without refusals (M4).

Wrong requests are refused before they are proposed (`decisions`). An entry of the log is a fact. A
command that does not fit any more, for example because its stream was deleted, changes nothing, and on every
broker alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, assert_never

from msgspec import UNSET
from msgspec.structs import replace

from tidelog_broker.core.metadata import eligibility, membership
from tidelog_broker.core.metadata.commands import (
    AddToken,
    AllocateProducerIds,
    AlterStream,
    ChangeAcl,
    ChangeBroker,
    ChangePartitions,
    CloseSink,
    Command,
    CreateStream,
    DeleteStream,
    FormatCluster,
    NewPartition,
    OpenSink,
    PartitionChange,
    RaiseFeatureLevel,
    RecoverCluster,
    RegisterBroker,
    RemoveQuota,
    RemoveToken,
    ReplicasLost,
    SetQuota,
    SetThrottle,
    UnregisterBroker,
)
from tidelog_broker.core.metadata.image import (
    ClusterImage,
    PartitionImage,
    Share,
    SinkImage,
    StreamImage,
    TokenImage,
)
from tidelog_broker.core.metadata.partition_change import after_change
from tidelog_broker.core.metadata.permissions import sorted_rules
from tidelog_broker.core.metadata.replication_factor import with_factor


def apply(image: ClusterImage, command: Command, index: int) -> ClusterImage:
    """The image after the entry `index`, whose command is `command`."""
    match command:
        case FormatCluster():
            after = _format_cluster(image, command)
        case RaiseFeatureLevel():
            after = replace(image, feature_level=max(image.feature_level, command.level))
        case RegisterBroker():
            after = _register_broker(image, command, index)
        case ChangeBroker():
            after = _change_broker(image, command, index)
        case UnregisterBroker():
            after = _unregister_broker(image, command)
        case ReplicasLost():
            after = _replicas_lost(image, command)
        case CreateStream():
            after = _create_stream(image, command, index)
        case AlterStream():
            after = _alter_stream(image, command, index)
        case DeleteStream():
            after = _delete_stream(image, command)
        case AllocateProducerIds():
            after = replace(image, next_producer_id=image.next_producer_id + command.count)
        case OpenSink():
            after = _open_sink(image, command)
        case CloseSink():
            after = _forget_sink(image, command.name)
        case SetThrottle():
            after = replace(image, throttle_bytes_per_second=command.bytes_per_second)
        case ChangeAcl():
            after = _change_acl(image, command)
        case AddToken():
            after = _add_token(image, command)
        case RemoveToken():
            tokens = image.tokens.remove(command.hash) if command.hash in image.tokens else image.tokens
            after = replace(image, tokens=tokens)
        case SetQuota():
            after = replace(image, quotas={**image.quotas, command.quota.principal: command.quota})
        case RemoveQuota():
            kept = {name: quota for name, quota in image.quotas.items() if name != command.principal}
            after = replace(image, quotas=kept)
        case ChangePartitions():
            after = _change_partitions(image, command.changes)
        case RecoverCluster():
            after = _recover_cluster(image, command)
        case _:
            assert_never(command)
    return replace(after, version=index)


def share_of(streams: Iterable[StreamImage]) -> dict[int, Share]:
    """Replicas and leaders by broker, counted."""
    counts: Counts = {}
    for stream in streams:
        _count(counts, stream.partitions, 1)
    return _shares(counts)


def _format_cluster(image: ClusterImage, command: FormatCluster) -> ClusterImage:
    if image.cluster_id:
        return image
    return replace(image, cluster_id=command.cluster_id, feature_level=command.feature_level)


def _recover_cluster(image: ClusterImage, command: RecoverCluster) -> ClusterImage:
    """No partition has a leader until the next election, in an epoch that no forgotten election used (M2)."""
    changed = {
        stream.id: replace(
            stream,
            partitions=tuple(
                replace(
                    partition,
                    leader=None,
                    leader_epoch=partition.leader_epoch + command.epoch_stride,
                    partition_epoch=partition.partition_epoch + command.epoch_stride,
                )
                for partition in stream.partitions
            ),
        )
        for stream in image.streams.values()
    }
    after = replace(
        image,
        next_producer_id=image.next_producer_id + command.producer_id_stride,
        next_sink_number=image.next_sink_number + command.sink_number_stride,
    )
    return _put_all(after, changed)


def _open_sink(image: ClusterImage, command: OpenSink) -> ClusterImage:
    if command.forgets:
        image = _forget_sink(image, command.forgets)
    sink = SinkImage(
        name=command.name,
        number=command.number,
        run=command.run,
        batch_id=command.batch_id,
        batch_us=command.batch_us,
        stream_id=command.stream_id,
        partitions=command.partitions,
        once=command.once,
    )
    names = image.sink_names
    if command.number not in names:
        names = {**names, command.number: command.name}
    return replace(
        image,
        sinks=image.sinks.set(command.name, sink),
        sink_names=names,
        next_sink_number=max(image.next_sink_number, command.number + 1),
    )


def _forget_sink(image: ClusterImage, name: str) -> ClusterImage:
    sink = image.sinks.find(name)
    if sink is None:
        return image
    names = {number: other for number, other in image.sink_names.items() if number != sink.number}
    return replace(image, sinks=image.sinks.remove(name), sink_names=names)


def _change_acl(image: ClusterImage, command: ChangeAcl) -> ClusterImage:
    removed = dict.fromkeys(command.removed)
    kept = (rule for rule in image.acl if rule not in removed)
    return replace(image, acl=sorted_rules([*kept, *command.added]))


def _add_token(image: ClusterImage, command: AddToken) -> ClusterImage:
    if command.hash in image.tokens:
        return image
    token = TokenImage(
        hash=command.hash,
        principal=command.principal,
        created_us=command.created_us,
        expires_us=command.expires_us,
        note=command.note,
    )
    return replace(image, tokens=image.tokens.set(command.hash, token))


def _register_broker(image: ClusterImage, command: RegisterBroker, index: int) -> ClusterImage:
    brokers, changed = membership.register(image, command, index)
    after = replace(image, brokers=brokers)
    return _change_partitions(_put_all(after, changed), command.changes)


def _change_broker(image: ClusterImage, command: ChangeBroker, index: int) -> ClusterImage:
    done = membership.change(image, command, index)
    if done is None:
        return image
    brokers, changed = done
    return _change_partitions(_put_all(replace(image, brokers=brokers), changed), command.changes)


def _unregister_broker(image: ClusterImage, command: UnregisterBroker) -> ClusterImage:
    if command.broker_id not in image.brokers:
        return image
    brokers, changed = membership.unregister(image, command)
    return _change_partitions(_put_all(replace(image, brokers=brokers), changed), command.changes)


def _replicas_lost(image: ClusterImage, command: ReplicasLost) -> ClusterImage:
    changed = membership.lose(image, command)
    return image if changed is None else _change_partitions(_put_all(image, changed), command.changes)


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
    owner = stream.owner if command.owner is UNSET else command.owner
    after = replace(stream, config=command.config, version=index, owner=owner)
    partitions = tuple(eligibility.reconfigured(after, partition) for partition in stream.partitions)
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
    counts = _counts(image.shares)
    _count(counts, stream.partitions, -1)
    for sink in [sink for sink in image.sinks.values() if sink.stream_id == stream.id]:
        image = _forget_sink(image, sink.name)
    return replace(
        image,
        streams=image.streams.remove(stream.id),
        names=image.names.remove(stream.name),
        shares=_shares(counts),
        partition_count=image.partition_count - len(stream.partitions),
    )


def _change_partitions(image: ClusterImage, changes: Sequence[PartitionChange]) -> ClusterImage:
    touched: dict[bytes, list[PartitionImage]] = {}
    moved: dict[bytes, None] = {}
    for change in changes:
        stream = image.streams.find(change.stream_id)
        if stream is None or not 0 <= change.partition < len(stream.partitions):
            continue
        partitions = touched.setdefault(stream.id, list(stream.partitions))
        partitions[change.partition] = after_change(
            stream, partitions[change.partition], change, image.feature_level
        )
        if change.replicas is not UNSET:
            moved[stream.id] = None
    changed = {
        stream_id: replace(image.streams[stream_id], partitions=tuple(partitions))
        for stream_id, partitions in touched.items()
    }
    return _put_all(image, {**changed, **{stream_id: with_factor(changed[stream_id]) for stream_id in moved}})


def _put_all(image: ClusterImage, changed: dict[bytes, StreamImage]) -> ClusterImage:
    """The image with existing streams replaced; only partitions that are other objects are counted again."""
    if not changed:
        return image
    counts = _counts(image.shares)
    for stream_id, stream in changed.items():
        for old, new in zip(image.streams[stream_id].partitions, stream.partitions, strict=True):
            if old is not new:
                _recount(counts, old, new)
    return replace(image, streams=image.streams.update(changed), shares=_shares(counts))


def _put(image: ClusterImage, stream: StreamImage) -> ClusterImage:
    """The image with one stream, new or replaced."""
    old = image.streams.find(stream.id)
    counts = _counts(image.shares)
    if old is not None:
        _count(counts, old.partitions, -1)
    _count(counts, stream.partitions, 1)
    return replace(
        image,
        streams=image.streams.set(stream.id, stream),
        shares=_shares(counts),
        partition_count=image.partition_count + len(stream.partitions) - (len(old.partitions) if old else 0),
    )


Counts: TypeAlias = dict[int, list[int]]
"""`Share`s by broker while they are counted: lists, because most entries change many counts of few
brokers."""


def _counts(shares: dict[int, Share]) -> Counts:
    return {broker: list(share) for broker, share in shares.items()}


def _shares(counts: Counts) -> dict[int, Share]:
    return {broker: Share(*count) for broker, count in sorted(counts.items()) if count[0]}


def _count(counts: Counts, partitions: Iterable[PartitionImage], sign: int) -> None:
    for partition in partitions:
        for broker in partition.replicas:
            counts.setdefault(broker, [0, 0])[0] += sign
        if partition.leader is not None:
            counts.setdefault(partition.leader, [0, 0])[1] += sign


def _recount(counts: Counts, old: PartitionImage, new: PartitionImage) -> None:
    if old.replicas is not new.replicas:
        _count(counts, (old,), -1)
        _count(counts, (new,), 1)
    elif old.leader != new.leader:
        if old.leader is not None:
            counts[old.leader][1] -= 1
        if new.leader is not None:
            counts[new.leader][1] += 1

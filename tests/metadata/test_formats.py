"""Commands and snapshots as bytes, and what a delta says."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from metadata.samples import CLUSTER, applied, created, identifier, quorum_cluster, registered, solo_cluster
from tidelog.model import AclRule, Operation, Quota, Resource, StreamConfig
from tidelog_broker.core.metadata.commands import (
    AddToken,
    AllocateProducerIds,
    AlterStream,
    ChangeAcl,
    ChangeBroker,
    ChangePartitions,
    CloseSink,
    Command,
    DeleteStream,
    FormatCluster,
    NewPartition,
    OpenSink,
    PartitionChange,
    RaiseFeatureLevel,
    RecoverCluster,
    RemoveQuota,
    RemoveToken,
    ReplicaName,
    ReplicasLost,
    SetQuota,
    Suspect,
    UnregisterBroker,
    decode_command,
    encode_command,
)
from tidelog_broker.core.metadata.delta import ImageDelta, delta_between
from tidelog_broker.core.metadata.image import ClusterImage
from tidelog_broker.core.metadata.snapshot import decode_image, encode_image
from tidelog_broker.errors import DataDirectoryError

RULE = AclRule(
    principal="user:ann", operation=Operation.PRODUCE, resource=Resource.STREAM, name="orders", prefix=True
)

EVERY_COMMAND: list[Command] = [
    FormatCluster(CLUSTER),
    FormatCluster(CLUSTER, 2),
    RaiseFeatureLevel(2),
    registered(3, solo_epoch=2, rack="b"),
    created(1, "orders", replicas=(2, 0), partitions=2),
    AlterStream(identifier(1), StreamConfig(subject="x.>"), (NewPartition((1,), 1, 4),)),
    DeleteStream(identifier(1)),
    AllocateProducerIds(0, 1000),
    OpenSink("copy", 3, 12, 7, 99, identifier(1), 2),
    OpenSink("write-1", 4, 13, 0, 99, identifier(1), 2, once=True, forgets="write-0"),
    CloseSink("write-1"),
    ChangePartitions(
        (
            PartitionChange(identifier(1), 0, leader=None),
            PartitionChange(identifier(1), 1, leader=2, unclean=True, isr=(2,)),
            PartitionChange(identifier(2), 0, replicas=(1, 2, 0), adding=(1,), removing=(0,)),
        )
    ),
    msgspec.structs.replace(
        registered(2),
        starts=7,
        suspects=(Suspect(identifier(1), 0, 3, 44),),
        lost=(ReplicaName(identifier(1), 1),),
        changes=(PartitionChange(identifier(1), 0, leader=1),),
    ),
    ChangeBroker(1, identifier(5), fenced=True, changes=(PartitionChange(identifier(1), 0, leader=2),)),
    ChangeBroker(1, stopping=False, cordoned=True),
    UnregisterBroker(1, (PartitionChange(identifier(1), 0, leader=2),)),
    ReplicasLost(1, identifier(5), (ReplicaName(identifier(1), 0),)),
    RecoverCluster(identifier(9), 1 << 20, 1 << 32),
    ChangeAcl((RULE,), (dataclasses.replace(RULE, deny=True),)),
    AddToken(bytes(32), "user:ann", 5, 9, "laptop"),
    RemoveToken(bytes(32)),
    SetQuota(Quota(principal="user:ann", produce_bytes_per_second=1024)),
    RemoveQuota("user:ann"),
]


@pytest.mark.parametrize("command", EVERY_COMMAND, ids=lambda command: type(command).__name__)
def test_every_command_survives_its_bytes(command: Command) -> None:
    assert decode_command(encode_command(command)) == command


@pytest.mark.parametrize("command", EVERY_COMMAND, ids=lambda command: type(command).__name__)
def test_fields_of_a_later_version_are_skipped(command: Command) -> None:
    fields = msgspec.msgpack.decode(encode_command(command))

    assert decode_command(msgspec.msgpack.encode({**fields, "added_later": {"x": [1]}})) == command


def test_what_is_not_said_takes_no_bytes() -> None:
    fields = msgspec.msgpack.decode(
        encode_command(ChangePartitions((PartitionChange(b"s", 0, leader=None),)))
    )

    assert fields == {"type": "partitions", "changes": [{"stream_id": b"s", "partition": 0, "leader": None}]}


def test_a_configuration_is_written_whole_so_that_new_defaults_change_no_stream() -> None:
    fields = msgspec.msgpack.decode(encode_command(created(1)))

    assert set(fields["config"]) == {item.name for item in dataclasses.fields(StreamConfig)}


@pytest.mark.parametrize("payload", [msgspec.msgpack.encode({"type": "later"}), b"\xc1", b"", b"\x80"])
def test_a_command_that_is_not_understood_is_refused_and_not_skipped(payload: bytes) -> None:
    with pytest.raises(DataDirectoryError, match="a command that this version does not understand"):
        decode_command(payload)


def a_busy_image() -> ClusterImage:
    return applied(
        quorum_cluster(),
        [
            *(created(number, replicas=(number % 3, (number + 1) % 3)) for number in range(1, 50)),
            AllocateProducerIds(0, 1000),
            registered(1, 2),
            DeleteStream(identifier(7)),
            ChangeBroker(2, fenced=True, cordoned=True),
            ChangePartitions((PartitionChange(identifier(3), 0, replicas=(2, 1, 0), adding=(2,)),)),
            msgspec.structs.replace(registered(0, 2), suspects=(Suspect(identifier(9), 0, 1, 7),), starts=2),
        ],
    )


def test_an_image_survives_its_snapshot() -> None:
    image = a_busy_image()

    assert decode_image(encode_image(image)) == image


def test_the_same_image_gives_the_same_bytes_whatever_its_history() -> None:
    one = applied(solo_cluster(), [created(1), created(2)])
    other = applied(solo_cluster(), [created(1), created(3), DeleteStream(identifier(3)), created(2)])
    behind = msgspec.structs.replace(other, version=one.version)
    stream = msgspec.structs.replace(behind.streams[identifier(2)], version=one.version)
    behind = msgspec.structs.replace(behind, streams=behind.streams.set(identifier(2), stream))

    assert encode_image(behind) == encode_image(one)


def test_a_broker_that_is_as_it_should_be_is_written_without_its_flags() -> None:
    fields = msgspec.msgpack.decode(encode_image(solo_cluster()))["brokers"][0]

    assert set(fields) == {"id", "incarnation", "directory_id", "listeners", "solo_epoch", "version"}


def test_a_snapshot_of_another_format_is_refused() -> None:
    with pytest.raises(DataDirectoryError, match="snapshot cannot be read"):
        decode_image(b"\xc1")


def test_a_delta_from_nothing_is_everything() -> None:
    image = a_busy_image()

    delta = delta_between(ClusterImage(), image)

    assert delta.brokers == tuple(image.brokers[broker] for broker in (0, 1, 2))
    assert delta.streams == tuple(image.streams[stream_id] for stream_id in sorted(image.streams))
    assert delta.deleted == ()
    assert delta.version == image.version


def test_a_delta_holds_what_changed_and_nothing_else() -> None:
    old = applied(quorum_cluster(), [created(1), created(2), created(3)])
    new = applied(
        old,
        [
            created(4),
            DeleteStream(identifier(2)),
            ChangePartitions((PartitionChange(identifier(3), 0, isr=(0,), leader=0),)),
            registered(2, 2),
        ],
    )

    assert delta_between(old, new) == ImageDelta(
        version=new.version,
        brokers=(new.brokers[2],),
        streams=(new.streams[identifier(3)], new.streams[identifier(4)]),
        deleted=(old.streams[identifier(2)],),
    )


def test_a_delta_between_equal_images_is_empty() -> None:
    image = a_busy_image()

    assert not delta_between(image, applied(image, [AllocateProducerIds(0, 1)]))
    assert delta_between(image, applied(image, [created(99)]))

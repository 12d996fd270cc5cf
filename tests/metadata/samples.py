"""Small clusters to start from."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.model import Listener, StreamConfig
from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import (
    FEATURE_LEVEL,
    Command,
    CreateStream,
    FormatCluster,
    NewPartition,
    RegisterBroker,
)
from tidelog_broker.core.metadata.image import ClusterImage

CLUSTER = b"c" * 16
FORMATTED = FormatCluster(CLUSTER, FEATURE_LEVEL)
LISTENERS = (Listener("external", "localhost", 9210),)


def identifier(number: int) -> bytes:
    return number.to_bytes(16, "big")


def registered(
    broker_id: int, run: int = 1, *, disk: int = 1, solo_epoch: int = 0, rack: str = ""
) -> RegisterBroker:
    """The registration of a broker's nth run."""
    return RegisterBroker(
        broker_id=broker_id,
        incarnation=identifier(1000 * broker_id + run),
        directory_id=identifier(disk),
        listeners=LISTENERS,
        rack=rack,
        solo_epoch=solo_epoch,
    )


def applied(image: ClusterImage, commands: Iterable[Command | None]) -> ClusterImage:
    for command in commands:
        assert command is not None, "there was something to do"
        image = apply(image, command, image.version + 1)
    return image


def solo_cluster(start: int = 1) -> ClusterImage:
    """One broker without a quorum, in its nth start."""
    return applied(ClusterImage(), [FORMATTED, registered(0, start, solo_epoch=start)])


def quorum_cluster(brokers: int = 3) -> ClusterImage:
    """Brokers whose epochs a quorum gives."""
    return applied(
        ClusterImage(),
        [FORMATTED, *(registered(broker) for broker in range(brokers))],
    )


def created(
    number: int, name: str = "", *, replicas: tuple[int, ...] = (0,), partitions: int = 1
) -> CreateStream:
    """A stream led by the first of its replicas."""
    config = StreamConfig(partitions=partitions, replication_factor=len(replicas))
    return CreateStream(
        stream_id=identifier(number),
        name=name or f"stream-{number}",
        config=config,
        partitions=tuple(NewPartition(replicas, replicas[0], 1) for _ in range(partitions)),
        created_us=5,
    )

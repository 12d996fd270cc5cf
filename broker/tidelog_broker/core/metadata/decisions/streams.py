"""Creating, changing and deleting streams: a request becomes a command or a typed error.

Pure, like `apply`: identifiers and time are arguments. The image must be the one
that the command will be applied to (`quorum.active_controller` ensures that), so that two
simultaneous requests cannot both be right about a name or a version.

`None` instead of a command means that the image already is as requested.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET

from tidelog.errors import (
    FeatureNotImplemented,
    InvalidRequest,
    ResourceExhausted,
    StreamExists,
    StreamNotFound,
    VersionConflict,
)
from tidelog.model import StreamSettings, validate_labels, validate_owner, validate_stream_name
from tidelog_broker.core.metadata.commands import (
    AllocateProducerIds,
    AlterStream,
    CreateStream,
    DeleteStream,
)
from tidelog_broker.core.metadata.decisions.placing import Replicas, new_partitions
from tidelog_broker.core.metadata.image import ClusterImage, StreamImage

PRODUCER_IDS_END = 1 << 63
"""The ids from here on belong to sinks (S1)."""


def create_stream(
    image: ClusterImage,
    name: str,
    settings: StreamSettings,
    *,
    stream_id: bytes,
    created_us: int,
    labels: Mapping[str, str] | None = None,
    owner: str = "",
    replicas: Replicas = (),
    internal: bool = False,
) -> CreateStream | None:
    """Creates a stream with a new id; None: it exists, with the same given settings and owner.

    `replicas`: of each partition; empty: placement chooses.

    Raises `InvalidRequest`, `StreamExists` (with the differences), `ResourceExhausted`,
    `Unavailable`.
    """
    validate_stream_name(name, internal=internal)
    validate_labels(labels or {})
    validate_owner(owner)
    existing = image.stream_named(name)
    if existing is not None:
        settings.for_new_stream(len(image.brokers))
        _same_or_refuse(existing, settings, labels or {}, owner)
        return None
    # A broker that is away for a moment counts: without it, the stream would get fewer replicas.
    config = settings.for_new_stream(sum(not broker.cordoned for broker in image.brokers.values()))
    return CreateStream(
        stream_id=stream_id,
        name=name,
        config=config,
        partitions=new_partitions(image, config.partitions, config.replication_factor, replicas),
        created_us=created_us,
        labels=dict(sorted((labels or {}).items())),
        owner=owner,
    )


def alter_stream(
    image: ClusterImage,
    name: str,
    settings: StreamSettings,
    *,
    expected_version: int | None = None,
    stream_id: bytes | None = None,
    owner: str | None = None,
    new_replicas: Replicas = (),
) -> AlterStream | None:
    """Changes the given settings of a stream, and its owner (None: no change). Returns None if nothing
    changes.

    `new_replicas`: of each added partition; empty: placement chooses.

    Raises `StreamNotFound`, `VersionConflict`, `InvalidRequest`, `ResourceExhausted`.
    """
    stream = _existing(image, name, expected_version, stream_id)
    old, new = stream.config, settings.on(stream.config)
    validate_owner(owner or "")
    claimed = owner is not None and owner != stream.owner
    if new == old and not claimed:
        return None
    if new.partitions < old.partitions:
        raise InvalidRequest(
            f"stream {name!r} has {old.partitions} partitions and {new.partitions} were asked for; "
            "partitions only grow, because records never move between them",
            field="partitions",
        )
    if new.partitions > old.partitions and old.subject and new.subject:
        # N6: leaders learn the new count at different moments, and would store a message twice, or
        # not at all.
        raise InvalidRequest(
            f"stream {name!r} records the subject {old.subject!r}, whose messages go to a partition by the "
            f"hash of their subject and the number of partitions; it cannot grow from {old.partitions} to "
            f"{new.partitions} meanwhile. Create another stream with more partitions, or take the subject "
            "away, let it grow, and give the subject back: what is published in between is not recorded",
            field="partitions",
        )
    if new.replication_factor != old.replication_factor:
        raise FeatureNotImplemented(
            f"stream {name!r} has a replication factor of {old.replication_factor}, which follows from the "
            "replicas of its partitions: reassign each partition to the desired number of brokers",
            field="replication_factor",
        )
    grown = new.partitions - old.partitions
    return AlterStream(
        stream_id=stream.id,
        config=new,
        new_partitions=new_partitions(image, grown, new.replication_factor, new_replicas) if grown else (),
        owner=owner if owner is not None and claimed else UNSET,
    )


def delete_stream(
    image: ClusterImage,
    name: str,
    *,
    expected_version: int | None = None,
    stream_id: bytes | None = None,
    internal: bool = False,
) -> DeleteStream:
    """Raises `StreamNotFound`, `VersionConflict`, or `InvalidRequest` for an internal stream."""
    if not internal and name in image.names:
        validate_stream_name(name)
    return DeleteStream(_existing(image, name, expected_version, stream_id).id)


def allocate_producer_ids(image: ClusterImage, broker_id: int, count: int) -> AllocateProducerIds:
    """The `count` ids from `image.next_producer_id` on; raises `ResourceExhausted` at their end."""
    if image.next_producer_id + count > PRODUCER_IDS_END:
        raise ResourceExhausted("all producer ids are in use")
    return AllocateProducerIds(broker_id=broker_id, count=count)


def existing_stream(image: ClusterImage, name: str, stream_id: bytes | None = None) -> StreamImage:
    """The stream of that name, if it has this id. Raises `StreamNotFound`."""
    stream = image.stream_named(name)
    if stream is None:
        raise StreamNotFound(f"there is no stream {name[:200]!r}", name=name[:200])
    if stream_id is not None and stream_id != stream.id:
        raise StreamNotFound(
            f"stream {name!r} has another id than the requested stream: that stream was deleted, "
            "and another one was created with its name",
            name=name,
        )
    return stream


def _existing(
    image: ClusterImage, name: str, expected_version: int | None, stream_id: bytes | None
) -> StreamImage:
    stream = existing_stream(image, name, stream_id)
    if expected_version is not None and expected_version != stream.version:
        raise VersionConflict(
            f"stream {name!r} is at version {stream.version}, not at {expected_version}; read it again",
            name=name,
            version=stream.version,
        )
    return stream


def _same_or_refuse(
    stream: StreamImage, settings: StreamSettings, labels: Mapping[str, str], owner: str
) -> None:
    """Creation is idempotent: the given settings must be the stream's; other settings do not matter."""
    differing = [
        f"{field} is {_show(have)}, not {_show(asked)}"
        for field, (have, asked) in settings.differing(stream.config).items()
    ]
    if labels and dict(labels) != stream.labels:
        differing.append(f"labels are {stream.labels}, not {dict(labels)}")
    if owner and owner != stream.owner:
        differing.append(f"owner is {stream.owner or 'not set'}, not {owner}")
    if differing:
        raise StreamExists(
            f"stream {stream.name!r} exists with other settings: {'; '.join(differing)}", name=stream.name
        )


def _show(value: object) -> str:
    """A setting's value as a user writes it; without the retention fields that are not set."""
    bounds = getattr(value, "__slots__", None)
    if not bounds or isinstance(value, str):
        return repr(str(value)) if isinstance(value, str) else str(value)
    pairs = ((name, getattr(value, name)) for name in bounds)
    return ", ".join(f"{name} {bound}" for name, bound in pairs if bound is not None) or "no bound"

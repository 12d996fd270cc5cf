"""A broker registers itself and its replicas, and the controller writes an entry or refuses (R10, M1).

One entry holds the registration, its consequences for the broker's replicas (R6), and the
elections that become possible or necessary.

The incarnations of two runs do not say which run is newer, and
the network may deliver a registration late. On the same disk the broker's own count of its
starts decides, and a late registration is refused. So is a directory that was restored from a copy (R19): it
counts fewer starts than the image, or the same number for another run. Without that (another disk) the late
registration wins until the live run learns of it, at its next heartbeat, and registers again: that
costs leaderships, but never a record, because the image ends with the run that is alive.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from tidelog.errors import InvalidRequest, Unavailable, UnsupportedVersion, VersionConflict
from tidelog.model import Listener, id_text
from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import (
    FEATURE_LEVEL,
    RegisterBroker,
    ReplicaName,
    ReplicasLost,
    Suspect,
    UnregisterBroker,
)
from tidelog_broker.core.metadata.controller.liveness import SESSION_MS, Sessions
from tidelog_broker.core.metadata.decisions.brokers import check_version, registered
from tidelog_broker.core.metadata.decisions.elections import DeprioritizedFor, elect, none_deprioritized
from tidelog_broker.core.metadata.image import BrokerImage, ClusterImage, Share


class Registration(NamedTuple):
    """What a broker reports when its process has started."""

    cluster_id: bytes
    broker_id: int
    incarnation: bytes
    directory_id: bytes
    listeners: tuple[Listener, ...] = ()
    rack: str = ""
    starts: int = 0
    """How often it has started on this disk; the count is kept on the disk. 0: not known."""
    feature_level_min: int = 1
    """The oldest feature level that its software supports."""
    feature_level_max: int = FEATURE_LEVEL
    """The newest feature level that its software understands."""
    suspects: tuple[Suspect, ...] = ()
    lost: tuple[ReplicaName, ...] = ()


def register(
    image: ClusterImage,
    registration: Registration,
    sessions: Sessions,
    now_ms: int,
    deprioritized: DeprioritizedFor = none_deprioritized,
) -> RegisterBroker | None:
    """The entry; None: the image has this run with the same description, and it is not fenced.

    Raises `InvalidRequest` (another cluster's broker, a disk that is another broker's),
    `UnsupportedVersion`, `VersionConflict` (a run that is over), `Unavailable` while another
    broker of this id is alive.
    """
    _check_cluster(image, registration)
    known = image.brokers.get(registration.broker_id)
    if known is not None:
        _check_run(known, registration, sessions, now_ms)
    command = RegisterBroker(
        broker_id=registration.broker_id,
        incarnation=registration.incarnation,
        directory_id=registration.directory_id,
        listeners=registration.listeners,
        rack=registration.rack,
        starts=registration.starts,
        suspects=registration.suspects,
        lost=tuple(name for name in registration.lost if not _is_only(image, registration.broker_id, name)),
    )
    if known is not None and known.incarnation == command.incarnation and not known.fenced:
        same = (known.directory_id, known.listeners, known.rack, known.starts) == (
            command.directory_id,
            command.listeners,
            command.rack,
            command.starts,
        )
        if same:
            return None
    return replace(
        command, changes=elect(apply(image, command, image.version + 1), deprioritized=deprioritized)
    )


def _is_only(image: ClusterImage, broker: int, name: ReplicaName) -> bool:
    """Whether it is the partition's only replica. It stays assigned without a log: no other copy exists
    (2c)."""
    placed = image.partition(name.stream_id, name.partition)
    return placed is not None and placed.replicas == (broker,)


def unregister(
    image: ClusterImage,
    broker: int,
    sessions: Sessions,
    now_ms: int,
    *,
    only_if_empty: bool = False,
    expected_version: int | None = None,
) -> UnregisterBroker:
    """Removes `broker` for good, by command. Raises `InvalidRequest`.

    It is refused while the broker is alive and holds replicas: they would be lost without need. With
    `only_if_empty` it is refused also for a broker that is away. With `expected_version` it raises
    `VersionConflict` if an administrator changed the broker since, or another broker registered with its id.
    """
    known = registered(image, broker)
    check_version(known, expected_version)
    share = image.shares.get(broker)
    if share is not None and only_if_empty:
        raise InvalidRequest(
            f"broker {broker} holds {_replicas(share)} and must be empty; drain it first",
            field="broker",
        )
    if share is not None and not known.fenced and sessions.is_alive(known, now_ms):
        raise InvalidRequest(
            f"broker {broker} is alive and holds {_replicas(share)}; drain it or stop it first",
            field="broker",
        )
    command = UnregisterBroker(broker)
    return replace(command, changes=elect(apply(image, command, image.version + 1)))


def lose(
    image: ClusterImage,
    broker: int,
    incarnation: bytes,
    partitions: tuple[ReplicaName, ...],
    deprioritized: DeprioritizedFor = none_deprioritized,
) -> ReplicasLost:
    """A run of a broker set logs aside. Raises `VersionConflict` if another run is registered."""
    known = image.brokers.get(broker)
    if known is None or known.incarnation != incarnation:
        raise VersionConflict(f"this run of broker {broker} is not the registered one; register again")
    command = ReplicasLost(broker, incarnation, partitions)
    concerned = [(one.stream_id, one.partition) for one in partitions]
    after = apply(image, command, image.version + 1)
    return replace(command, changes=elect(after, concerned, deprioritized=deprioritized))


def put_back(known: BrokerImage, directory_id: bytes, starts: int) -> str:
    """R19: why start number `starts` on this directory cannot be the next run; empty: it can.

    Each run is counted on the disk before it registers, so a later run has a greater number, unless the
    directory, with its count, is an old copy.
    """
    if known.directory_id != directory_id or starts > known.starts:
        return ""
    return (
        f"broker {known.id} has registered start number {known.starts} on its data directory, and this would "
        f"be number {starts}: the directory was put back from a copy that lacks what the broker acknowledged "
        "since. Empty the directory and start the broker again; the other brokers refill it"
    )


def _replicas(share: Share) -> str:
    return f"{share.replicas} replica{'' if share.replicas == 1 else 's'}"


def _check_cluster(image: ClusterImage, registration: Registration) -> None:
    if registration.cluster_id != image.cluster_id:
        raise InvalidRequest(
            f"broker {registration.broker_id} belongs to the cluster {id_text(registration.cluster_id)}, "
            f"and this is the cluster {id_text(image.cluster_id)}; check the addresses and the data "
            "directory",
            field="cluster_id",
        )
    if not registration.feature_level_min <= image.feature_level <= registration.feature_level_max:
        what = "a later" if image.feature_level > registration.feature_level_max else "an earlier"
        raise UnsupportedVersion(
            f"the cluster is at feature level {image.feature_level} and broker {registration.broker_id} "
            f"knows {registration.feature_level_min} to {registration.feature_level_max}; "
            f"run {what} version of tidelog-broker",
        )
    for other in image.brokers.values():
        if other.directory_id == registration.directory_id and other.id != registration.broker_id:
            raise InvalidRequest(
                f"the data directory {id_text(registration.directory_id)} belongs to broker {other.id}; "
                f"broker {registration.broker_id} needs its own data directory",
                field="directory_id",
            )


def _check_run(known: BrokerImage, registration: Registration, sessions: Sessions, now_ms: int) -> None:
    if known.directory_id != registration.directory_id:
        if not known.fenced and sessions.is_alive(known, now_ms):
            raise Unavailable(
                f"broker {known.id} is alive with another data directory; if it was replaced, try again "
                "when its session has ended; otherwise give one of the two brokers another id",
                retry_after_ms=SESSION_MS,
            )
    elif known.incarnation != registration.incarnation and registration.starts > 0:
        reason = put_back(known, registration.directory_id, registration.starts)
        if reason:
            raise VersionConflict(reason)

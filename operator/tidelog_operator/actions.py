"""Everything that the operator can do, as values: `plan` returns them and `apply` executes them.

An action that changes a stream, its replicas, a broker, or the number of pods names the version or the id
that it depends on. It changes nothing if another client, for example another operator, has changed the object
since then. The other actions may be executed twice or late: an election moves leadership only to preferred
leaders, and every reconciliation compares an object with its whole manifest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from tidelog.model import PartitionVersion, StreamSettings
from tidelog_operator.model import Manifest, ObjectKey, StreamClaim

NOTHING: Final = StreamSettings()

Replicas: TypeAlias = tuple[tuple[int, ...], ...]
"""The replicas of each partition, the preferred leader first."""


@dataclass(frozen=True, slots=True)
class CreateStream:
    object: ObjectKey
    name: str
    settings: StreamSettings
    owner: str
    replicas: Replicas


@dataclass(frozen=True, slots=True)
class AlterStream:
    """Changes the settings, the owner, or both; a value of None stays as it is."""

    object: ObjectKey
    name: str
    stream_id: bytes
    expected_version: int
    settings: StreamSettings = NOTHING
    owner: str | None = None
    new_replicas: Replicas = ()
    former: StreamClaim | None = None
    """The claim of the previous owner. The stream is taken over only if that object no longer exists. None:
    the stream has no previous owner that must be looked up."""


@dataclass(frozen=True, slots=True)
class RetainStream:
    """Keeps the stream on the brokers without an owner, if the object that claimed it no longer exists."""

    claim: StreamClaim
    name: str
    stream_id: bytes
    expected_version: int
    owner: str
    """The new owner text; it names the object that was deleted."""


@dataclass(frozen=True, slots=True)
class DeleteStream:
    object: ObjectKey
    name: str
    stream_id: bytes
    expected_version: int


@dataclass(frozen=True, slots=True)
class MovePartition:
    """Changes the replicas of one partition."""

    name: str
    partition: int
    replicas: tuple[int, ...]
    expected: PartitionVersion


@dataclass(frozen=True, slots=True)
class Reassign:
    """Changes the replicas of several partitions: all of them or none."""

    moves: tuple[MovePartition, ...]
    why: str


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    kind: str
    object: ObjectKey


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    kind: str
    object: ObjectKey


@dataclass(frozen=True, slots=True)
class CordonBroker:
    broker: int
    expected_version: int


@dataclass(frozen=True, slots=True)
class UncordonBroker:
    broker: int
    expected_version: int


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    broker: int
    expected_version: int
    """0: the broker seems not to be registered."""


@dataclass(frozen=True, slots=True)
class SetBrokerCount:
    """Sets the StatefulSet to `count` pods if it has `expected`, and records that the brokers `draining` will
    be removed."""

    expected: int
    count: int
    draining: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ElectPreferred:
    """Gives leadership of these streams back to the preferred leaders."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Throttle:
    """Limits how fast a leader sends data to replicas that are far behind."""

    bytes_per_second: int


@dataclass(frozen=True, slots=True)
class CreateObject:
    """Creates a Kubernetes object if it does not exist."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class ApplyObject:
    """Applies all fields of a Kubernetes object that the operator owns."""

    manifest: Manifest
    version: str = ""
    """The resourceVersion that the action depends on; empty: any version."""


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Deletes a Kubernetes object if it still has this uid."""

    kind: str
    object: ObjectKey
    uid: str


@dataclass(frozen=True, slots=True)
class SetLowestCount:
    """Records the lowest number of pods that the admission policy allows (K1); None: the Cluster does not
    exist."""

    cluster: ObjectKey
    count: int | None


BrokerAction: TypeAlias = CordonBroker | UncordonBroker | UnregisterBroker | Reassign | ElectPreferred
"""Actions that change brokers and the replicas that they hold."""

ClusterAction: TypeAlias = (
    BrokerAction | Throttle | RetainStream | CreateObject | ApplyObject | DeleteObject | SetLowestCount
)
"""Actions that `apply` executes for a Cluster."""

StreamAction: TypeAlias = (
    CreateStream | AlterStream | DeleteStream | Reassign | AddFinalizer | RemoveFinalizer
)
"""Actions that `apply` executes for a Stream."""

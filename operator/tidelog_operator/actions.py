"""What can be done, as values: `plan` says it, `apply` does it.

What changes a stream, its replicas, a broker, or the number of pods names what it rests on (a version, an
id), so that it does nothing when that is not so any more, whoever changed it: another operator, too. The
others may be done twice, or late: leadership goes only where it would go anyway, and what is applied whole
is compared with its manifest by every pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from tidelog.model import PartitionVersion, StreamSettings
from tidelog_operator.model import Manifest, ObjectKey, StreamClaim

NOTHING: Final = StreamSettings()

Replicas: TypeAlias = tuple[tuple[int, ...], ...]
"""Of each partition, the preferred leader first."""


@dataclass(frozen=True, slots=True)
class CreateStream:
    object: ObjectKey
    name: str
    settings: StreamSettings
    owner: str
    replicas: Replicas


@dataclass(frozen=True, slots=True)
class AlterStream:
    """Settings, owner, or both; what is None stays."""

    object: ObjectKey
    name: str
    stream_id: bytes
    expected_version: int
    settings: StreamSettings = NOTHING
    owner: str | None = None
    new_replicas: Replicas = ()
    former: StreamClaim | None = None
    """Whose stream it was: it is taken over if that object is no more. None: nobody's that is to be found."""


@dataclass(frozen=True, slots=True)
class RetainStream:
    """It stays among the brokers, owned by nobody, if the object that claimed it is no more."""

    claim: StreamClaim
    name: str
    stream_id: bytes
    expected_version: int
    owner: str
    """It says whose it was."""


@dataclass(frozen=True, slots=True)
class DeleteStream:
    object: ObjectKey
    name: str
    stream_id: bytes
    expected_version: int


@dataclass(frozen=True, slots=True)
class MovePartition:
    """One partition gets other replicas."""

    name: str
    partition: int
    replicas: tuple[int, ...]
    expected: PartitionVersion


@dataclass(frozen=True, slots=True)
class Reassign:
    """Together, or none of them."""

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
    """0: there seems to be none."""


@dataclass(frozen=True, slots=True)
class SetBrokerCount:
    """The StatefulSet has `count` pods, if it had `expected`, and the brokers `emptying` are to go."""

    expected: int
    count: int
    draining: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ElectPreferred:
    """Leadership of these streams goes back to the preferred leaders."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Throttle:
    """Copies that are far behind are fed so fast."""

    bytes_per_second: int


@dataclass(frozen=True, slots=True)
class CreateObject:
    """In Kubernetes, if it is not there."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class ApplyObject:
    """In Kubernetes: everything that the operator owns of it."""

    manifest: Manifest
    version: str = ""
    """The object's resourceVersion on which it rests; empty: whatever is there."""


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """In Kubernetes, if it is still the one with this uid."""

    kind: str
    object: ObjectKey
    uid: str


@dataclass(frozen=True, slots=True)
class SetLowestCount:
    """Nobody but the operator may take pods of the Cluster below `count` (K1); None: there is no Cluster."""

    cluster: ObjectKey
    count: int | None


BrokerAction: TypeAlias = CordonBroker | UncordonBroker | UnregisterBroker | Reassign | ElectPreferred
"""About the brokers and what each of them holds."""

ClusterAction: TypeAlias = (
    BrokerAction | Throttle | RetainStream | CreateObject | ApplyObject | DeleteObject | SetLowestCount
)
"""For a Cluster, as it is carried out."""

StreamAction: TypeAlias = (
    CreateStream | AlterStream | DeleteStream | Reassign | AddFinalizer | RemoveFinalizer
)
"""For a Stream."""

"""What an entry of the metadata log can say, and its bytes (M6).

MessagePack maps with a tag: fields at their default are left out, fields that a reader
does not know are skipped, so a command may gain fields. A tag or enum value that is not
known is another matter: skipping it would make images differ, so decoding refuses it.
The tags and field names below are a file format: they are never changed or used again.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from tidelog.model import Listener, StreamConfig
from tidelog_broker.core.metadata.image import Vote
from tidelog_broker.errors import DataDirectoryError

FEATURE_LEVEL = 2
"""The newest that this software understands (`feature_levels`)."""


class FormatCluster(msgspec.Struct, frozen=True, omit_defaults=True, tag="format"):
    """The first command of every cluster."""

    cluster_id: bytes
    feature_level: int = 1
    """Of the software that formatted it; of entries that do not say, the first one there was."""


class RaiseFeatureLevel(msgspec.Struct, frozen=True, omit_defaults=True, tag="level"):
    """Every registered broker understands this feature level; ignored if it is no higher."""

    level: int


class PartitionChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What becomes of one partition; fields that are not set stay as they are.

    Who is eligible or last known is nobody's to say: it follows from the rest (R6). A
    change that sets nothing still takes the partition epoch forward, and so makes every
    proposal void that is on its way (`isr_changes`).
    """

    stream_id: bytes
    partition: int
    replicas: tuple[int, ...] | UnsetType = UNSET
    adding: tuple[int, ...] | UnsetType = UNSET
    removing: tuple[int, ...] | UnsetType = UNSET
    isr: tuple[int, ...] | UnsetType = UNSET
    leader: int | UnsetType | None = UNSET
    """A broker: it is elected, in a new epoch, after `isr` is what this says. None: nobody leads."""
    unclean: bool = False
    """Of an election: the new leader may lack committed records."""


class ReplicaName(msgspec.Struct, frozen=True):
    """One partition, of which a broker speaks as of its replica."""

    stream_id: bytes
    partition: int
    assignment: int = 0
    """Of the replica that is meant (R16)."""


class Suspect(msgspec.Struct, frozen=True):
    """A replica that may lack what it acknowledged, and what it has (R6)."""

    stream_id: bytes
    partition: int
    leader_epoch: int
    """Of its last record."""
    log_end_offset: int
    assignment: int = 0
    """Of the replica that is meant (R16)."""


class RegisterBroker(msgspec.Struct, frozen=True, omit_defaults=True, tag="register"):
    """A process of a broker has started (R10); with the same incarnation: its facts changed."""

    broker_id: int
    incarnation: bytes
    directory_id: bytes
    listeners: tuple[Listener, ...] = ()
    rack: str = ""
    solo_epoch: int = 0
    """Not 0: a cluster without a quorum. It leads, from this entry on and in this epoch,
    what it is in sync for."""
    starts: int = 0
    """The broker's own count of its starts on this disk; 0: it did not say."""
    suspects: tuple[Suspect, ...] = ()
    """Those of its replicas that leave ISR and eligible and are last known (R6)."""
    lost: tuple[ReplicaName, ...] = ()
    """Those that have no usable log: as with a new disk, for these partitions only."""
    changes: tuple[PartitionChange, ...] = ()
    """Elections decided on the image after the effects of the registration."""


class ChangeBroker(msgspec.Struct, frozen=True, omit_defaults=True, tag="broker"):
    """Fences, stops or cordons a broker, ends that, or says of its vote.

    Ignored if another incarnation is registered."""

    broker_id: int
    incarnation: bytes = b""
    """The one that is meant; empty: whichever is registered."""
    fenced: bool | UnsetType = UNSET
    """True: it leaves every ISR and leadership in this entry (R14, R6)."""
    stopping: bool | UnsetType = UNSET
    cordoned: bool | UnsetType = UNSET
    vote: Vote | UnsetType = UNSET
    changes: tuple[PartitionChange, ...] = ()
    """Decided on the image after that."""


class UnregisterBroker(msgspec.Struct, frozen=True, omit_defaults=True, tag="unregister"):
    """A broker is gone for good: out of ISR, eligible and last known, and of the image (R6)."""

    broker_id: int
    changes: tuple[PartitionChange, ...] = ()
    """Decided on the image after that."""


class ReplicasLost(msgspec.Struct, frozen=True, omit_defaults=True, tag="lost"):
    """A running broker had to set logs aside (DESIGN 4.2c); ignored if another incarnation is registered."""

    broker_id: int
    incarnation: bytes
    partitions: tuple[ReplicaName, ...]
    changes: tuple[PartitionChange, ...] = ()
    """Decided on the image after that."""


class NewPartition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A partition as it begins: its replicas are all empty, so they are all in sync."""

    replicas: tuple[int, ...]
    """The preferred leader first."""
    leader: int
    leader_epoch: int


class CreateStream(msgspec.Struct, frozen=True, omit_defaults=True, tag="create"):
    stream_id: bytes
    name: str
    config: StreamConfig
    partitions: tuple[NewPartition, ...]
    created_us: int
    """The controller's clock (M3)."""
    labels: dict[str, str] = {}
    owner: str = ""


class AlterStream(msgspec.Struct, frozen=True, omit_defaults=True, tag="alter"):
    stream_id: bytes
    config: StreamConfig
    """As a whole, so that replay never depends on the defaults of a software version."""
    new_partitions: tuple[NewPartition, ...] = ()
    """Behind those that are there; `config.partitions` counts them already."""
    owner: str | UnsetType = UNSET


class DeleteStream(msgspec.Struct, frozen=True, omit_defaults=True, tag="delete"):
    stream_id: bytes


class AllocateProducerIds(msgspec.Struct, frozen=True, omit_defaults=True, tag="producers"):
    """The `count` ids from the image's `next_producer_id` on belong to this broker."""

    broker_id: int
    count: int


class SetThrottle(msgspec.Struct, frozen=True, omit_defaults=True, tag="throttle"):
    """How fast replicas that are far behind are fed."""

    bytes_per_second: int
    """From one broker to another; 0: as each broker is set."""


class ChangePartitions(msgspec.Struct, frozen=True, omit_defaults=True, tag="partitions"):
    """Elections and changes of ISRs and replicas; one entry for thousands (M4)."""

    changes: tuple[PartitionChange, ...]


class RecoverCluster(msgspec.Struct, frozen=True, omit_defaults=True, tag="recover"):
    """The metadata goes on by force from an image that may lack its newest changes (M2).

    What those gave out (epochs, producer ids) is in logs and in clients, and must not be given again.
    """

    recovery: bytes
    """Id of the `Recovery` in the configuration before it."""
    epoch_stride: int
    """Leader epochs and partition epochs grow by so much."""
    producer_id_stride: int


Command: TypeAlias = (
    FormatCluster
    | RaiseFeatureLevel
    | RegisterBroker
    | ChangeBroker
    | UnregisterBroker
    | ReplicasLost
    | CreateStream
    | AlterStream
    | DeleteStream
    | AllocateProducerIds
    | SetThrottle
    | ChangePartitions
    | RecoverCluster
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)


def encode_command(command: Command) -> bytes:
    return _encoder.encode(command)


def decode_command(payload: bytes) -> Command:
    """Raises `DataDirectoryError` for a command of a later version: it must not be skipped."""
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, ValueError) as error:
        raise DataDirectoryError(
            f"the metadata log holds a command that this version does not understand ({error}); "
            "start the version of tidelog-broker that wrote it, or a later one"
        ) from error

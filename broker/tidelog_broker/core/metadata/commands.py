"""The commands of the metadata log's entries, and their bytes (M6).

A command is a MessagePack map with a tag. Fields at their default are left out, and a reader skips fields
that it does not know, so a command may gain fields. Decoding refuses an unknown tag or enum value,
because skipping it would make images differ.
The tags and field names below are a file format: never change them, and never use one again.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from tidelog.model import Listener, StreamConfig
from tidelog.model.access import AclRule
from tidelog.model.quotas import Quota
from tidelog_broker.core.metadata.image import Vote
from tidelog_broker.errors import DataDirectoryError

FEATURE_LEVEL = 4
"""The newest level that this software understands (`feature_levels`)."""


class FormatCluster(msgspec.Struct, frozen=True, omit_defaults=True, tag="format"):
    """The first command of every cluster."""

    cluster_id: bytes
    feature_level: int = 1
    """Of the software that formatted the cluster; the first level if the entry does not have the field."""


class RaiseFeatureLevel(msgspec.Struct, frozen=True, omit_defaults=True, tag="level"):
    """Every registered broker understands this feature level; ignored if it is no higher."""

    level: int


class PartitionChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of one partition; fields that are not set stay as they are.

    A command cannot set the eligible and last-known replicas: they follow from the rest (R6). A
    change that sets no field still raises the partition epoch, and so makes every
    proposal void that is on its way (`decisions.isr_changes`).
    """

    stream_id: bytes
    partition: int
    replicas: tuple[int, ...] | UnsetType = UNSET
    adding: tuple[int, ...] | UnsetType = UNSET
    removing: tuple[int, ...] | UnsetType = UNSET
    isr: tuple[int, ...] | UnsetType = UNSET
    leader: int | UnsetType | None = UNSET
    """A broker: it is elected, in a new epoch, after `isr` is applied. None: the partition has no leader."""
    unclean: bool = False
    """In an election: the new leader may lack committed records."""


class ReplicaName(msgspec.Struct, frozen=True):
    """A broker's replica of one partition."""

    stream_id: bytes
    partition: int
    assignment: int = 0
    """The assignment of the replica (R16)."""


class Suspect(msgspec.Struct, frozen=True):
    """A replica that may lack records that it acknowledged, and the end of its log (R6)."""

    stream_id: bytes
    partition: int
    leader_epoch: int
    """Of its last record."""
    log_end_offset: int
    assignment: int = 0
    """The assignment of the replica (R16)."""


class RegisterBroker(msgspec.Struct, frozen=True, omit_defaults=True, tag="register"):
    """A process of a broker started (R10). With the same incarnation: its description changed."""

    broker_id: int
    incarnation: bytes
    directory_id: bytes
    listeners: tuple[Listener, ...] = ()
    rack: str = ""
    solo_epoch: int = 0
    """Not 0: a cluster without a quorum. From this entry on, the broker leads in this epoch
    every partition whose ISR it is in."""
    starts: int = 0
    """The broker's own count of its starts on this disk; 0: not known."""
    suspects: tuple[Suspect, ...] = ()
    """Its replicas that leave the ISR and the eligible replicas, and become last known (R6)."""
    lost: tuple[ReplicaName, ...] = ()
    """Its replicas that have no usable log: as with a new disk, for these partitions only."""
    changes: tuple[PartitionChange, ...] = ()
    """Elections decided on the image after the effects of the registration."""


class ChangeBroker(msgspec.Struct, frozen=True, omit_defaults=True, tag="broker"):
    """Fences, stops or cordons a broker, ends one of these states, or sets its vote.

    Ignored if another incarnation is registered.
    """

    broker_id: int
    incarnation: bytes = b""
    """The run that the command is for; empty: the registered run."""
    fenced: bool | UnsetType = UNSET
    """True: it leaves every ISR and loses every leadership in this entry (R14, R6)."""
    stopping: bool | UnsetType = UNSET
    cordoned: bool | UnsetType = UNSET
    vote: Vote | UnsetType = UNSET
    changes: tuple[PartitionChange, ...] = ()
    """Decided on the image after the fields above."""


class UnregisterBroker(msgspec.Struct, frozen=True, omit_defaults=True, tag="unregister"):
    """Removes a broker for good: from the ISRs, the eligible and last-known replicas, and the image (R6)."""

    broker_id: int
    changes: tuple[PartitionChange, ...] = ()
    """Decided on the image without the broker."""


class ReplicasLost(msgspec.Struct, frozen=True, omit_defaults=True, tag="lost"):
    """A running broker had to set logs aside (DESIGN 4.2c); ignored if another incarnation is registered."""

    broker_id: int
    incarnation: bytes
    partitions: tuple[ReplicaName, ...]
    changes: tuple[PartitionChange, ...] = ()
    """Decided on the image after the loss."""


class NewPartition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A new partition: all its replicas are empty, so all are in sync."""

    replicas: tuple[int, ...]
    """The preferred leader first."""
    leader: int
    leader_epoch: int


class CreateStream(msgspec.Struct, frozen=True, omit_defaults=True, tag="create"):
    """Creates a stream; ignored if its name or its id exists."""

    stream_id: bytes
    name: str
    config: StreamConfig
    partitions: tuple[NewPartition, ...]
    created_us: int
    """The controller's clock (M3)."""
    labels: dict[str, str] = {}
    owner: str = ""


class AlterStream(msgspec.Struct, frozen=True, omit_defaults=True, tag="alter"):
    """Changes a stream's configuration, adds partitions, or sets its owner."""

    stream_id: bytes
    config: StreamConfig
    """The whole configuration, so that replay never depends on the defaults of a software version."""
    new_partitions: tuple[NewPartition, ...] = ()
    """Added after the existing partitions; `config.partitions` includes them."""
    owner: str | UnsetType = UNSET


class DeleteStream(msgspec.Struct, frozen=True, omit_defaults=True, tag="delete"):
    """Deletes a stream."""

    stream_id: bytes


class AllocateProducerIds(msgspec.Struct, frozen=True, omit_defaults=True, tag="producers"):
    """Gives this broker the `count` ids from the image's `next_producer_id` on."""

    broker_id: int
    count: int


class OpenSink(msgspec.Struct, frozen=True, omit_defaults=True, tag="sink"):
    """A run of a sink begins to write a batch (S3); the first run makes the sink known."""

    name: str
    number: int
    """Of the sink; greater than that of every sink before, if the sink is new."""
    run: int
    batch_id: int
    batch_us: int
    """The time of the batch, the same for all runs that write it: records without a timestamp get it. µs."""
    stream_id: bytes
    partitions: int
    """Of the stream, when the batch was first opened: rows are spread over so many, in all runs."""
    once: bool = False
    """The sink writes one batch only."""
    forgets: str = ""
    """A sink that is forgotten because there are too many; empty: none."""


class CloseSink(msgspec.Struct, frozen=True, omit_defaults=True, tag="sink-"):
    """A sink that writes one batch only has written it."""

    name: str


class SetThrottle(msgspec.Struct, frozen=True, omit_defaults=True, tag="throttle"):
    """Limits the rate at which replicas that are far behind fetch."""

    bytes_per_second: int
    """From one broker to another; 0: the setting of each broker."""


class ChangeAcl(msgspec.Struct, frozen=True, omit_defaults=True, tag="acl"):
    """Adds and removes rules (A4); a rule that is there is not added again."""

    added: tuple[AclRule, ...] = ()
    removed: tuple[AclRule, ...] = ()


class AddToken(msgspec.Struct, frozen=True, omit_defaults=True, tag="token"):
    """A token of a principal; ignored if it exists."""

    hash: bytes
    """The SHA-256 of the token. The token itself is in no file of a broker."""
    principal: str
    created_us: int
    expires_us: int = 0
    """0: never."""
    note: str = ""


class RemoveToken(msgspec.Struct, frozen=True, omit_defaults=True, tag="token-"):
    """Withdraws a token."""

    hash: bytes


class SetQuota(msgspec.Struct, frozen=True, omit_defaults=True, tag="quota"):
    """What a principal may use of each broker; it replaces what it might use before (A10)."""

    quota: Quota


class RemoveQuota(msgspec.Struct, frozen=True, omit_defaults=True, tag="quota-"):
    """The principal may use what principals without a quota may use."""

    principal: str


class ChangePartitions(msgspec.Struct, frozen=True, omit_defaults=True, tag="partitions"):
    """Elections and changes of ISRs and replicas; one entry for thousands of partitions (M4)."""

    changes: tuple[PartitionChange, ...]


class RecoverCluster(msgspec.Struct, frozen=True, omit_defaults=True, tag="recover"):
    """A forced recovery: the metadata continues from an image that may lack its newest changes (M2).

    Epochs and producer ids of the lacking changes are in logs and in clients, and must not be given again.
    """

    recovery: bytes
    """Id of the `Recovery` in the configuration entry before this one."""
    epoch_stride: int
    """Leader epochs and partition epochs grow by this number."""
    producer_id_stride: int
    """The next producer id grows by this number."""
    sink_number_stride: int = 0
    """The next number of a sink grows by this number."""


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
    | OpenSink
    | CloseSink
    | SetThrottle
    | ChangeAcl
    | AddToken
    | RemoveToken
    | SetQuota
    | RemoveQuota
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

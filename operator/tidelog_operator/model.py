"""Manifests as typed values: parsed once, where objects enter the operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from tidelog.model import Durability, NatsAck, Retention, StreamSettings
from tidelog_operator.field_values import choice, duration_ms, size_bytes
from tidelog_operator.listeners import Listener, read_listener

GROUP: Final = "tidelog.io"
VERSION: Final = "v1alpha1"
STREAM: Final = "Stream"
CLUSTER: Final = "Cluster"
INGESTION: Final = "Ingestion"

FINALIZER: Final = "tidelog.io/operator"
"""The finalizer of a Stream with `deletionPolicy: Delete`: the Stream is removed only after its records.
Other Streams have none, so that they can be deleted when the operator no longer runs."""

CLAIM_PREFIX: Final = "kubernetes:"
"""Prefix of the owner of a stream that a Stream object has claimed."""

Manifest = Mapping[str, Any]


class ObjectKey(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class StreamClaim(NamedTuple):
    """The owner of a stream among the brokers: one Stream object, identified by its uid. A later object of
    the same name is another owner."""

    key: ObjectKey
    uid: str

    def __str__(self) -> str:
        return f"{CLAIM_PREFIX}{self.key}/{self.uid}"


class DeletionPolicy(StrEnum):
    RETAIN = "Retain"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class StreamObject:
    """The spec, metadata and status of a Stream."""

    kind: ClassVar[str] = STREAM

    key: ObjectKey
    uid: str
    generation: int
    created: str
    """RFC 3339; of two objects that claim the same stream the older one gets it."""
    deleting: bool
    finalizers: tuple[str, ...]
    version: str
    """The object's resourceVersion; writes depend on it."""
    cluster: str
    stream_name: str
    settings: StreamSettings
    """All settings but the replication factor are set: the API server fills in the defaults."""
    deletion_policy: DeletionPolicy
    status: Manifest
    unreadable: str = ""
    """Why this operator cannot read the settings although they passed the schema; empty: it can. The Stream
    keeps its claim, and it can be deleted."""

    @property
    def finalized(self) -> bool:
        """Whether its deletion waits for the operator."""
        return FINALIZER in self.finalizers

    @property
    def claim(self) -> str:
        """The owner text of its stream among the brokers. Another object of the same name has another one."""
        return str(StreamClaim(self.key, self.uid))

    @property
    def needs_no_operator(self) -> bool:
        """Whether it can be deleted without the operator. A policy that this operator cannot read counts as
        one that needs the operator until the Stream is deleted."""
        return self.deletion_policy is DeletionPolicy.RETAIN and (self.deleting or not self.unreadable)

    @property
    def age_rank(self) -> tuple[str, str]:
        """Smaller for older objects."""
        return (self.created, self.uid)


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """The desired state of the brokers."""

    brokers: int
    image: str
    image_pull_policy: str
    """Empty: the default of Kubernetes."""
    image_pull_secrets: tuple[str, ...]
    storage_size: str
    storage_class: str
    """Empty: the default storage class."""
    resources: Manifest
    node_selector: Mapping[str, str]
    tolerations: tuple[Manifest, ...]
    priority_class: str
    """Empty: none."""
    rack_label: str
    listeners: tuple[Listener, ...]
    """Listeners for clients outside of Kubernetes, besides the internal listener."""
    broker_settings: Mapping[str, int | str]
    """By the names in the brokers' settings file; settings that the manifest leaves out are left out."""
    throttle_bytes_per_second: int | None
    """None: the manifest sets no limit."""
    replace_after_ms: int
    moves_at_once: int
    balance: bool


@dataclass(frozen=True, slots=True)
class ClusterObject:
    """The spec, metadata and status of a Cluster."""

    kind: ClassVar[str] = CLUSTER

    key: ObjectKey
    uid: str
    """A UUID; also the id of the cluster that its brokers form."""
    generation: int
    deleting: bool
    version: str
    """The object's resourceVersion."""
    spec: ClusterSpec
    status: Manifest


@dataclass(frozen=True, slots=True)
class UnreadableCluster:
    """A Cluster that passed the schema, but that this operator cannot read."""

    kind: ClassVar[str] = CLUSTER

    key: ObjectKey
    uid: str
    generation: int
    version: str
    status: Manifest
    why: str


class CustomResource(Protocol):
    """An object with a status that the operator writes."""

    kind: ClassVar[str]

    @property
    def key(self) -> ObjectKey: ...

    @property
    def uid(self) -> str: ...

    @property
    def version(self) -> str:
        """The object's resourceVersion."""

    @property
    def status(self) -> Manifest: ...


@dataclass(frozen=True, slots=True)
class BrokerPod:
    """The pod of a broker."""

    name: str
    uid: str
    broker_id: int
    ip: str
    """Empty: it has no address yet."""
    node: str
    ready: bool
    deleting: bool
    waiting_reason: str = ""
    """Why it does not run, in the words of Kubernetes. Empty: it runs or starts normally."""
    damaged: bool = False
    """Its broker refuses to start because its volume is damaged."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The PersistentVolumeClaim of a broker."""

    name: str
    uid: str
    broker_id: int
    phase: str
    deleting: bool


def read_stream(manifest: Manifest) -> StreamObject:
    """Parses a Stream; `unreadable` says why a spec that passed the schema cannot be read."""
    meta, spec = manifest["metadata"], manifest["spec"]
    settings, policy, unreadable = StreamSettings(), DeletionPolicy.RETAIN, ""
    try:
        policy = choice(DeletionPolicy, "deletionPolicy", spec["deletionPolicy"])
        settings = _settings(spec)
    except (ValueError, KeyError, TypeError) as error:
        unreadable = why_unreadable(error)
    return StreamObject(
        key=ObjectKey(meta["namespace"], meta["name"]),
        uid=meta["uid"],
        generation=meta["generation"],
        created=meta["creationTimestamp"],
        deleting="deletionTimestamp" in meta,
        finalizers=tuple(meta.get("finalizers", ())),
        version=meta["resourceVersion"],
        cluster=spec["cluster"],
        stream_name=spec.get("streamName") or meta["name"],
        settings=settings,
        deletion_policy=policy,
        status=manifest.get("status") or {},
        unreadable=unreadable,
    )


def read_claim(owner: str) -> StreamClaim | None:
    """Parses an owner; None: no Stream object owns the stream."""
    match owner.removeprefix(CLAIM_PREFIX).split("/"):
        case [namespace, name, uid] if owner.startswith(CLAIM_PREFIX):
            return StreamClaim(ObjectKey(namespace, name), uid)
        case _:
            return None


def read_cluster(manifest: Manifest) -> ClusterObject | UnreadableCluster:
    meta, status = manifest["metadata"], manifest.get("status") or {}
    key = ObjectKey(meta["namespace"], meta["name"])
    try:
        spec = _cluster_spec(manifest["spec"])
    except (ValueError, KeyError, TypeError) as error:
        why, version = why_unreadable(error), meta["resourceVersion"]
        return UnreadableCluster(key, meta["uid"], meta["generation"], version, status, why)
    return ClusterObject(
        key=key,
        uid=meta["uid"],
        generation=meta["generation"],
        deleting="deletionTimestamp" in meta,
        version=meta["resourceVersion"],
        spec=spec,
        status=status,
    )


def why_unreadable(error: Exception) -> str:
    """Returns why a spec that passed the schema cannot be read."""
    what = f"the field {error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
    return (
        f"This operator cannot read the spec: {what}. If the spec was written for a newer version of "
        "Tidelog, upgrade the operator."
    )


def _cluster_spec(spec: Manifest) -> ClusterSpec:
    storage, settings, moves = spec["storage"], spec.get("settings") or {}, spec["moves"]
    throttle = settings.get("catchUpBytesPerSecond")
    return ClusterSpec(
        brokers=spec["brokers"],
        image=spec["image"],
        image_pull_policy=spec.get("imagePullPolicy", ""),
        image_pull_secrets=tuple(one["name"] for one in spec.get("imagePullSecrets", ())),
        storage_size=str(storage["size"]),
        storage_class=storage.get("storageClassName", ""),
        resources=spec.get("resources") or {},
        node_selector=spec.get("nodeSelector") or {},
        tolerations=tuple(spec.get("tolerations") or ()),
        priority_class=spec.get("priorityClassName", ""),
        rack_label=spec["rackLabel"],
        listeners=tuple(read_listener(one) for one in spec.get("listeners") or ()),
        broker_settings=_broker_settings(spec, settings),
        throttle_bytes_per_second=None if throttle is None else size_bytes(throttle),
        replace_after_ms=duration_ms(spec["replaceAfter"]),
        moves_at_once=moves["atOnce"],
        balance=moves["balance"],
    )


def _broker_settings(spec: Manifest, settings: Manifest) -> dict[str, int | str]:
    found: dict[str, int | str] = {"voters": spec["voters"]}
    if "nats" in spec:
        found["nats"] = spec["nats"]["url"]
    if "scrubBytesPerSecond" in settings:
        found["scrub_bytes_per_second"] = size_bytes(settings["scrubBytesPerSecond"])
    if "produceTimeout" in settings:
        found["produce_timeout_ms"] = duration_ms(settings["produceTimeout"])
    if "connectionsMax" in settings:
        found["connections_max"] = settings["connectionsMax"]
    if "clientCallsMax" in settings:
        found["client_calls_max"] = settings["clientCallsMax"]
    if "messageBytesMax" in settings:
        found["message_bytes_max"] = size_bytes(settings["messageBytesMax"])
    if "logLevel" in settings:
        found["log_level"] = settings["logLevel"]
    return found


def _settings(spec: Manifest) -> StreamSettings:
    factor, minimum = spec.get("replicationFactor"), spec["minInsyncReplicas"]
    if factor is not None:
        # A minimum above the replication factor counts as the factor; brokers refuse a larger one.
        minimum = min(minimum, factor)
    retention, segments, limits, dedupe = spec["retention"], spec["segments"], spec["limits"], spec["dedupe"]
    return StreamSettings(
        subject=spec.get("subject", ""),
        partitions=spec["partitions"],
        replication_factor=factor,
        min_insync_replicas=minimum,
        durability=choice(Durability, "durability", spec["durability"]),
        retention=Retention(
            age_ms=duration_ms(retention["age"]) if "age" in retention else None,
            bytes=size_bytes(retention["bytes"]) if "bytes" in retention else None,
            messages=retention.get("messages"),
        ),
        segment_bytes=size_bytes(segments["bytes"]),
        segment_age_ms=duration_ms(segments["age"]),
        batch_bytes_max=size_bytes(limits["batchBytes"]),
        timestamp_ahead_ms_max=duration_ms(limits["timestampAhead"]),
        nats_ack=choice(NatsAck, "nats.ack", spec["nats"]["ack"].lower()),
        dedupe_window_ms=duration_ms(dedupe["window"]),
        dedupe_count_max=dedupe["count"],
    )

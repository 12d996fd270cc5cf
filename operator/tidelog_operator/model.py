"""What manifests say, as values: read once, where objects come in; behind that everything is typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from tidelog.model import Durability, NatsAck, Retention, StreamSettings
from tidelog_operator.durations import duration_ms, size_bytes

GROUP: Final = "tidelog.io"
VERSION: Final = "v1alpha1"
STREAM: Final = "Stream"
CLUSTER: Final = "Cluster"

FINALIZER: Final = "tidelog.io/operator"
"""An object goes only after the operator has seen to what it stands for."""

CLAIM_PREFIX: Final = "kubernetes:"
"""How the owner of a stream begins that a Stream has claimed."""

Manifest = Mapping[str, Any]


class ObjectKey(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class DeletionPolicy(StrEnum):
    RETAIN = "Retain"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class StreamObject:
    """A Stream."""

    key: ObjectKey
    uid: str
    generation: int
    created: str
    """RFC 3339; of two that claim the same stream the older one has it."""
    deleting: bool
    finalizers: tuple[str, ...]
    version: str
    """The object's resourceVersion: what is written rests on it."""
    cluster: str
    stream_name: str
    settings: StreamSettings
    """Everything but the replication factor is always said: the API server fills in what was left out."""
    deletion_policy: DeletionPolicy
    status: Manifest

    @property
    def finalized(self) -> bool:
        """It waits for the operator before it goes."""
        return FINALIZER in self.finalizers

    @property
    def claim(self) -> str:
        """The owner of its stream, among the brokers. Another object of the same name has another one."""
        return f"{CLAIM_PREFIX}{self.key}/{self.uid}"

    @property
    def age_rank(self) -> tuple[str, str]:
        """The older, the smaller."""
        return (self.created, self.uid)


@dataclass(frozen=True, slots=True)
class ClusterObject:
    """A Cluster."""

    key: ObjectKey
    uid: str
    generation: int
    deleting: bool
    finalizers: tuple[str, ...]
    version: str
    spec: Manifest
    status: Manifest

    @property
    def finalized(self) -> bool:
        return FINALIZER in self.finalizers


def read_stream(manifest: Manifest) -> StreamObject:
    """Raises `ValueError` for a value that the schema lets pass and nobody can read."""
    meta, spec = manifest["metadata"], manifest["spec"]
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
        settings=_settings(spec),
        deletion_policy=DeletionPolicy(spec["deletionPolicy"]),
        status=manifest.get("status") or {},
    )


def read_cluster(manifest: Manifest) -> ClusterObject:
    meta = manifest["metadata"]
    return ClusterObject(
        key=ObjectKey(meta["namespace"], meta["name"]),
        uid=meta["uid"],
        generation=meta["generation"],
        deleting="deletionTimestamp" in meta,
        finalizers=tuple(meta.get("finalizers", ())),
        version=meta["resourceVersion"],
        spec=manifest["spec"],
        status=manifest.get("status") or {},
    )


def _settings(spec: Manifest) -> StreamSettings:
    factor, minimum = spec.get("replicationFactor"), spec["minInsyncReplicas"]
    if factor is not None:
        # It counts as the replication factor where that is less; brokers refuse to be told of more.
        minimum = min(minimum, factor)
    retention, segments, limits, dedupe = spec["retention"], spec["segments"], spec["limits"], spec["dedupe"]
    return StreamSettings(
        subject=spec.get("subject", ""),
        partitions=spec["partitions"],
        replication_factor=factor,
        min_insync_replicas=minimum,
        durability=Durability(spec["durability"]),
        retention=Retention(
            age_ms=duration_ms(retention["age"]) if "age" in retention else None,
            bytes=size_bytes(retention["bytes"]) if "bytes" in retention else None,
            messages=retention.get("messages"),
        ),
        segment_bytes=size_bytes(segments["bytes"]),
        segment_age_ms=duration_ms(segments["age"]),
        batch_bytes_max=size_bytes(limits["batchBytes"]),
        timestamp_ahead_ms_max=duration_ms(limits["timestampAhead"]),
        nats_ack=NatsAck(spec["nats"]["ack"].lower()),
        dedupe_window_ms=duration_ms(dedupe["window"]),
        dedupe_count_max=dedupe["count"],
    )

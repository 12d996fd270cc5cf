"""The cache of all watched objects, filled by `handlers`.

Reconciliations read objects from here and not from the API server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import structlog

from tidelog_operator.ingestions import DriverPod, IngestionObject, read_ingestion
from tidelog_operator.kubernetes.pods import read_driver, waiting_reason_of
from tidelog_operator.model import (
    CLUSTER,
    INGESTION,
    STREAM,
    BrokerPod,
    Claim,
    ClusterObject,
    Manifest,
    ObjectKey,
    StreamObject,
    UnreadableCluster,
    read_cluster,
    read_stream,
)
from tidelog_operator.resources.counts import COUNTS_NAME
from tidelog_operator.resources.naming import (
    BROKER_CONTAINER,
    CLUSTER_LABEL,
    EXIT_DAMAGED,
    INGESTION_LABEL,
    VOLUME,
)

log = structlog.get_logger(__name__)

K = TypeVar("K")
V = TypeVar("V")


class Take(Protocol):
    def __call__(self, manifest: Manifest, *, gone: bool) -> None: ...


class _Seen(NamedTuple):
    """The last known identity, version and labels of an object."""

    uid: str
    version: int
    labels: Mapping[str, str]

    def deleted_manifest(self, kind: str, key: ObjectKey) -> Manifest:
        meta = {
            "namespace": key.namespace,
            "name": key.name,
            "uid": self.uid,
            "resourceVersion": str(self.version),
            "labels": self.labels,
        }
        return {"kind": kind, "metadata": meta}


class Objects:
    """The cache, on one event loop."""

    def __init__(self, changed: Callable[[ObjectKey], None]) -> None:
        """`changed` is called with the key of a Cluster that must be reconciled, whether it exists or not."""
        self._changed = changed
        self.version = 0
        """Increases with every change."""
        self.clusters: dict[ObjectKey, ClusterObject] = {}
        self.streams: dict[ObjectKey, StreamObject] = {}
        self.unreadable_clusters: dict[ObjectKey, UnreadableCluster] = {}
        self._pods: dict[ObjectKey, dict[str, BrokerPod]] = {}
        """By Cluster and name."""
        self.ingestions: dict[ObjectKey, IngestionObject] = {}
        self._drivers: dict[ObjectKey, dict[str, DriverPod]] = {}
        """By Cluster and name."""
        self._claims: dict[ObjectKey, dict[str, Claim]] = {}
        """By Cluster and name."""
        self._owned: dict[ObjectKey, dict[tuple[str, str], Manifest]] = {}
        """By Cluster, kind and name."""
        self._counts: dict[str, Mapping[str, str]] = {}
        """By namespace: the lowest number of pods that the admission policy allows for each StatefulSet
        (K1)."""
        self._zones: dict[str, Mapping[str, str]] = {}
        """Labels by node, deleted nodes included: replicas on such a node were in its zone."""
        self._seen: dict[tuple[str, ObjectKey], _Seen] = {}
        """The last known state, by kind and name."""

    def __repr__(self) -> str:
        return f"<Objects clusters={len(self.clusters)} streams={len(self.streams)}>"

    def is_owned(self, manifest: Manifest) -> bool:
        """Whether the cache has an object of this kind and name that belongs to the same Cluster."""
        cluster = _cluster_of(manifest)
        return cluster is not None and (manifest["kind"], key_of(manifest).name) in self.owned_by(cluster)

    def streams_of(self, namespace: str) -> list[StreamObject]:
        return [one for key, one in self.streams.items() if key.namespace == namespace]

    def pods_of(self, cluster: ObjectKey) -> list[BrokerPod]:
        return list(self._pods.get(cluster, {}).values())

    def drivers_of(self, cluster: ObjectKey) -> list[DriverPod]:
        return list(self._drivers.get(cluster, {}).values())

    def all_drivers(self) -> Iterator[tuple[ObjectKey, DriverPod]]:
        """Returns the drivers of all Clusters, each with the key of its pod."""
        for cluster, drivers in self._drivers.items():
            for one in drivers.values():
                yield ObjectKey(cluster.namespace, one.name), one

    def ingestions_of(self, cluster: ObjectKey) -> list[IngestionObject]:
        return [
            one
            for key, one in self.ingestions.items()
            if (key.namespace, one.cluster) == (cluster.namespace, cluster.name)
        ]

    def claims_of(self, cluster: ObjectKey) -> list[Claim]:
        return sorted(self._claims.get(cluster, {}).values(), key=lambda one: one.broker_id)

    def owned_by(self, cluster: ObjectKey) -> Mapping[tuple[str, str], Manifest]:
        """Returns the objects that the operator created for the Cluster, by kind and name."""
        return self._owned.get(cluster, {})

    def all_owned(self) -> Iterator[Manifest]:
        """Returns the objects that the operator created for all Clusters."""
        for objects in self._owned.values():
            yield from objects.values()

    def lowest_count_of(self, cluster: ObjectKey) -> str | None:
        return self._counts.get(cluster.namespace, {}).get(cluster.name)

    def zones_of(self, cluster: ObjectKey, label: str) -> dict[int, str]:
        """Returns zones by broker, for brokers whose pods are scheduled."""
        return {
            pod.broker_id: self._zones.get(pod.node, {}).get(label, "")
            for pod in self.pods_of(cluster)
            if pod.node
        }

    def has_zones_of(self, cluster: ObjectKey) -> bool:
        """Whether the nodes of all scheduled pods are known. Nodes have a watch of their own, which may be
        slower than the others."""
        return all(pod.node in self._zones for pod in self.pods_of(cluster) if pod.node)

    def finalized(self, before: StreamObject, after: StreamObject) -> None:
        """Stores a Stream whose finalizers the operator has just changed; the watch event comes later."""
        if self.streams.get(before.key) == before:
            self.streams[before.key] = after

    def _notify(self, cluster: ObjectKey) -> None:
        self.version += 1
        self._changed(cluster)

    # --- events of watches, lists, and answers to writes

    def listed(self, kind: str, namespace: str, items: Sequence[Manifest], version: int) -> None:
        """Stores a list of all objects of a kind (with the label, if there is one), as of `version`; objects
        that are missing in it are deleted."""
        there = {key_of(one) for one in items}
        take = self._take(kind)
        for (other, key), known in list(self._seen.items()):
            if (other, key.namespace) == (kind, namespace) and key not in there and known.version <= version:
                take(known.deleted_manifest(kind, key), gone=True)
        for one in items:
            take(one, gone=False)

    def gone(self, kind: str, key: ObjectKey, uid: str) -> None:
        """Removes an object after a successful delete request; its watch event comes later."""
        known = self._seen.get((kind, key))
        if known is not None and known.uid == uid:
            self._take(kind)(known.deleted_manifest(kind, key), gone=True)

    def _take(self, kind: str) -> Take:
        takes: Mapping[str, Take] = {
            STREAM: self.stream,
            CLUSTER: self.cluster,
            INGESTION: self.ingestion,
            "Pod": self.pod,
            "PersistentVolumeClaim": self.claim,
        }
        return takes.get(kind, self.owned)

    def _is_newer(self, kind: str, manifest: Manifest, *, gone: bool) -> bool:
        """Whether this is newer than the cached state: lists, watch events and answers to writes overtake
        each other, and another object may have the same name now."""
        meta = manifest["metadata"]
        key = (kind, key_of(manifest))
        seen = _Seen(meta["uid"], int(meta["resourceVersion"]), meta.get("labels") or {})
        known = self._seen.get(key)
        if gone:
            if known is not None and known.uid != seen.uid:
                return False
            self._seen.pop(key, None)
            return True
        if known is not None and seen.version < known.version:
            return False
        self._seen[key] = seen
        return True

    def stream(self, manifest: Manifest, *, gone: bool) -> None:
        if not self._is_newer(STREAM, manifest, gone=gone):
            return
        key = key_of(manifest)
        before = self.streams.pop(key, None)
        if not gone:
            self.streams[key] = found = read_stream(manifest)
            if found.unreadable and (before is None or not before.unreadable):
                log.warning("cannot read the spec of a Stream", stream=str(key), reason=found.unreadable)
        for one in (before, self.streams.get(key)):
            if one is not None:
                self._notify(ObjectKey(key.namespace, one.cluster))

    def cluster(self, manifest: Manifest, *, gone: bool) -> None:
        if not self._is_newer(CLUSTER, manifest, gone=gone):
            return
        key = key_of(manifest)
        self.clusters.pop(key, None)
        before = self.unreadable_clusters.pop(key, None)
        if not gone:
            found = read_cluster(manifest)
            if isinstance(found, ClusterObject):
                self.clusters[key] = found
            else:
                self.unreadable_clusters[key] = found
                if before is None:
                    log.warning("cannot read the spec of a Cluster", cluster=str(key), reason=found.why)
        self._notify(key)

    def ingestion(self, manifest: Manifest, *, gone: bool) -> None:
        if not self._is_newer(INGESTION, manifest, gone=gone):
            return
        key = key_of(manifest)
        before = self.ingestions.pop(key, None)
        if not gone:
            self.ingestions[key] = found = read_ingestion(manifest)
            if found.unreadable and (before is None or not before.unreadable):
                log.warning(
                    "cannot read the spec of an Ingestion", ingestion=str(key), reason=found.unreadable
                )
        for one in (before, self.ingestions.get(key)):
            if one is not None:
                self._notify(ObjectKey(key.namespace, one.cluster))

    def pod(self, manifest: Manifest, *, gone: bool) -> None:
        if not self._is_newer("Pod", manifest, gone=gone):
            return
        name, number = manifest["metadata"]["name"], _broker_of(manifest, "")
        if INGESTION_LABEL in (manifest["metadata"].get("labels") or {}):
            self._keep(self._drivers, manifest, name, None if gone else read_driver(manifest))
            return
        if number is not None:
            pod = None if gone else _read_pod(manifest, number)
            self._keep(self._pods, manifest, name, pod)

    def claim(self, manifest: Manifest, *, gone: bool) -> None:
        if not self._is_newer("PersistentVolumeClaim", manifest, gone=gone):
            return
        name, number = manifest["metadata"]["name"], _broker_of(manifest, f"{VOLUME}-")
        if number is not None:
            claim = None if gone else _read_claim(manifest, number)
            self._keep(self._claims, manifest, name, claim)

    def owned(self, manifest: Manifest, *, gone: bool) -> None:
        """Stores an object that the operator creates, or a Job that a CronJob of it created."""
        if not self._is_newer(manifest["kind"], manifest, gone=gone):
            return
        key = key_of(manifest)
        if key.name == COUNTS_NAME:
            self._counts[key.namespace] = {} if gone else dict(manifest.get("data") or {})
            for one in [one for one in self.clusters if one.namespace == key.namespace]:
                self._notify(one)
            return
        self._keep(self._owned, manifest, (manifest["kind"], key.name), None if gone else manifest)

    def _keep(self, where: dict[ObjectKey, dict[K, V]], manifest: Manifest, name: K, value: V | None) -> None:
        """Stores or removes (None) an object, and calls `changed` if it differs from the cached one."""
        cluster = _cluster_of(manifest)
        if cluster is None:
            return
        kept = where.setdefault(cluster, {})
        before = kept.pop(name, None)
        if value is not None:
            kept[name] = value
        if not kept:
            del where[cluster]
        if value != before:
            self._notify(cluster)

    def node(self, manifest: Manifest, *, gone: bool) -> None:
        name = manifest["metadata"]["name"]
        if gone:
            return
        before = self._zones.get(name)
        self._zones[name] = dict(manifest["metadata"].get("labels") or {})
        if self._zones[name] != before:
            for cluster in self.clusters:
                self._notify(cluster)


def key_of(manifest: Manifest) -> ObjectKey:
    meta = manifest["metadata"]
    return ObjectKey(meta["namespace"], meta["name"])


def _cluster_of(manifest: Manifest) -> ObjectKey | None:
    name = (manifest["metadata"].get("labels") or {}).get(CLUSTER_LABEL)
    return None if name is None else ObjectKey(manifest["metadata"]["namespace"], name)


def _broker_of(manifest: Manifest, prefix: str) -> int | None:
    """Reads the broker id from the name, which the StatefulSet gives; labels are copied when an object is
    restored or cloned."""
    cluster, name = _cluster_of(manifest), manifest["metadata"]["name"]
    number = name.rpartition("-")[2]
    if cluster is None or not number.isdecimal():
        return None
    return int(number) if name == f"{prefix}{cluster.name}-{int(number)}" else None


def _read_claim(manifest: Manifest, broker_id: int) -> Claim:
    meta = manifest["metadata"]
    phase = (manifest.get("status") or {}).get("phase", "")
    return Claim(meta["name"], meta["uid"], broker_id, phase, "deletionTimestamp" in meta)


def _read_pod(manifest: Manifest, broker_id: int) -> BrokerPod:
    meta, status = manifest["metadata"], manifest.get("status") or {}
    conditions: list[dict[str, Any]] = status.get("conditions") or []
    return BrokerPod(
        name=meta["name"],
        uid=meta["uid"],
        broker_id=broker_id,
        ip=status.get("podIP", ""),
        node=manifest.get("spec", {}).get("nodeName", ""),
        ready=any(one["type"] == "Ready" and one["status"] == "True" for one in conditions),
        deleting="deletionTimestamp" in meta,
        waiting_reason=waiting_reason_of(status),
        damaged=_damaged(status),
    )


def _damaged(status: Manifest) -> bool:
    """Whether the last run of the broker ended with `EXIT_DAMAGED` and it is not ready since: Kubernetes
    restarts it again and again."""
    for container in status.get("containerStatuses") or ():
        if container["name"] == BROKER_CONTAINER and not container.get("ready", False):
            ends = [(container.get(name) or {}).get("terminated") for name in ("state", "lastState")]
            return next((end.get("exitCode") for end in ends if end), None) == EXIT_DAMAGED
    return False

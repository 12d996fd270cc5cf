"""The objects that the operator watches, as they were last seen: a cache that `handlers` fills.

Nobody asks the API server for what stands here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from tidelog_operator.model import (
    FINALIZER,
    ClusterObject,
    Manifest,
    ObjectKey,
    StreamObject,
    read_cluster,
    read_stream,
)

log = structlog.get_logger(__name__)

CLUSTER_LABEL: Final = "tidelog.io/cluster"
"""On every object that the operator makes for a Cluster: its name."""

BROKER_LABEL: Final = "apps.kubernetes.io/pod-index"
"""On the pods of a StatefulSet: the broker's id."""


@dataclass(frozen=True, slots=True)
class BrokerPod:
    """The pod of a broker."""

    name: str
    broker_id: int
    ip: str
    """Empty: it has none yet."""
    node: str
    ready: bool
    deleting: bool


class Objects:
    """See the module. Of one event loop."""

    def __init__(self, changed: Callable[[ObjectKey], None]) -> None:
        """`changed` is told which Cluster has something new to look at, whether it is there or not."""
        self._changed = changed
        self.clusters: dict[ObjectKey, ClusterObject] = {}
        self.streams: dict[ObjectKey, StreamObject] = {}
        self.unreadable: dict[ObjectKey, str] = {}
        """Streams that passed the schema and cannot be read, and why."""
        self._pods: dict[ObjectKey, dict[str, BrokerPod]] = {}
        """By Cluster and name."""
        self._zones: dict[str, Mapping[str, str]] = {}
        """Labels by node."""

    def __repr__(self) -> str:
        return f"<Objects clusters={len(self.clusters)} streams={len(self.streams)}>"

    def streams_of(self, namespace: str) -> list[StreamObject]:
        return [one for key, one in self.streams.items() if key.namespace == namespace]

    def pods_of(self, cluster: ObjectKey) -> list[BrokerPod]:
        return list(self._pods.get(cluster, {}).values())

    def zones_of(self, cluster: ObjectKey, label: str) -> dict[int, str]:
        """By broker; of those that have been put on a node."""
        return {
            pod.broker_id: self._zones.get(pod.node, {}).get(label, "")
            for pod in self.pods_of(cluster)
            if pod.node
        }

    def finalized(self, one: StreamObject, version: str) -> None:
        """The operator has added its finalizer; that comes back by and by."""
        if self.streams.get(one.key) == one:
            finalizers = (*one.finalizers, FINALIZER)
            self.streams[one.key] = replace(one, finalizers=finalizers, version=version)

    # --- what came

    def stream(self, manifest: Manifest, *, gone: bool) -> None:
        key = _key_of(manifest)
        before = self.streams.pop(key, None)
        self.unreadable.pop(key, None)
        if not gone:
            try:
                self.streams[key] = read_stream(manifest)
            except (ValueError, KeyError) as error:
                self.unreadable[key] = str(error)
                log.warning("a Stream cannot be read", stream=str(key), reason=str(error))
        for one in (before, self.streams.get(key)):
            if one is not None:
                self._changed(ObjectKey(key.namespace, one.cluster))

    def cluster(self, manifest: Manifest, *, gone: bool) -> None:
        key = _key_of(manifest)
        if gone:
            self.clusters.pop(key, None)
        else:
            self.clusters[key] = read_cluster(manifest)
        self._changed(key)

    def pod(self, manifest: Manifest, *, gone: bool) -> None:
        key = _key_of(manifest)
        labels = manifest["metadata"].get("labels") or {}
        cluster, number = labels.get(CLUSTER_LABEL), labels.get(BROKER_LABEL)
        if cluster is None or number is None:
            return
        owner = ObjectKey(key.namespace, cluster)
        pods = self._pods.setdefault(owner, {})
        pods.pop(key.name, None)
        if not gone:
            pods[key.name] = _read_pod(manifest, int(number))
        if not pods:
            del self._pods[owner]
        self._changed(owner)

    def node(self, manifest: Manifest, *, gone: bool) -> None:
        name = manifest["metadata"]["name"]
        before = self._zones.pop(name, None)
        if not gone:
            self._zones[name] = dict(manifest["metadata"].get("labels") or {})
        if self._zones.get(name) != before:
            for cluster in self.clusters:
                self._changed(cluster)


def _key_of(manifest: Manifest) -> ObjectKey:
    meta = manifest["metadata"]
    return ObjectKey(meta["namespace"], meta["name"])


def _read_pod(manifest: Manifest, broker_id: int) -> BrokerPod:
    meta, status = manifest["metadata"], manifest.get("status") or {}
    conditions: list[dict[str, Any]] = status.get("conditions") or []
    return BrokerPod(
        name=meta["name"],
        broker_id=broker_id,
        ip=status.get("podIP", ""),
        node=manifest.get("spec", {}).get("nodeName", ""),
        ready=any(one["type"] == "Ready" and one["status"] == "True" for one in conditions),
        deleting="deletionTimestamp" in meta,
    )

"""A simulated API server, and a `Reconciler` that uses it and simulated brokers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from kubernetes.aio.client.exceptions import ApiException

from support.kube.situations import CLUSTER, NAMESPACE, STREAM_DEFAULTS, Brokers, cluster_manifest
from tidelog.errors import Unavailable
from tidelog_operator.kubernetes.api import Listed
from tidelog_operator.kubernetes.objects import Objects
from tidelog_operator.model import ObjectKey
from tidelog_operator.reconcile import Reconciler
from tidelog_operator.reporting.event_writer import EventWriter
from tidelog_operator.reporting.metrics import Metrics
from tidelog_operator.reporting.reports import Reports

KEY = ObjectKey(NAMESPACE, CLUSTER)


def manifest(name: str, second: int, **meta: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": NAMESPACE, "name": name, "uid": f"uid-of-{name}", "generation": 1,
            "resourceVersion": "1", "creationTimestamp": f"2026-01-01T00:00:0{second}Z",
            **meta,
        },
        "spec": {"cluster": CLUSTER, "streamName": "claimed", **STREAM_DEFAULTS},
    }  # fmt: skip


class Kube:
    """A simulated API server that records writes."""

    def __init__(self, **kept: list[dict[str, Any]]) -> None:
        self._kept = kept
        self.fails = False
        self.statuses: dict[str, dict[str, Any]] = {}
        self.finalizers: list[str] = []
        self.applied: list[str] = []
        """Kinds of created or changed objects."""
        self.foreign: dict[str, Any] | None = None
        """Objects that exist, but are in no list."""
        self.refused: dict[str, str] = {}
        """Errors of services, by name."""
        self.services: list[str] = []
        """Names of services, as they were created or changed."""
        self.deleted: list[str] = []

    async def list(self, kind: str, namespace: str, label: str = "") -> Listed:
        if self.fails:
            raise ConnectionRefusedError("no API server")
        return Listed(self._kept.get(kind, []), 1)

    async def find(self, kind: str, key: ObjectKey) -> dict[str, Any] | None:
        if kind == "Stream":
            return next((one for one in self._kept[kind] if one["metadata"]["name"] == key.name), None)
        there = self.foreign
        same = there and (there["kind"], there["metadata"]["name"]) == (kind, key.name)
        return there if same else None

    async def write_status(self, kind: str, key: ObjectKey, before: Any, status: dict[str, Any]) -> Any:
        self.statuses[key.name] = status
        return {"metadata": {"resourceVersion": "1"}, "status": status}

    async def create(self, manifest: Any) -> Any:
        return await self.apply(manifest)

    async def apply(self, manifest: Any, version: str = "", manager: str = "") -> Any:
        name = manifest["metadata"]["name"]
        if name in self.refused:
            error = ApiException(422, "Unprocessable Entity")
            error.body = json.dumps({"message": self.refused[name]})
            raise error
        self.applied.append(manifest["kind"])
        if manifest["kind"] == "Service":
            self.services.append(name)
        given = {"uid": f"uid-of-{name}", "resourceVersion": "2", "generation": 1}
        return {**manifest, "metadata": {**manifest["metadata"], **given}}

    async def delete(self, kind: str, key: ObjectKey, uid: str) -> bool:
        self.deleted.append(f"{key.name} {uid}")
        return True

    async def remove_finalizer(self, kind: str, one: Any) -> Any:
        self.finalizers.append(one.key.name)
        return replace(one, finalizers=(), version="2")


class NoEvents:
    """Events stay in the queue."""

    async def create(self, manifest: Any) -> Any:
        return manifest

    async def patch(self, kind: str, key: ObjectKey, change: Any) -> None: ...


def reconciler(kube: Kube, brokers: Brokers | None, *came: dict[str, Any]) -> Reconciler:
    objects = Objects(lambda cluster: None)
    for one in came:
        objects.stream(one, gone=False)
    reports = Reports(EventWriter(NoEvents(), "here"), Metrics())
    made = Reconciler(KEY, objects, kube, reports, lambda: True)  # type: ignore[arg-type]

    class Answering:
        version = 0

        async def look(self, ips: Any, zones: Any) -> Any:
            if brokers is None:
                raise Unavailable("nobody is there")
            return brokers.view()

        async def client(self, ips: Any) -> None:
            return None

        def changed(self) -> None: ...

    made._brokers = Answering()  # type: ignore[assignment]
    return made


def owner_changes(operator: Reconciler, brokers: Brokers) -> list[tuple[str, str, int]]:
    """Records changes of owners from now on: stream, new owner, expected version."""
    written: list[tuple[str, str, int]] = []

    class Client:
        async def alter_stream(self, name: str, *, owner: str, expected_version: int, **_: Any) -> None:
            written.append((name, owner, expected_version))
            brokers.streams[name] = replace(brokers.streams[name], owner=owner)

    async def client(ips: Any) -> Any:
        return Client()

    operator._brokers.client = client  # type: ignore[method-assign]
    return written


MAIN = cluster_manifest()
HELD = {"finalizers": ["tidelog.io/operator"]}

"""What a kubelet does for any pod: reports that it runs, and removes it.

Neighbours: `nodes` finds the pods; `broker_workers` runs those with a broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from support.kube.api import AWAY, STRATEGIC_MERGE, Json, Key, KubeApi, Mirror, key_of
from support.kube.volumes import Volumes

LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True)
class Machine:
    """What all pods of the nodes share."""

    api: KubeApi
    web: aiohttp.ClientSession
    volumes: Volumes
    config_maps: Mirror
    folder: Path
    logs: Path
    address_of: Callable[[str, str], str]
    held: set[Key]
    """Pods whose container must not be started."""

    def log_path(self, namespace: str, pod: str) -> Path:
        return self.logs / f"{namespace}.{pod}.log"


class PodWorker:
    """A pod without a process: it is ready at once, and removed at once. On one event loop."""

    def __init__(self, pod: Json, machine: Machine) -> None:
        self.pod = pod
        """The pod as it was last seen."""
        self.gone = False
        """The API server does not have it any more."""
        self._machine = machine
        self.namespace, self.name = key_of(pod)
        self.uid: str = pod["metadata"]["uid"]
        self.address = machine.address_of(self.namespace, self.name)
        self._path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        self._began = now_text()
        self._ready: bool | None = None
        self._ready_since = ""
        self._reported: Json = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.namespace}/{self.name} ready={self._ready} gone={self.gone}>"

    @property
    def _deleting(self) -> bool:
        return self.gone or "deletionTimestamp" in self.pod["metadata"]

    async def run(self, before: asyncio.Task[None] | None) -> None:
        """Runs until the pod is gone; starts when `before`, an earlier pod of the same name, is gone."""
        if before is not None:
            await asyncio.wait([before])
        try:
            while not self._deleting:
                await self._look()
                with contextlib.suppress(*AWAY):
                    await self._report()
                await asyncio.sleep(LOOK_SECONDS)
            await self._stop()
        finally:
            self._clean_up()
        await self._remove()

    async def _look(self) -> None:
        """Does what the pod needs now."""

    async def _stop(self) -> None:
        """Called when the pod is being deleted; returns when its process has ended."""

    def _clean_up(self) -> None:
        """Removes everything of the pod from the machine."""

    def _phase(self) -> str:
        return "Running"

    def _container_statuses(self) -> list[Json]:
        return [self._container(one, running=True) for one in self.pod["spec"]["containers"]]

    def _container(self, container: Json, *, running: bool) -> Json:
        return {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "restartCount": 0,
            "ready": running,
            "started": running,
            "state": {"running": {"startedAt": self._began}},
        }

    async def _report(self) -> None:
        containers = self._container_statuses()
        ready = all(one["ready"] for one in containers)
        if ready != self._ready:
            self._ready, self._ready_since = ready, now_text()
        phase = self._phase()
        status: Json = {
            "phase": phase,
            "startTime": self._began,
            "conditions": [
                _condition("PodScheduled", True, self._began),
                _condition("Initialized", True, self._began),
                _condition("ContainersReady", ready, self._ready_since),
                _condition("Ready", ready, self._ready_since),
            ],
            "containerStatuses": containers,
        }
        if phase != "Pending":
            status |= {"podIP": self.address, "podIPs": [{"ip": self.address}]}
        if status != self._reported:
            patch = {"metadata": {"uid": self.uid}, "status": status}
            if await self._machine.api.send("PATCH", f"{self._path}/status", patch, STRATEGIC_MERGE):
                self._reported = status

    async def _remove(self) -> None:
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": self.uid},
        }
        while not self.gone:
            with contextlib.suppress(*AWAY):
                await self._machine.api.send("DELETE", self._path, options)
                return
            await asyncio.sleep(LOOK_SECONDS)


def now_text() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _condition(kind: str, holds: bool, since: str) -> Json:
    return {"type": kind, "status": str(holds), "lastTransitionTime": since}

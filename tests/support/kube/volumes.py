"""Volumes for the claims of pods: folders of the test, created and removed as a storage provider does.

The class `tests` is the default one. Claims are bound by Kubernetes' own controller.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from support.kube.api import MERGE, Json, KubeApi, Mirror, key_of
from support.kube.containers import NotYet

PROVISIONER: Final = "tidelog.io/tests"
STORAGE_CLASS: Final = "tests"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
VOLUMES: Final = "/api/v1/persistentvolumes"


class Volumes:
    """Provides the volumes, on one event loop."""

    def __init__(self, api: KubeApi, folder: Path, prepare: Callable[[str, Path], None]) -> None:
        """`prepare`: see `Nodes`."""
        self._api = api
        self._folder = folder
        self._prepare = prepare
        self._claims = Mirror(api, "/api/v1/persistentvolumeclaims", self._claim_changed)
        self._volumes = Mirror(api, VOLUMES, self._volume_changed, self._volume_gone)

    async def make_class(self) -> None:
        """Creates the storage class; call it before claims are created, because a claim gets the default
        class at creation."""
        manifest = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {
                "name": STORAGE_CLASS,
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": PROVISIONER,
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate",
        }
        await self._api.send("POST", "/apis/storage.k8s.io/v1/storageclasses", manifest)

    async def run(self) -> None:
        """Runs without end."""
        self._folder.mkdir()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._claims.run())
            tasks.create_task(self._volumes.run())

    def folder_of(self, namespace: str, claim: str) -> Path:
        """Returns the folder of a claim. Raises `NotYet` if the claim has none yet, or no longer."""
        found = self._claims.objects.get((namespace, claim))
        phase = "not there" if found is None else found["status"].get("phase")
        if found is None or phase != "Bound":
            raise NotYet(f"the claim {claim} is {phase}, not Bound")
        folder = self._folder / str(found["spec"]["volumeName"])
        if not folder.is_dir():
            raise NotYet(f"the volume of the claim {claim} is lost")
        return folder

    async def lose(self, namespace: str, claim: str, end_users: Callable[[], None]) -> None:
        """Removes the volume of the claim with its content; `end_users` ends the processes that write to
        it."""
        folder = self.folder_of(namespace, claim)
        name = folder.name
        # Nobody is started again in between: that happens in this loop.
        end_users()
        shutil.rmtree(folder)
        # The API keeps a bound volume until nobody protects it any more.
        await self._remove(name)
        await self._api.send("PATCH", f"{VOLUMES}/{name}", {"metadata": {"finalizers": None}}, MERGE)

    async def _claim_changed(self, claim: Json) -> None:
        spec, meta = claim["spec"], claim["metadata"]
        wanted = spec.get("storageClassName") == STORAGE_CLASS and not spec.get("volumeName")
        name = f"pvc-{meta['uid']}"
        if not wanted or ("", name) in self._volumes.objects:
            return
        folder = self._folder / name
        if not folder.exists():
            folder.mkdir()
            self._prepare(meta["name"], folder)
        namespace, claim_name = key_of(claim)
        await self._api.send("POST", VOLUMES, {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
            "spec": {
                "storageClassName": STORAGE_CLASS,
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"],
                "persistentVolumeReclaimPolicy": "Delete",
                "hostPath": {"path": str(folder)},
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": namespace, "name": claim_name, "uid": meta["uid"],
                },
            },
        })  # fmt: skip

    async def _volume_changed(self, volume: Json) -> None:
        ours = volume["metadata"].get("annotations", {}).get(PROVISIONED_BY) == PROVISIONER
        if ours and volume.get("status", {}).get("phase") == "Released":
            await self._remove(volume["metadata"]["name"])

    async def _volume_gone(self, volume: Json) -> None:
        shutil.rmtree(self._folder / volume["metadata"]["name"], ignore_errors=True)

    async def _remove(self, name: str) -> None:
        await self._api.send("DELETE", f"{VOLUMES}/{name}", {"apiVersion": "v1", "kind": "DeleteOptions"})

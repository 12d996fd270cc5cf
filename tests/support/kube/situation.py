"""A Cluster on simulated nodes, as tests apply it, query it and load it."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import tidelog.blocking
from support.kube.control_plane import ControlPlane
from support.kube.nodes import Nodes
from support.waiting import wait_until
from tidelog.errors import TidelogError
from tidelog.model import id_text
from tidelog_operator.model import FINALIZER
from tidelog_operator.resources.counts import COUNTS_NAME

Manifest = dict[str, Any]

BROKERS_MAX = 5
VOTERS = 3


class ClusterOnNodes:
    """A Cluster on simulated nodes."""

    def __init__(self, plane: ControlPlane, nodes: Nodes, name: str) -> None:
        self._plane = plane
        self._nodes = nodes
        self.name = name
        self._spec: Manifest = {
            "image": "tidelog.test/broker:1",
            "storage": {"size": "1Gi"},
            "replaceAfter": "1s",
        }

    # --- manifests

    def apply(self, **spec: Any) -> None:
        """Applies the Cluster; fields that are left out stay as they were."""
        self._spec |= spec
        self._plane.apply({
            "apiVersion": "tidelog.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": self.name, "namespace": "default"},
            "spec": self._spec,
        })  # fmt: skip

    def apply_stream(self, name: str, *, wait: bool = True, **spec: Any) -> None:
        self._plane.apply({
            "apiVersion": "tidelog.io/v1alpha1", "kind": "Stream",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"cluster": self.name, **spec},
        })  # fmt: skip
        if wait:
            wait_until(lambda: self.stream_is_ready(name), f"{name} is ready")

    def delete_stream(self, name: str, *, wait: bool = True) -> None:
        self._plane.kubectl("delete", "stream.tidelog.io", name, f"--wait={str(wait).lower()}")

    # --- objects of the API server

    @property
    def uid(self) -> UUID:
        return UUID(self._object("clusters", self.name)["metadata"]["uid"])

    def status(self) -> Manifest:
        found: Manifest = self._object("clusters", self.name).get("status") or {}
        return found

    def reasons(self) -> set[str]:
        return {one["reason"] for one in self.status().get("conditions", ())}

    def until_ready(self, brokers: int) -> None:
        """Waits until there are this many brokers, all are ready, nothing moves, and all replicas are in
        sync."""

        def matches() -> bool:
            return self.says_so(brokers) and self.is_settled(brokers)

        wait_until(matches, f"{brokers} brokers are ready", 110)

    def says_so(self, brokers: int) -> bool:
        found = self._object("clusters", self.name)
        status = found.get("status") or {}
        return bool(
            status.get("observedGeneration") == found["metadata"]["generation"]
            and status.get("brokersReady") == brokers
            and len(status.get("brokers", ())) == brokers
            and status.get("phase") == "Ready"
            and status.get("moving") == 0
        )

    def is_settled(self, brokers: int) -> bool:
        """Checks the same with pods and brokers, whatever the status says."""
        if self.ready_pods() != brokers or len(self.pod_uids()) != brokers:
            return False
        try:
            with self.connected() as client:
                found = client.describe_cluster()
        except TidelogError:
            return False
        states = [one.state for one in found.standings]
        voters = self._voters()
        directories = {str(one.broker_id): id_text(one.directory_id) for one in found.brokers}
        counts = self._list("/api/v1/namespaces/default/configmaps")
        lowest = [one["data"].get(self.name) for one in counts if one["metadata"]["name"] == COUNTS_NAME]
        return (
            states == ["active"] * brokers
            and not found.reassigning_count
            and not found.under_replicated_count
            # A new volume votes only after the other voters have learned of it.
            and len(voters) == min(VOTERS, brokers)
            and voters.items() <= directories.items()
            and lowest == [str(brokers)]
        )

    def _voters(self) -> dict[str, str]:
        """Returns the data directory of each voter, as one broker reports it."""
        url = f"http://{self._nodes.address(f'{self.name}-0')}:9211/debug/state"
        with urllib.request.urlopen(url, timeout=5) as answer:
            voters: dict[str, str] = json.loads(answer.read())["voters"]
            return voters

    def stream_is_ready(self, name: str) -> bool:
        """Whether the brokers have the stream, this object owns it, and all replicas are in sync."""
        uid = self._object("streams", name)["metadata"]["uid"]
        try:
            with self.connected() as brokers:
                found = brokers.describe_stream(name)
        except TidelogError:
            return False
        calm = not any(one.lagging or one.adding or one.leader is None for one in found.partitions)
        return found.owner.endswith(f"/{uid}") and calm

    def has_stream(self, name: str) -> bool:
        found = self._list("/apis/tidelog.io/v1alpha1/namespaces/default/streams")
        return any(one["metadata"]["name"] == name for one in found)

    def is_held(self, name: str) -> bool:
        """Whether the deletion of the Stream waits for the operator."""
        return FINALIZER in self._object("streams", name)["metadata"].get("finalizers", ())

    def copies(self, stream: str) -> list[int]:
        """Returns the number of in-sync replicas by partition."""
        with self.connected() as brokers:
            return [len(one.isr) for one in brokers.describe_stream(stream).partitions]

    def claim_uids(self) -> dict[str, str]:
        found = self._list("/api/v1/namespaces/default/persistentvolumeclaims")
        return {one["metadata"]["name"]: one["metadata"]["uid"] for one in found}

    def pod_uids(self) -> dict[str, str]:
        return {one["metadata"]["name"]: one["metadata"]["uid"] for one in self._pods()}

    def ready_pods(self) -> int:
        return sum(
            one["type"] == "Ready" and one["status"] == "True"
            for pod in self._pods()
            for one in pod["status"].get("conditions", ())
        )

    def claims(self) -> list[str]:
        return list(self.claim_uids())

    def _pods(self) -> list[Manifest]:
        found = self._list("/api/v1/namespaces/default/pods")
        return [one for one in found if one["metadata"]["name"].startswith(f"{self.name}-")]

    def _list(self, path: str) -> list[Manifest]:
        found: list[Manifest] = json.loads(self._plane.get(path))["items"]
        return found

    def _object(self, plural: str, name: str) -> Manifest:
        path = f"/apis/tidelog.io/v1alpha1/namespaces/default/{plural}/{name}"
        found: Manifest = json.loads(self._plane.get(path))
        return found

    # --- state of the brokers

    def connected(self) -> tidelog.blocking.Client:
        pods = [f"{self.name}-{number}" for number in range(BROKERS_MAX)]
        return tidelog.blocking.connect([f"{self._nodes.address(pod)}:9210" for pod in pods])

    def owner(self, stream: str) -> str:
        with self.connected() as brokers:
            return brokers.describe_stream(stream).owner

    def holders(self, stream: str) -> set[int]:
        with self.connected() as brokers:
            return {one for each in brokers.describe_stream(stream).partitions for one in each.replicas}

    def in_sync(self, stream: str) -> bool:
        with self.connected() as brokers:
            return not any(one.lagging for one in brokers.describe_stream(stream).partitions)

    def records(self, stream: str) -> set[bytes]:
        with self.connected() as brokers:
            return {record.value or b"" for record in brokers.reader(stream, follow=False)}

    @contextmanager
    def load(self, stream: str) -> Iterator[Load]:
        before = self.records(stream)
        with self.connected() as brokers, Load(brokers, stream, before) as load:
            yield load


class Load:
    """Writes records one after the other, acknowledged by the minimum of in-sync replicas; a context
    manager."""

    def __init__(self, brokers: tidelog.blocking.Client, stream: str, before: set[bytes]) -> None:
        self._brokers = brokers
        self._stream = stream
        self.acknowledged = set(before)
        self.errors: list[str] = []
        """The errors that the writer got."""
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write, name="tidelog-load")

    def __enter__(self) -> Load:
        self._thread.start()
        self.until_more(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def until_more(self, records: int) -> None:
        goal = len(self.acknowledged) + records
        wait_until(lambda: len(self.acknowledged) >= goal, "records are acknowledged")

    def _write(self) -> None:
        with self._brokers.producer(self._stream) as producer:
            number = len(self.acknowledged)
            while not self._ends.wait(0.005):
                number += 1
                value = f"{self._stream}-{number}".encode()
                try:
                    producer.send(value, key=str(number).encode())
                except TidelogError as error:
                    self.errors.append(str(error))
                else:
                    self.acknowledged.add(value)

"""Broker processes behind hand-made pods: each has a loopback address of its own, which is the IP of its
pod."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from support.broker import BrokerProcess
from support.kube.control_plane import ControlPlane
from tidelog_broker.offline.formatting import format_solo
from tidelog_broker.storage.files.os_files import OsFiles

GRPC, HTTP, PEERS = 9210, 9211, 9212


class BrokerPods:
    """The brokers of one Cluster; a context manager. They know each other before there are pods."""

    def __init__(
        self, plane: ControlPlane, folder: Path, cluster: str, count: int, *, namespace: str = "default"
    ) -> None:
        self._plane = plane
        self._folder = folder
        self._cluster = cluster
        self._namespace = namespace
        # Test processes do not share addresses, nor do successive clusters of one process.
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        self._prefix = f"127.{100 + worker}.{os.getpid() % 250}"
        self.brokers = [self._broker(number, count) for number in range(count)]

    def ip(self, number: int) -> str:
        return f"{self._prefix}.{number + 1}"

    def _broker(self, number: int, count: int) -> BrokerProcess:
        folder = self._folder / f"{self._cluster}-{number}"
        folder.mkdir(parents=True)
        address = self.ip(number)
        seeds = ",".join(f"{self.ip(other)}:{PEERS}" for other in range(count) if other != number)
        flags = ("--broker-id", str(number), "--peer-listener", f"{address}:{PEERS}", "--seeds", seeds)
        return BrokerProcess(folder, flags=flags, host=address, ports=(GRPC, HTTP))

    def __enter__(self) -> BrokerPods:
        self._format()
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready()
        for number in range(len(self.brokers)):
            self.show(number)
        return self

    def _format(self) -> None:
        """Forms the cluster with the id of a new Cluster, as broker 0 does."""
        uid = self._plane.object("Cluster", self._cluster, self._namespace)["metadata"]["uid"]
        format_solo(
            OsFiles(),
            str(self.brokers[0].data),
            cluster_id=UUID(uid).bytes,
            broker_id=0,
            directory_id=uuid4().bytes,
        )

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers:
            if broker.running:
                broker.kill()

    def show(self, number: int) -> None:
        """Creates its pod, with an address and ready."""
        name = f"{self._cluster}-{number}"
        self._plane.kubectl("apply", "--server-side", "-f", "-", given=self._pod(name, number))
        status: dict[str, Any] = {
            "phase": "Running",
            "podIP": self.ip(number),
            "podIPs": [{"ip": self.ip(number)}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self._plane.kubectl(
            "patch", "pod", name, "--namespace", self._namespace, "--subresource", "status",
            "--type", "merge", "--patch", json.dumps({"status": status}),
        )  # fmt: skip

    def _pod(self, name: str, number: int) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self._namespace,
                "labels": {
                    "tidelog.io/cluster": self._cluster,
                    "apps.kubernetes.io/pod-index": str(number),
                },
            },
            "spec": {"containers": [{"name": "broker", "image": "tidelog"}]},
        }

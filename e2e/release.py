"""A release of the chart as a user installs it, and checks that everything works."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, Final

from e2e.cluster.cluster import Cluster
from e2e.kube import Kube, condition, wait_until
from e2e.load.base import Load
from e2e.load.local import LocalLoad
from e2e.load.pod import LoadPod

ROOT: Final = Path(__file__).parents[1]
CHART: Final = ROOT / "charts" / "tidelog"

NAME: Final = "tidelog"
CLUSTER: Final = "main"
SERVER: Final = f"{CLUSTER}:9210"
NATS: Final = f"nats://{NAME}-nats:4222"
BROKERS: Final = f"app.kubernetes.io/name=tidelog-broker,tidelog.io/cluster={CLUSTER}"
OPERATORS: Final = "app.kubernetes.io/name=tidelog-operator"

REGISTRY: Final = os.environ.get("TIDELOG_E2E_IMAGES", "tidelog.test")
"""Prefix of the names of the tested images."""
VERSION: Final = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
TAG: Final = os.environ.get("TIDELOG_E2E_TAG", VERSION[1] if VERSION else "")
NEXT: Final = f"{TAG}-next"
"""Tag of the images to which a test upgrades."""
BEFORE: Final = f"{TAG}-before"
"""Tag of the images of the previous chart (`e2e.earlier`)."""

FIRST_NODE_PORT: Final = 30000
"""Port of the brokers' listener for clients outside of Kubernetes."""

HEALTHY_SECONDS_MAX: Final = 300.0


def stream(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidelog.io/v1alpha1",
        "kind": "Stream",
        "metadata": {"name": name},
        "spec": {"cluster": CLUSTER, **spec},
    }


class Release:
    """One installed release."""

    def __init__(self, kube: Kube, *, load_node: str) -> None:
        """`load_node`: the node on which clients run; no fault happens there. Empty: any node."""
        self.kube = kube
        self.load_node = load_node
        self._loads = count(1)
        self.values: dict[str, Any] = {
            "cluster": {
                "name": CLUSTER,
                "image": {"repository": f"{REGISTRY}/broker", "tag": TAG},
                "storage": {"size": "1Gi"},
                "listeners": [
                    {"name": "outside", "port": 9310, "type": "NodePort", "firstNodePort": FIRST_NODE_PORT}
                ],
                "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
            },
            "operator": {"image": {"repository": f"{REGISTRY}/operator", "tag": TAG}},
            "nats": {"image": {"repository": f"{REGISTRY}/nats", "tag": TAG}},
        }

    def __repr__(self) -> str:
        return f"<Release {NAME} in {self.kube.namespace}>"

    # --- actions of a user

    def install(self, chart: Path = CHART) -> None:
        with self._values_file() as file:
            self.kube.helm("install", NAME, str(chart), "--values", file)

    def with_images(self, tag: str) -> None:
        """Sets the tag of the images of brokers and operators, from the next upgrade on."""
        for part in ("cluster", "operator"):
            self.values[part]["image"] = {**self.values[part]["image"], "tag": tag}

    def upgrade(self, chart: Path = CHART, **cluster: Any) -> None:
        """Upgrades the release. `cluster`: values of the Cluster that change from now on."""
        self.values["cluster"] |= cluster
        with self._values_file() as file:
            self.kube.helm("upgrade", NAME, str(chart), "--values", file)

    @contextmanager
    def _values_file(self) -> Iterator[str]:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(self.values, file)
            file.flush()
            yield file.name

    def uninstall(self) -> None:
        """Uninstalls the release and deletes all its data."""
        self.kube.kubectl("delete", "streams.tidelog.io", "--all", seconds=300)
        self.kube.helm("uninstall", NAME, "--wait")
        wait_until(lambda: f"pods still exist: {', '.join(found)}" if (found := self.pods()) else "", 240)
        self.kube.kubectl("delete", "pvc", "--all", seconds=300)

    # --- observations

    @property
    def brokers(self) -> int:
        found: int = self.values["cluster"].get("brokers", 3)
        return found

    def cluster(self) -> dict[str, Any]:
        return self.kube.get("clusters.tidelog.io", CLUSTER) or {"metadata": {}}

    def pods(self) -> dict[str, dict[str, Any]]:
        """Returns the pods of the brokers, by name."""
        return {one["metadata"]["name"]: one for one in self.kube.list("pods", BROKERS)}

    def node_of(self, pod: str) -> str:
        return str(self.pods()[pod]["spec"].get("nodeName", ""))

    def spread(self) -> None:
        """Moves brokers to nodes of their own again after faults left two on one node: pods do not move
        automatically."""
        seen: set[str] = set()
        for name, pod in sorted(self.pods().items()):
            node = pod["spec"]["nodeName"]
            if node in seen:
                self.kube.kubectl("delete", "pod", name)
                self.until_healthy()
                node = self.node_of(name)
            seen.add(node)

    def node_to_break(self) -> str:
        """Returns a node with a broker and without the clients."""
        self.spread()
        nodes = {str(pod["spec"]["nodeName"]) for pod in self.pods().values()}
        return min(nodes - {self.load_node})

    def lacks(self) -> str:
        """Returns what is missing; empty: all brokers are ready, and all replicas are in sync."""
        cluster, pods = self.cluster(), self.pods()
        for kind in ("Ready", "InSync", "Scaled"):
            if condition(cluster, kind) != "True":
                return f"the Cluster is not {kind}: {json.dumps(cluster.get('status'))}"
        going = [name for name, one in pods.items() if "deletionTimestamp" in one["metadata"]]
        if len(pods) != self.brokers or going:
            return f"broker pods: {', '.join(sorted(pods))}; being deleted: {', '.join(going) or 'none'}"
        stateful = self.kube.get("statefulset", CLUSTER) or {"status": {}}
        status = stateful["status"]
        if not (
            status.get("observedGeneration") == stateful["metadata"]["generation"]
            and status.get("updatedReplicas") == status.get("readyReplicas") == self.brokers
        ):
            return f"the StatefulSet is not in its desired state: {status}"
        for one in self.kube.list("streams.tidelog.io"):
            for kind in ("Ready", "InSync"):
                if condition(one, kind) != "True":
                    return f"the Stream {one['metadata']['name']} is not {kind}"
        return ""

    def lacks_away_from(self, node: str) -> str:
        """Returns the brokers on that node; empty: none."""
        there = [name for name, one in self.pods().items() if one["spec"].get("nodeName") == node]
        return f"{', '.join(there)} on {node}" if there else ""

    def lacks_since(self, moment: datetime) -> str:
        """Like `lacks`, for a state after `moment`: the API server may still show an earlier one."""
        lease = self.kube.get("lease", f"{NAME}-operator") or {}
        if datetime.fromisoformat(lease["spec"]["renewTime"]) < moment:
            return "no operator is active yet"
        for name, pod in self.pods().items():
            (container,) = pod["status"].get("containerStatuses") or [{"state": {}}]
            running = container["state"].get("running")
            if running is None or datetime.fromisoformat(running["startedAt"]) < moment:
                return f"{name} has not restarted"
        return self.lacks()

    def until_healthy(self, seconds: float = HEALTHY_SECONDS_MAX) -> float:
        """Waits until everything works, and returns how long that took."""
        return wait_until(self.lacks, seconds)

    def until_rolled(self, before: dict[str, str]) -> None:
        """Waits until all pods of brokers are others than `before` (uids by name), and everything works."""

        def lack() -> str:
            now = {name: one["metadata"]["uid"] for name, one in self.pods().items()}
            same = sorted(name for name, uid in before.items() if now.get(name) == uid)
            return f"{', '.join(same)} have not been replaced" if same else self.lacks()

        wait_until(lack, HEALTHY_SECONDS_MAX)

    def leaders(self) -> dict[int, int]:
        """Returns how many partitions each broker leads."""
        return {one["id"]: one["leaders"] for one in self.cluster()["status"]["brokers"]}

    def until_balanced(self, seconds: float = 90.0) -> float:
        """Waits until leaders are balanced as well as possible, and returns how long that took."""

        def lack() -> str:
            found = self.leaders()
            uneven = max(found.values()) - min(found.values()) > 1
            return f"leaders by broker are not balanced: {found}" if uneven else ""

        return wait_until(lack, seconds)

    def verify(self) -> None:
        """Compares all replicas. Raises `Refused` if they differ."""
        self.kube.exec(f"{CLUSTER}-0", "tidelog", "verify", "--cluster", "--server", SERVER, seconds=300)

    # --- under load

    @contextmanager
    def load(self) -> Iterator[Load]:
        """Runs clients that write and read meanwhile, in a pod, also through NATS. Asserts that they had no
        errors.

        They use Streams of their own, which have no earlier records: a history starts with an empty log.
        """
        number = next(self._loads)
        orders, events = f"orders-{number}", f"events-{number}"
        self._make(
            stream(orders, partitions=3, replicationFactor=3, deletionPolicy="Delete"),
            stream(events, subject=f"{events}.>", replicationFactor=3, deletionPolicy="Delete"),
        )
        arguments = [
            "--server",
            SERVER,
            "--nats",
            NATS,
            "--streams",
            f"{orders}:3",
            f"{events}:1@{events}.all",
        ]
        load = LoadPod(self.kube, f"{REGISTRY}/client:{TAG}", arguments, node=self.load_node)
        yield from self._judged(load, orders, events)

    @contextmanager
    def load_from_outside(self, nodes: Cluster) -> Iterator[Load]:
        """The same outside of the nodes: clients reach brokers by the listener for clients outside of
        Kubernetes."""
        orders = f"orders-{next(self._loads)}"
        self._make(stream(orders, partitions=3, replicationFactor=3, deletionPolicy="Delete"))
        addresses = {one["status"]["hostIP"] for one in self.pods().values()}
        servers = [f"{address}:{FIRST_NODE_PORT + broker}" for address in addresses for broker in range(3)]
        yield from self._judged(
            LocalLoad(nodes, ["--server", ",".join(servers), "--streams", f"{orders}:3"]), orders
        )

    def _make(self, *streams: dict[str, Any]) -> None:
        self.kube.apply(*streams)
        self.until_healthy()

    def _judged(self, load: Load, *streams: str) -> Iterator[Load]:
        try:
            yield load
            load.flows()
            verdict = load.verdict()
        finally:
            load.close()
        assert verdict["clean"], verdict
        assert not verdict["errors"], verdict["errors"]
        self.verify()
        self.kube.kubectl("delete", "streams.tidelog.io", *streams)

    # --- the operator

    def working_operator(self) -> str:
        """Returns the pod that holds the Lease; empty: none does yet."""
        lease = self.kube.get("lease", f"{NAME}-operator") or {"spec": {}}
        return str(lease["spec"].get("holderIdentity") or "")

    def kill_operator(self) -> None:
        """Kills the active operator with SIGKILL."""

        def lack() -> str:
            # It may have been on a failed node, and another one has not taken over yet.
            name = self.working_operator()
            return (
                "" if name and self.kube.get("pod", name) else f"the operator {name} does not exist any more"
            )

        wait_until(lack, 60)
        self.kube.kubectl(
            "delete", "pod", self.working_operator(), "--force", "--grace-period=0", "--wait=false"
        )

"""Simulated nodes whose broker pods are real broker processes, with real controllers.

StatefulSets, claims, budgets and the scheduler are those of Kubernetes (`ControlPlane(controllers=True)`).
This package does what a node would do: `broker_workers` runs brokers, `pod_workers` reports all other pods as
ready, `volumes` provides folders for claims. There are no containers, mounts or DNS names: see `containers`.

Each pod name has a loopback address of its own. Kubernetes does not accept these in the endpoints of a
service, so services lead nowhere. `kubectl logs` and `exec` find no kubelet.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp

from support.kube.api import MERGE, STRATEGIC_MERGE, Json, Key, KubeApi, Mirror, key_of
from support.kube.broker_workers import BrokerWorker
from support.kube.containers import broker_container
from support.kube.control_plane import ControlPlane
from support.kube.pod_workers import Machine, PodWorker, now_text
from support.kube.volumes import Volumes

T = TypeVar("T")

ZONES: Final = {"node-a": "zone-a", "node-b": "zone-b", "node-c": "zone-c"}
"""Names of nodes for tests that need no special ones."""

CAPACITY: Final = {"cpu": "64", "memory": "256Gi", "pods": "250", "ephemeral-storage": "100Gi"}
START_SECONDS_MAX: Final = 30.0
CONTROL_SECONDS_MAX: Final = 30.0

_addresses = itertools.count()
"""Counts all nodes of this process, so that successive ones do not share addresses."""


class Nodes:
    """Simulated nodes; a context manager that leaves no process and no folder.

    Methods that name a pod use the namespace of the nodes unless another one is given.
    """

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        zones: Mapping[str, str] = ZONES,
        *,
        namespace: str = "default",
        prepare: Callable[[str, Path], None] = lambda claim, folder: None,
    ) -> None:
        """`zones`: by the name of the node. `prepare` gets the name of each claim and the folder of its new
        volume."""
        self._plane = plane
        self._folder = folder
        self._zones = dict(zones)
        self._namespace = namespace
        self._prepare = prepare
        self._addresses: dict[Key, str] = {}
        self._addressing = threading.Lock()
        self._workers: dict[Key, PodWorker] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop
        self._begun: Future[None] = Future()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tidelog-nodes", daemon=True)

    def __repr__(self) -> str:
        return f"<Nodes {list(self._zones)} pods={list(self._workers.values())}>"

    # --- life

    def __enter__(self) -> Nodes:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        try:
            self._begun.result(START_SECONDS_MAX)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._check()

    def _end(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended by itself, and its loop is closed
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join()
        shutil.rmtree(self._folder)

    def _cancel(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._live())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self._failure = error
            if not self._begun.done():
                self._begun.set_exception(error)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _live(self) -> None:
        logs = self._folder / "logs"
        logs.mkdir()
        async with (
            KubeApi(self._plane.kubeconfig) as api,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True, limit=0)) as web,
            asyncio.TaskGroup() as self._group,
        ):
            self._volumes = Volumes(api, self._folder / "volumes", self._prepare)
            config_maps = Mirror(api, "/api/v1/configmaps")
            self._machine = Machine(
                api, web, self._volumes, config_maps, self._folder / "pods", logs, self._address_of, set()
            )
            for name, zone in self._zones.items():
                await _make_node(api, name, zone)
            await self._volumes.make_class()
            self._group.create_task(self._volumes.run())
            self._group.create_task(config_maps.run())
            # Like a kubelet, which starts nothing before it has read what must be mounted.
            await config_maps.listed.wait()
            self._group.create_task(Mirror(api, "/api/v1/pods", self._pod_changed, self._pod_gone).run())
            self._begun.set_result(None)

    # --- pods

    def _address_of(self, namespace: str, pod: str) -> str:
        """Returns the address of a pod name; always the same one."""
        with self._addressing:
            if (namespace, pod) not in self._addresses:
                # Test processes do not share addresses, nor do these and the ones of `BrokerPods`.
                worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
                net, host = divmod(next(_addresses), 250)
                self._addresses[namespace, pod] = f"127.{150 + worker}.{(os.getpid() + net) % 250}.{host + 1}"
            return self._addresses[namespace, pod]

    async def _pod_changed(self, pod: Json) -> None:
        if pod["spec"].get("nodeName") not in self._zones:
            return
        key = key_of(pod)
        worker = self._workers.get(key)
        if worker is not None and worker.uid == pod["metadata"]["uid"]:
            worker.pod = pod
            return
        if worker is not None:
            worker.gone = True
        container = broker_container(pod)
        if container is None:
            worker = PodWorker(pod, self._machine)
        else:
            worker = BrokerWorker(pod, container, self._machine)
        before = self._tasks.get(key)
        self._workers[key] = worker
        self._tasks[key] = self._group.create_task(worker.run(before))

    async def _pod_gone(self, pod: Json) -> None:
        worker = self._workers.get(key_of(pod))
        if worker is not None and worker.uid == pod["metadata"]["uid"]:
            worker.gone = True

    # --- for tests

    def address(self, pod: str, *, namespace: str = "") -> str:
        """Returns the IP of the pod, whether the pod exists or not."""
        return self._address_of(namespace or self._namespace, pod)

    def pid(self, pod: str, *, namespace: str = "") -> int:
        """Returns the process id of the broker."""
        worker = self._worker(pod, namespace)
        process = worker.process
        assert process is not None, f"no process runs in {pod}: {worker}"
        return process.pid

    def log(self, pod: str, *, namespace: str = "") -> str:
        """Returns the log of all brokers of that name; lines that begin with `node:` say what the node
        did."""
        path = self._machine.log_path(namespace or self._namespace, pod)
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def path(self, pod: str, inside: str, *, namespace: str = "") -> Path:
        """Returns where a path below a mount of the pod is on this machine."""
        surroundings = self._worker(pod, namespace).surroundings
        assert surroundings is not None, f"nothing is mounted in {pod} yet"
        return surroundings.path(inside)

    def kill(self, pod: str, *, namespace: str = "") -> None:
        """Kills the broker's process with SIGKILL: the container is restarted."""
        worker = self._worker(pod, namespace)
        assert worker.process is not None, f"no process runs in {pod}: {worker}"
        worker.kill()

    def hold(self, pod: str, *, namespace: str = "") -> None:
        """Holds a pod name: its broker is not started until `release`; a running one continues."""
        self._machine.held.add((namespace or self._namespace, pod))

    def release(self, pod: str, *, namespace: str = "") -> None:
        self._machine.held.discard((namespace or self._namespace, pod))

    def lose_volume(self, claim: str, *, namespace: str = "") -> None:
        """Makes the claim lost for good, with its volume; kills the processes that write to it."""
        where = namespace or self._namespace

        def end_users() -> None:
            for (there, _), worker in self._workers.items():
                if there == where and isinstance(worker, BrokerWorker) and worker.uses(claim):
                    worker.kill()

        self._call(self._volumes.lose(where, claim, end_users))

    def _worker(self, pod: str, namespace: str) -> BrokerWorker:
        self._check()
        worker = self._workers.get((namespace or self._namespace, pod))
        assert isinstance(worker, BrokerWorker), f"there is no broker's pod {pod}: {self}"
        return worker

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the loop of the nodes."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CONTROL_SECONDS_MAX)


async def _make_node(api: KubeApi, name: str, zone: str) -> None:
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": zone,
    }
    manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": now_text()}
    status = {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": [ready]}
    await api.send("POST", "/api/v1/nodes", manifest)
    await api.send("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, STRATEGIC_MERGE)
    # The API server taints a new node; the controller that would remove the taint waits for heartbeats.
    await api.send("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, MERGE)

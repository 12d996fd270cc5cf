"""A node: a machine with a real container runtime, a real kubelet and a real proxy for services."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.cluster.control_groups import ControlGroup
from e2e.cluster.control_plane import VOLUMES_PLACE, ControlPlane
from e2e.cluster.layout import (
    API_ADDRESS,
    DOMAIN,
    NODES_MAX,
    PAUSE_IMAGE,
    PODS,
    Layout,
    node_address,
    node_name,
    pod_range,
)
from e2e.cluster.machines import Machine
from e2e.cluster.processes import ClusterError, Processes

RUNTIME_SECONDS_MAX: Final = 30.0
READY_SECONDS_MAX: Final = 180.0

RUN: Final = "/run/containerd"
OWN_FOLDERS: Final = (
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/cni",
    RUN,
    "/var/log/pods",
    "/var/log/containers",
)
"""Compiled into the kubelet and the runtime, whatever their settings are: each node has its own folder."""

PODS_MAX: Final = 60


def _beside(place: str) -> str:
    """The name of the folder that replaces it."""
    return place.strip("/").replace("/", "-")


class Node:
    """A node by number, from 1, running or not."""

    def __init__(self, number: int, layout: Layout, processes: Processes, plane: ControlPlane) -> None:
        self.number = number
        self.name = node_name(number)
        self._layout = layout
        self._folder = layout.node(number)
        self._processes = processes
        self._plane = plane
        self.machine = Machine(self.name, processes)
        self.group = ControlGroup(f"tidelog-{layout.mark}-{self.name}")

    def __repr__(self) -> str:
        return f"<Node {self.name}>"

    # --- life

    def start(self) -> None:
        """Starts the node, with the content of its disk if it existed before.

        Does not wait until it is ready. Raises `ClusterError`.
        """
        if self._processes.is_running(self.name):
            raise ClusterError(f"{self.name} already runs. Stop it first with `node-down {self.number}`.")
        self._forget_memory()
        own = {Path(place): self._folder / _beside(place) for place in OWN_FOLDERS}
        self.machine.start({**own, VOLUMES_PLACE: self._layout.volumes})
        self.group.make()
        self.group.machine_procs.write_text(str(self.machine.pid))
        self._connect()
        self._plane.certificates.make_for_node(self.name, node_address(self.number))
        self._write_settings()
        self._start_runtime()
        programs, certificates = self._layout.programs, self._plane.certificates
        self._start_daemon("kubelet", [
            programs / "kubelet", "--config", self._folder / "kubelet.yaml",
            "--kubeconfig", certificates.kubeconfig(self.name),
            "--hostname-override", self.name, "--node-ip", node_address(self.number),
        ])  # fmt: skip
        # The limits of connection tracking belong to the whole machine: zeros leave them unchanged.
        self._start_daemon("kube-proxy", [
            programs / "kube-proxy", "--proxy-mode", "iptables", "--cluster-cidr", PODS,
            "--kubeconfig", certificates.kubeconfig("proxy"), "--hostname-override", self.name,
            "--bind-address", node_address(self.number), "--oom-score-adj", "0",
            "--healthz-bind-address", f"{node_address(self.number)}:10256",
            "--metrics-bind-address", "127.0.0.1:10249",
            "--conntrack-max-per-core", "0", "--conntrack-min", "0",
            "--conntrack-tcp-timeout-established", "0s", "--conntrack-tcp-timeout-close-wait", "0s",
        ])  # fmt: skip

    def wait_until_ready(self) -> None:
        self._processes.wait_until(
            self._is_ready, f"{self.name} is ready", self._daemon("kubelet"), READY_SECONDS_MAX
        )

    def stop(self) -> None:
        """Ends everything on the node at once, as a power loss does. Its object, its disk, and volumes
        stay."""
        for daemon in ("kubelet", "kube-proxy", "containerd"):
            self._processes.kill(self._daemon(daemon))
        self.group.end()
        self._unplug()
        self._processes.kill(self.name)

    def erase(self) -> None:
        """Stops the node and empties its disk: the next one of its name is a new node."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def load(self, image: Path) -> None:
        """Loads an image into the node. Raises `ClusterError`."""
        command = self.machine.inside("ctr", "--namespace", "k8s.io", "images", "import", image)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"{self.name} cannot import {image}: {done.stderr.strip()[-1000:]}")
        with self._loaded.open("a") as listed:
            listed.write(f"{image}\n")

    # --- parts of its life

    def _connect(self) -> None:
        """Connects the machine to the bridge, and adds routes to the pods of the other nodes."""
        plane, own = self._plane.machine, self.machine
        cable = ["ip", "link", "add", "name", f"port{self.number}", "netns", str(plane.pid), "type", "veth"]
        subprocess.run([*cable, "peer", "name", "eth0", "netns", str(own.pid)], check=True)
        plane.run("ip", "link", "set", f"port{self.number}", "master", "fabric", "up")
        own.run("ip", "address", "add", f"{node_address(self.number)}/24", "dev", "eth0")
        own.run("ip", "link", "set", "eth0", "up")
        own.run("ip", "route", "add", "default", "via", API_ADDRESS)
        own.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        for other in range(1, NODES_MAX + 1):
            if other != self.number:
                own.run("ip", "route", "add", pod_range(other), "via", node_address(other))

    def _unplug(self) -> None:
        """The interface disappears with the machine, but with a delay: the next one may be connected before
        that."""
        command = self._plane.machine.inside("ip", "link", "delete", f"port{self.number}")
        subprocess.run(command, capture_output=True, check=False)

    def cut_off(self, *, ends: bool = False) -> None:
        """Isolates the node and its pods, which continue to run. `ends`: connects it again."""
        self._plane.machine.run("ip", "link", "set", f"port{self.number}", "up" if ends else "down")

    def _start_runtime(self) -> None:
        self._start_daemon("containerd", ["containerd", "--config", self._folder / "containerd.toml"])
        self._processes.wait_until(
            self._runtime_answers, "the container runtime answers", self._daemon("containerd"),
            RUNTIME_SECONDS_MAX,
        )  # fmt: skip
        known = self._loaded.read_text().splitlines() if self._loaded.exists() else []
        for image in self._layout.images.read_text().splitlines():
            if image not in known:
                self.load(Path(image))

    @property
    def _loaded(self) -> Path:
        """A list of the image files on its disk."""
        return self._folder / "loaded"

    def _forget_memory(self) -> None:
        """Files in /run do not survive a power loss of the node."""
        shutil.rmtree(self._folder / _beside(RUN), ignore_errors=True)

    def _start_daemon(self, name: str, command: list[str | Path]) -> None:
        self.machine.start_inside(self._daemon(name), command, self.group.machine_procs)

    def _daemon(self, name: str) -> str:
        return f"{self.name}-{name}"

    def _runtime_answers(self) -> bool:
        command = self.machine.inside("ctr", "version")
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _is_ready(self) -> bool:
        """Checks what the kubelet itself reports too: the object may be older than a power loss."""
        ready = '{.status.conditions[?(@.type=="Ready")].status}'
        try:
            healthy = self._plane.kubectl("get", "--raw", f"/api/v1/nodes/{self.name}/proxy/healthz") == "ok"
            return (
                healthy and self._plane.kubectl("get", "node", self.name, "-o", f"jsonpath={ready}") == "True"
            )
        except subprocess.CalledProcessError:
            return False

    # --- its settings

    def _write_settings(self) -> None:
        networks = self._folder / "networks"
        networks.mkdir(exist_ok=True)
        (networks / "10-pods.conflist").write_text(json.dumps(self._pod_network()))
        (self._folder / "containerd.toml").write_text(self._runtime_settings(networks))
        (self._folder / "resolv.conf").write_text(f"nameserver {API_ADDRESS}\n")
        (self._folder / "kubelet.yaml").write_text(yaml.safe_dump(self._kubelet_settings()))

    def _pod_network(self) -> dict[str, Any]:
        addresses = {
            "type": "host-local",
            "ranges": [[{"subnet": pod_range(self.number)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": addresses,
        }
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]}

    def _runtime_settings(self, networks: Path) -> str:
        """The oom scores are not lowered: root in a virtual machine or a container may not do that."""
        return f"""
version = 2
oom_score = 0
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{self._layout.programs}/cni"
  conf_dir = "{networks}"
"""

    def _kubelet_settings(self) -> dict[str, Any]:
        files = self._layout.certificates
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": node_address(self.number),
            "healthzBindAddress": "127.0.0.1",
            "tlsCertFile": str(files / f"{self.name}.crt"),
            "tlsPrivateKeyFile": str(files / f"{self.name}.key"),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(files / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "clusterDNS": [API_ADDRESS],
            "clusterDomain": DOMAIN,
            "resolvConf": str(self._folder / "resolv.conf"),
            "oomScoreAdj": 0,
            "failSwapOn": False,
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.group.name}",
            "enforceNodeAllocatable": ["pods"],
            # The free space of the disk says nothing about a test: the disk belongs to the machine.
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "0%",
                "nodefs.inodesFree": "0%",
                "imagefs.available": "0%",
                "imagefs.inodesFree": "0%",
            },
            "imageGCHighThresholdPercent": 100,
            "nodeStatusUpdateFrequency": "4s",
            "syncFrequency": "10s",
            "maxPods": PODS_MAX,
        }

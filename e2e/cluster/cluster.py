"""The whole cluster: start, stop, and faults of its nodes."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

from e2e.cluster.control_plane import NAME as CONTROL
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.layout import NODES_MAX, PAUSE_IMAGE, Layout
from e2e.cluster.node import Node
from e2e.cluster.processes import ClusterError, Processes
from e2e.cluster.program_image import write_program_image

COMMANDS: Final = ("containerd", "ctr", "runc", "iptables", "ip", "sysctl", "nsenter", "unshare")
PACKAGES: Final = "containerd runc iptables iproute2 procps util-linux"

OWN: Final = ("processes", "certificates", "volumes", "images", "etcd", "Corefile", "pause.tar")
"""Parts of the folder that belong to the cluster, besides nodes and logs."""


class Cluster:
    """A cluster of machines. Every method raises `ClusterError`."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.processes = Processes(layout.records, layout.logs)
        self.plane = ControlPlane(layout, self.processes)

    def __repr__(self) -> str:
        return f"<Cluster {self.layout.folder}>"

    def node(self, number: int) -> Node:
        if not 1 <= number <= NODES_MAX:
            raise ClusterError(f"Node {number} does not exist. Choose a node from 1 to {NODES_MAX}.")
        return Node(number, self.layout, self.processes, self.plane)

    def named(self, name: str) -> Node:
        """Returns the running node with this name."""
        return next(one for one in self.nodes if one.name == name)

    @property
    def nodes(self) -> list[Node]:
        """Returns the running nodes."""
        found = [self.node(number) for number in range(1, NODES_MAX + 1)]
        return [one for one in found if self.processes.is_running(one.name)]

    def up(self, count: int) -> float:
        """Starts the cluster, and returns the seconds until all nodes were ready."""
        self._check_requirements()
        began, layout = time.monotonic(), self.layout
        if layout.records.exists():
            raise ClusterError(f"A cluster already runs in {layout.folder}. Stop it first with `down`.")
        strange = [one.name for one in layout.folder.glob("*") if one.name not in (*OWN, "logs")]
        if strange:
            raise ClusterError(
                f"{layout.folder} contains other files: {', '.join(strange)}. Choose another folder."
            )
        shutil.rmtree(layout.logs, ignore_errors=True)
        layout.folder.mkdir(parents=True, exist_ok=True)
        pause = layout.folder / "pause.tar"
        write_program_image(layout.programs / "pause", PAUSE_IMAGE, pause)
        layout.images.write_text(f"{pause}\n")
        nodes = [self.node(number) for number in range(1, count + 1)]
        self.plane.start()
        for node in nodes:
            node.start()
        for node in nodes:
            node.wait_until_ready()
        return time.monotonic() - began

    def down(self) -> None:
        """Stops the cluster; only the logs are left."""
        for number in range(1, NODES_MAX + 1):
            node = self.node(number)
            if self.layout.node(number).exists():
                node.erase()
        self.plane.stop()
        for name in OWN:
            path = self.layout.folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def load_image(self, file: Path) -> None:
        """Loads an image into every node, and into later ones."""
        if not file.is_file():
            raise ClusterError(f"The file {file} does not exist.")
        file = file.resolve()
        for node in self.nodes:
            node.load(file)
        known = self.layout.images.read_text().splitlines()
        if str(file) not in known:
            self.layout.images.write_text("\n".join([*known, str(file), ""]))

    def container_pid(self, pod: str, namespace: str) -> int:
        """Returns the process id of the first process of the pod's first container on this machine."""
        where = ["get", "pod", pod, "--namespace", namespace, "-o"]
        try:
            found = self.plane.kubectl(*where, "jsonpath={.status.containerStatuses[0].containerID}")
        except subprocess.CalledProcessError as error:
            raise ClusterError(error.stderr.strip()) from error
        container = found.removeprefix("containerd://")
        groups = (node.group.of_container(container) for node in self.nodes) if container else ()
        for group in groups:
            if group is not None:
                return int((group / "cgroup.procs").read_text().split()[0])
        raise ClusterError(f"The pod {pod} has no running container.")

    def needs_to_be_up(self) -> None:
        if not self.processes.is_running(CONTROL):
            raise ClusterError(f"No cluster runs in {self.layout.folder}. Start one with `up`.")

    def _check_requirements(self) -> None:
        if os.geteuid() != 0:
            raise ClusterError("The cluster needs root for namespaces, mounts and control groups.")
        missing = [one for one in COMMANDS if shutil.which(one) is None]
        if missing:
            raise ClusterError(
                f"Missing commands: {', '.join(missing)}. On Debian, run: apt-get install {PACKAGES}"
            )

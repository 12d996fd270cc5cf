"""File paths of a cluster below one folder, and its addresses."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

API_ADDRESS: Final = "10.200.0.1"
API: Final = f"https://{API_ADDRESS}:6443"
NOWHERE: Final = "10.200.0.254"
"""An unused address. Kubernetes follows the default route to find its own address."""

PODS: Final = "10.244.0.0/16"
SERVICES: Final = "10.96.0.0/16"
API_SERVICE: Final = "10.96.0.1"
DOMAIN: Final = "cluster.local"
NODES_MAX: Final = 9
PAUSE_IMAGE: Final = "tidelog.test/pause:1"
"""The image whose process holds the namespaces of a pod."""


@dataclass(frozen=True, slots=True)
class Layout:
    folder: Path
    """On a disk: file systems of containers cannot be on an overlay."""
    programs: Path
    """The programs of Kubernetes, as `tools/kube/binaries.sh` builds them."""

    @property
    def mark(self) -> str:
        """Distinguishes this cluster from others on the machine."""
        return hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]

    @property
    def records(self) -> Path:
        return self.folder / "processes"

    @property
    def logs(self) -> Path:
        """The only files that stay when a cluster is removed."""
        return self.folder / "logs"

    @property
    def certificates(self) -> Path:
        return self.folder / "certificates"

    @property
    def volumes(self) -> Path:
        """Volumes of all nodes: the provisioner of Kubernetes binds a volume to no node."""
        return self.folder / "volumes"

    @property
    def images(self) -> Path:
        """A list of the image files that every node gets, later ones too."""
        return self.folder / "images"

    @property
    def kubeconfig(self) -> Path:
        return self.certificates / "admin.kubeconfig"

    def node(self, number: int) -> Path:
        return self.folder / node_name(number)


def default_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "tidelog-kube" / "cluster"


def node_name(number: int) -> str:
    return f"node{number}"


def node_address(number: int) -> str:
    return f"10.200.0.{10 + number}"


def pod_range(number: int) -> str:
    return f"10.244.{number}.0/24"

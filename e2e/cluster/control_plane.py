"""The machine of the control plane: etcd, the API server, controllers, the scheduler and the DNS of pods.

All other machines are connected to its bridge. Nothing in it reaches other networks.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from e2e.cluster.certificates import Certificates
from e2e.cluster.layout import (
    API,
    API_ADDRESS,
    API_SERVICE,
    DOMAIN,
    NODES_MAX,
    NOWHERE,
    PODS,
    SERVICES,
    Layout,
    node_address,
    pod_range,
)
from e2e.cluster.machines import Machine
from e2e.cluster.processes import Processes

READY_SECONDS_MAX: Final = 60.0
LOST_AFTER: Final = "20s"
"""A node without a heartbeat for this time counts as lost."""

VOLUMES_PLACE: Final = Path("/tmp/hostpath_pv")
"""Compiled into the host-path provisioner of Kubernetes."""

NAME: Final = "control"

OPEN_VOLUMES: Final = (
    'while sleep 0.5; do find "$0" -mindepth 1 -maxdepth 1 ! -perm 0777 -exec chmod 0777 {} +; done'
)
"""The provisioner creates folders that only root may enter, and Kubernetes does not apply `fsGroup` to
them."""

STORAGE_CLASS: Final = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: host-path
  annotations: { storageclass.kubernetes.io/is-default-class: "true" }
provisioner: kubernetes.io/host-path
"""

DNS: Final = """
{domain}:53 in-addr.arpa:53 {{
  bind {address}
  errors
  kubernetes {domain} in-addr.arpa {{
    kubeconfig {kubeconfig} tidelog-e2e
    ttl 0
    endpoint_pod_names
  }}
}}
"""


class ControlPlane:
    """The machine of the control plane and its processes."""

    def __init__(self, layout: Layout, processes: Processes) -> None:
        self._layout = layout
        self._processes = processes
        self.machine = Machine(NAME, processes)
        self.certificates = Certificates(layout.certificates, API)

    def start(self) -> None:
        layout, machine = self._layout, self.machine
        machine.start({VOLUMES_PLACE: layout.volumes})
        machine.run("ip", "link", "add", "fabric", "type", "bridge")
        machine.run("ip", "address", "add", f"{API_ADDRESS}/24", "dev", "fabric")
        machine.run("ip", "link", "set", "fabric", "up")
        machine.run("ip", "route", "add", "default", "via", NOWHERE)
        machine.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        for number in range(1, NODES_MAX + 1):
            machine.run("ip", "route", "add", pod_range(number), "via", node_address(number))
        names = [f"kubernetes{end}" for end in ("", ".default", ".default.svc", f".default.svc.{DOMAIN}")]
        self.certificates.make(["localhost", "127.0.0.1", API_ADDRESS, API_SERVICE, *names])
        self._start_api()
        self._start_controllers()
        self._start_dns()
        self._processes.start("volume-permissions", ["sh", "-c", OPEN_VOLUMES, layout.volumes])
        self.kubectl("apply", "-f", "-", given=STORAGE_CLASS)

    def _start_api(self) -> None:
        programs, files = self._layout.programs, self._layout.certificates
        client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
        self.machine.start_inside("etcd", [
            programs / "etcd", "--data-dir", self._layout.folder / "etcd", "--log-level", "warn",
            "--unsafe-no-fsync", "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}",
        ])  # fmt: skip
        self.machine.start_inside("kube-apiserver", [
            programs / "kube-apiserver", "--etcd-servers", client,
            "--bind-address", API_ADDRESS, "--advertise-address", API_ADDRESS, "--secure-port", "6443",
            "--tls-cert-file", files / "apiserver.crt", "--tls-private-key-file", files / "apiserver.key",
            "--client-ca-file", files / "ca.crt", "--token-auth-file", files / "tokens.csv",
            "--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
            "--allow-privileged=true", "--service-cluster-ip-range", SERVICES,
            "--service-account-issuer", f"https://kubernetes.default.svc.{DOMAIN}",
            "--service-account-key-file", files / "accounts.key",
            "--service-account-signing-key-file", files / "accounts.key",
            "--kubelet-client-certificate", files / "apiserver-kubelet-client.crt",
            "--kubelet-client-key", files / "apiserver-kubelet-client.key",
            "--kubelet-certificate-authority", files / "ca.crt",
            "--kubelet-preferred-address-types", "InternalIP",
        ])  # fmt: skip
        self._processes.wait_until(
            self._is_ready, "the API server is ready", "kube-apiserver", READY_SECONDS_MAX
        )

    def _start_controllers(self) -> None:
        programs, files = self._layout.programs, self._layout.certificates
        common = ["--leader-elect=false", "--bind-address", "127.0.0.1"]
        self.machine.start_inside("kube-controller-manager", [
            programs / "kube-controller-manager", *common,
            "--kubeconfig", self.certificates.kubeconfig("controller-manager"),
            "--use-service-account-credentials=true", "--root-ca-file", files / "ca.crt",
            "--service-account-private-key-file", files / "accounts.key",
            "--enable-hostpath-provisioner", "--cluster-cidr", PODS, "--allocate-node-cidrs=false",
            "--node-monitor-grace-period", LOST_AFTER,
        ])  # fmt: skip
        self.machine.start_inside("kube-scheduler", [
            programs / "kube-scheduler", *common, "--kubeconfig", self.certificates.kubeconfig("scheduler"),
        ])  # fmt: skip

    def _start_dns(self) -> None:
        file = self._layout.folder / "Corefile"
        file.write_text(DNS.format(domain=DOMAIN, address=API_ADDRESS, kubeconfig=self._layout.kubeconfig))
        self.machine.start_inside("coredns", [self._layout.programs / "coredns", "-conf", file])

    def stop(self) -> None:
        for name in ("coredns", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"):
            self._processes.kill(name)
        self._processes.kill("volume-permissions")
        self._processes.kill(NAME)

    def kubectl(self, *words: str, given: str | None = None) -> str:
        """Runs a command and returns its output. Raises `CalledProcessError`."""
        command = self.command(self._layout.programs / "kubectl", *words)
        return subprocess.run(command, check=True, capture_output=True, text=True, input=given).stdout

    def command(self, *command: str | Path) -> list[str]:
        """Returns the command that runs `command` on the cluster's network, as its administrator."""
        path = f"PATH={self._layout.programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        environment = ["env", f"KUBECONFIG={self._layout.kubeconfig}", path]
        return self.machine.inside(*environment, *command, mounts=False)

    def _is_ready(self) -> bool:
        try:
            return self.kubectl("get", "--raw", "/readyz") == "ok"
        except subprocess.CalledProcessError:
            return False

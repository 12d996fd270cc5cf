"""The load program in a pod, with its files from a ConfigMap."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from e2e.kube import Kube
from e2e.load.base import Load

ROOT: Final = Path(__file__).parents[2]
FILES: Final = (
    "chaos/__init__.py",
    "chaos/figures.py",
    "chaos/load.py",
    "chaos/nats_load.py",
    "chaos/recording.py",
    "chaos/verdict.py",
    "e2e/load/program.py",
)
"""The files of the program, besides the library in the image."""

NAME: Final = "load"
RESTRICTED: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def pod_manifest(
    name: str, image: str, args: list[str], *, node: str = "", files: bool = True
) -> dict[str, Any]:
    """The spec of a pod that satisfies the restricted profile and runs once."""
    items = [{"key": key_of(path), "path": path} for path in FILES]
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    if files:
        mounts.append({"name": "files", "mountPath": "/load"})
        volumes.append({"name": "files", "configMap": {"name": NAME, "items": items}})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}),
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": name,
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "args": args,
                    "env": [{"name": "PYTHONPATH", "value": "/load"}],
                    "securityContext": RESTRICTED,
                    "volumeMounts": mounts,
                }
            ],
            "volumes": volumes,
        },
    }


def key_of(path: str) -> str:
    """Keys of a ConfigMap cannot contain slashes."""
    return path.replace("/", "..")


class LoadPod(Load):
    """Load in a pod, on the nodes of the brokers."""

    def __init__(self, kube: Kube, image: str, arguments: list[str], *, node: str = "") -> None:
        """`node`: the node on which it runs, so that faults of other nodes do not affect it."""
        self._kube = kube
        self.close()
        data = {key_of(path): (ROOT / path).read_text() for path in FILES}
        kube.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": data},
            pod_manifest(NAME, image, ["/load/e2e/load/program.py", *arguments], node=node),
        )
        self.begun()

    def _said(self) -> Iterable[str]:
        return self._kube.kubectl("logs", NAME, "--ignore-errors").splitlines()

    def _stop(self) -> None:
        self._kube.exec(NAME, "touch", "/tmp/stop")

    def _why_ended(self) -> str:
        pod = self._kube.get("pod", NAME)
        phase = "its pod is gone" if pod is None else pod["status"].get("phase", "Pending")
        if phase in ("Running", "Pending"):
            return ""
        return f"{phase}: {self._kube.kubectl('logs', NAME, '--tail=20')}"

    def close(self) -> None:
        self._kube.kubectl("delete", "pod", NAME, "--ignore-not-found", "--grace-period=0", "--force")

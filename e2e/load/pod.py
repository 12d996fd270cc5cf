"""The load program in a pod, with its files from a ConfigMap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from e2e.kube import Kube, wait_until

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
"""What the program consists of, beside the library in the image."""

NAME: Final = "load"
BEGIN_SECONDS_MAX: Final = 60.0
VERDICT_SECONDS_MAX: Final = 240.0

RESTRICTED: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def pod_manifest(
    name: str, image: str, args: list[str], *, node: str = "", files: bool = True
) -> dict[str, Any]:
    """Of a pod that satisfies the restricted profile and runs once."""
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
    """A ConfigMap's keys have no slashes."""
    return path.replace("/", "..")


class LoadPod:
    """Writers and readers, running."""

    def __init__(self, kube: Kube, image: str, arguments: list[str], *, node: str = "") -> None:
        """`node`: where it runs, so that what happens to others does not happen to it."""
        self._kube = kube
        kube.kubectl("delete", "pod", NAME, "--ignore-not-found", "--wait", "--grace-period=0", "--force")
        data = {key_of(path): (ROOT / path).read_text() for path in FILES}
        kube.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": data},
            pod_manifest(NAME, image, ["/load/e2e/load/program.py", *arguments], node=node),
        )
        wait_until(self._lacks_records, BEGIN_SECONDS_MAX)

    def __repr__(self) -> str:
        return "<LoadPod>"

    def _lacks_records(self) -> str:
        lines = self.lines()
        return (
            "" if any(line.get("acknowledged", 0) > 100 for line in lines) else "nothing is acknowledged yet"
        )

    def lines(self) -> list[dict[str, Any]]:
        """What it said so far."""
        said = self._kube.kubectl("logs", NAME, "--ignore-errors").splitlines()
        return [json.loads(line) for line in said if line.startswith("{")]

    def acknowledged(self) -> int:
        return max((line.get("acknowledged", 0) for line in self.lines()), default=0)

    def pause_since(self, at: float) -> float:
        """The longest time without an acknowledgement in some stream's partition, that ended after `at`."""
        found = [max(line["pauses"].values(), default=0.0) for line in self.lines() if line.get("at", 0) > at]
        return max(found, default=0.0)

    def flows(self) -> None:
        """Waits until records are acknowledged that are not yet now."""
        before = self.acknowledged()
        wait_until(
            lambda: "" if self.acknowledged() > before else "nothing is acknowledged", BEGIN_SECONDS_MAX
        )

    def verdict(self) -> dict[str, Any]:
        """Has it stop and judge."""
        self._kube.exec(NAME, "touch", "/tmp/stop")
        wait_until(self._lacks_verdict, VERDICT_SECONDS_MAX)
        found: dict[str, Any] = next(line["verdict"] for line in self.lines() if "verdict" in line)
        return found

    def _lacks_verdict(self) -> str:
        if any("verdict" in line for line in self.lines()):
            return ""
        pod = self._kube.get("pod", NAME)
        phase = "gone" if pod is None else pod["status"].get("phase")
        assert phase == "Running", (
            f"the load ended ({phase}): {self._kube.kubectl('logs', NAME, '--tail=20')}"
        )
        return "there is no verdict yet"

"""An object store in a pod: MinIO, with one bucket, and the Secret with its credentials."""

from __future__ import annotations

from typing import Any, Final

from e2e.kube import Kube, wait_until
from e2e.load.pod import pod_manifest
from e2e.release import REGISTRY, TAG

NAME: Final = "store"
PORT: Final = 9000
ENDPOINT: Final = f"http://{NAME}:{PORT}"
REGION: Final = "us-east-1"
BUCKET: Final = "lake"
SECRET: Final = "store-credentials"
CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "tidelog-test", "AWS_SECRET_ACCESS_KEY": "tidelog-test-secret"}

OBJECT_STORE: Final = {"endpoint": ENDPOINT, "region": REGION}
"""The section `objectStore` of an Ingestion."""
ENV: Final[list[dict[str, Any]]] = [
    *(
        {"name": name, "valueFrom": {"secretKeyRef": {"name": SECRET, "key": name}}}
        for name in sorted(CREDENTIALS)
    ),
    {"name": "AWS_EC2_METADATA_DISABLED", "value": "true"},
]
"""The environment of a container that uses the store; the credentials come from the Secret."""

START_SECONDS_MAX: Final = 120.0


class Store:
    """The running store. Its objects are in the pod's own volume, so its node must stay."""

    def __init__(self, kube: Kube, *, node: str) -> None:
        """`node`: the node on which it runs; empty: any node."""
        self._kube = kube
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET},
            "stringData": CREDENTIALS,
        }
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": NAME},
            "spec": {"selector": {"app": NAME}, "ports": [{"port": PORT}]},
        }
        arguments = ["server", "--address", f":{PORT}", "--certs-dir", "/tmp/certificates", "/data"]
        pod = pod_manifest(NAME, f"{REGISTRY}/store:{TAG}", arguments, node=node, files=False)
        pod["spec"]["volumes"].append({"name": "data", "emptyDir": {}})
        container = pod["spec"]["containers"][0]
        container["volumeMounts"].append({"name": "data", "mountPath": "/data"})
        container["readinessProbe"] = {"httpGet": {"path": "/minio/health/live", "port": PORT}}
        container["env"] = [
            {"name": "HOME", "value": "/tmp"},
            {"name": "MINIO_BROWSER", "value": "off"},
            _secret("MINIO_ROOT_USER", "AWS_ACCESS_KEY_ID"),
            _secret("MINIO_ROOT_PASSWORD", "AWS_SECRET_ACCESS_KEY"),
        ]
        kube.apply(secret, service, pod)

        def lack() -> str:
            found = (kube.get("pod", NAME) or {"status": {}})["status"]
            ready = any(
                one["type"] == "Ready" and one["status"] == "True" for one in found.get("conditions", ())
            )
            return "" if ready else f"the store is not ready: {found}"

        wait_until(lack, START_SECONDS_MAX)

    def __repr__(self) -> str:
        return f"<Store {ENDPOINT}>"

    def close(self) -> None:
        """Removes the store with its objects."""
        self._kube.kubectl("delete", f"pod/{NAME}", f"service/{NAME}", f"secret/{SECRET}", seconds=120)


def _secret(variable: str, key: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": SECRET, "key": key}}}

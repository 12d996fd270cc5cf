"""Names, labels and ports of what stands for a Cluster, and what every manifest has."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from tidelog_operator.model import CLUSTER, GROUP, VERSION, ClusterObject, Manifest

CLIENT_PORT: Final = 9210
HTTP_PORT: Final = 9211
PEER_PORT: Final = 9212

BROKER_CONTAINER: Final = "broker"
"""Of a broker's pod: the container that runs the broker."""

EXIT_DAMAGED: Final = 3
"""With this code a broker ends when nothing on its volume may be believed any more."""

CLUSTER_LABEL: Final = "tidelog.io/cluster"
"""On every object that the operator makes for a Cluster: its name."""

LISTENER_LABEL: Final = "tidelog.io/listener"
"""On the service of a broker for clients outside: the listener's name."""

BROKER_LABEL: Final = "apps.kubernetes.io/pod-index"
"""On the pods of a StatefulSet: the broker's number."""

BROKER_ID: Final = "TIDELOG_BROKER_ID"
"""In the brokers' environment: the broker's number."""

HASH_ANNOTATION: Final = "tidelog.io/manifest"
"""Of all that the operator said of the object: a field that it says no more shows by it."""

MANAGED_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "tidelog-operator"

NOTHING_MORE: Final[Mapping[str, str]] = MappingProxyType({})

ManifestId: TypeAlias = tuple[str, str, str]
"""Kind, name and hash."""

VOLUME: Final = "data"
"""Of a broker's pod: its claim is named by it and the pod."""

NAME_LABEL: Final = "app.kubernetes.io/name"
BROKER_APP: Final = "tidelog-broker"


def brokers_service(cluster: ClusterObject) -> str:
    """The headless service, by which each broker has a name of its own."""
    return f"{cluster.key.name}-brokers"


def broker_host(cluster: ClusterObject, pod: str) -> str:
    """A pod's name in DNS; `pod` may be a reference like ``$(POD_NAME)``."""
    return f"{pod}.{brokers_service(cluster)}.{cluster.key.namespace}.svc"


def settings_name(cluster: ClusterObject) -> str:
    return f"{cluster.key.name}-settings"


def formation_name(cluster: ClusterObject) -> str:
    return f"{cluster.key.name}-formation"


def selector(cluster: ClusterObject) -> dict[str, str]:
    """Of its pods. A StatefulSet's selector can never change: nor can this."""
    return {NAME_LABEL: BROKER_APP, CLUSTER_LABEL: cluster.key.name}


def manifest(
    cluster: ClusterObject,
    api: str,
    kind: str,
    name: str,
    body: dict[str, Any],
    *,
    labels: Mapping[str, str] = NOTHING_MORE,
    annotations: Mapping[str, str] = NOTHING_MORE,
) -> Manifest:
    """`body` is everything besides the metadata; `labels` and `annotations` are more than all have. It goes
    when the Cluster goes."""
    said = {
        "apiVersion": api,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": cluster.key.namespace,
            "labels": {**selector(cluster), MANAGED_LABEL: MANAGED_BY, **labels},
            "annotations": dict(annotations),
            "ownerReferences": [
                {
                    "apiVersion": f"{GROUP}/{VERSION}",
                    "kind": CLUSTER,
                    "name": cluster.key.name,
                    "uid": cluster.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        **body,
    }
    said["metadata"]["annotations"][HASH_ANNOTATION] = digest(said)
    return said


def manifest_id(manifest: Manifest) -> ManifestId:
    """Which object, and what is said of it: its hash; empty for what has none."""
    meta = manifest["metadata"]
    return (manifest["kind"], meta["name"], (meta.get("annotations") or {}).get(HASH_ANNOTATION, ""))


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]

"""Names, labels and ports of a Cluster's objects, and the metadata that every manifest has."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from tidelog_operator.model import GROUP, VERSION, ClusterObject, CustomResource, Manifest

CLIENT_PORT: Final = 9210
HTTP_PORT: Final = 9211
PEER_PORT: Final = 9212

BROKER_CONTAINER: Final = "broker"
"""The container of a broker's pod that runs the broker."""

EXIT_DAMAGED: Final = 3
"""A broker exits with this code when it cannot trust the data on its volume."""

CLUSTER_LABEL: Final = "tidelog.io/cluster"
"""The label with the name of the Cluster, on every object that the operator creates for it."""

LISTENER_LABEL: Final = "tidelog.io/listener"
"""The label with the listener's name, on each service for clients outside of Kubernetes."""

BROKER_LABEL: Final = "apps.kubernetes.io/pod-index"
"""The label with the broker id, on the pods of a StatefulSet."""

BROKER_ID: Final = "TIDELOG_BROKER_ID"
"""The environment variable with the broker id."""

HASH_ANNOTATION: Final = "tidelog.io/manifest"
"""The annotation with the hash of the manifest; it shows when a field was removed from the manifest."""

MANAGED_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "tidelog-operator"

NO_ENTRIES: Final[Mapping[str, str]] = MappingProxyType({})

ManifestId: TypeAlias = tuple[str, str, str]
"""Kind, name and hash."""

VOLUME: Final = "data"
"""The volume of a broker's pod; the name of its claim is made from this and the name of the pod."""

INGESTION_LABEL: Final = "tidelog.io/ingestion"
"""The label with the name of the Ingestion, on its objects, drivers and executors."""

JOB_LABEL: Final = "batch.kubernetes.io/job-name"
"""The label with the name of the Job, on each pod of a Job."""

NAME_LABEL: Final = "app.kubernetes.io/name"
BROKER_APP: Final = "tidelog-broker"


def brokers_service(cluster: ClusterObject) -> str:
    """Returns the name of the headless service, which gives each broker a DNS name."""
    return f"{cluster.key.name}-brokers"


def broker_host(cluster: ClusterObject, pod: str) -> str:
    """Returns the DNS name of a pod; `pod` may be a reference like ``$(POD_NAME)``."""
    return f"{pod}.{brokers_service(cluster)}.{cluster.key.namespace}.svc"


def settings_name(cluster: ClusterObject) -> str:
    return f"{cluster.key.name}-settings"


def formation_name(cluster: ClusterObject) -> str:
    return f"{cluster.key.name}-formation"


def selector(cluster: ClusterObject) -> dict[str, str]:
    """Returns the labels that select the Cluster's pods. They can never change, because the selector of a
    StatefulSet cannot."""
    return {NAME_LABEL: BROKER_APP, CLUSTER_LABEL: cluster.key.name}


def manifest(
    cluster: ClusterObject,
    api: str,
    kind: str,
    name: str,
    body: dict[str, Any],
    *,
    labels: Mapping[str, str] = NO_ENTRIES,
    annotations: Mapping[str, str] = NO_ENTRIES,
) -> Manifest:
    """Returns a manifest of an object of a Cluster. `body` has everything but the metadata; `labels` and
    `annotations` are added to the usual ones."""
    return owned_manifest(
        cluster, api, kind, name, body, labels={**selector(cluster), **labels}, annotations=annotations
    )


def owned_manifest(
    owner: CustomResource,
    api: str,
    kind: str,
    name: str,
    body: dict[str, Any],
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] = NO_ENTRIES,
) -> Manifest:
    """Returns a manifest with an owner: garbage collection deletes the object with it."""
    made = {
        "apiVersion": api,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": owner.key.namespace,
            "labels": {**labels, MANAGED_LABEL: MANAGED_BY},
            "annotations": dict(annotations),
            "ownerReferences": [
                {
                    "apiVersion": f"{GROUP}/{VERSION}",
                    "kind": owner.kind,
                    "name": owner.key.name,
                    "uid": owner.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        **body,
    }
    made["metadata"]["annotations"][HASH_ANNOTATION] = digest(made)
    return made


def manifest_id(manifest: Manifest) -> ManifestId:
    """Returns the kind, name and hash of a manifest; the hash is empty if it has none."""
    meta = manifest["metadata"]
    return (manifest["kind"], meta["name"], (meta.get("annotations") or {}).get(HASH_ANNOTATION, ""))


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]

"""The StatefulSet of the brokers, with a pod and a volume for each broker."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from tidelog_operator.model import ClusterObject, Manifest
from tidelog_operator.resources.listeners import (
    NODE_ADDRESS,
    advertises_node,
    listener_ports,
    listener_specs,
)
from tidelog_operator.resources.naming import (
    BROKER_CONTAINER,
    BROKER_ID,
    BROKER_LABEL,
    CLIENT_PORT,
    HTTP_PORT,
    PEER_PORT,
    VOLUME,
    broker_host,
    brokers_service,
    formation_name,
    manifest,
    selector,
    settings_name,
)
from tidelog_operator.resources.settings import (
    DATA_MOUNT,
    FILE,
    FOLDER,
    FORMATION_FOLDER,
    settings_digest,
)

SEEDS_MAX: Final = 3
"""The number of brokers, from broker 0, whose addresses are seeds: a broker contacts them to find the
cluster."""

STOP_SECONDS: Final = 60
"""How long a broker may take to hand over its leaderships before it is stopped."""

GRACE_SECONDS: Final = STOP_SECONDS + 30

USER: Final = 65532
"""The user of the broker's process; it has no other rights."""

DRAINING_ANNOTATION: Final = "tidelog.io/emptying"
"""The annotation of the StatefulSet with the ids of draining brokers."""


@dataclass(frozen=True, slots=True)
class Pods:
    """The number of pods of the StatefulSet, and the brokers that leave."""

    count: int
    """The desired number of pods."""
    draining: tuple[int, ...] = ()
    """Brokers that the operator cordons and drains before it removes them; kept in an annotation of the
    StatefulSet."""


def stateful_set(cluster: ClusterObject, pods: Pods) -> Manifest:
    name = cluster.key.name
    spec = {
        "replicas": pods.count,
        "serviceName": brokers_service(cluster),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        # Removing pods must not remove data: the operator deletes the volumes of brokers that were removed.
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "selector": {"matchLabels": selector(cluster)},
        "template": {
            "metadata": {
                "labels": selector(cluster),
                "annotations": {"tidelog.io/settings": settings_digest(cluster)},
            },
            "spec": _pod(cluster),
        },
        "volumeClaimTemplates": [_claim(cluster)],
    }
    annotations = {DRAINING_ANNOTATION: ",".join(map(str, pods.draining))}
    return manifest(cluster, "apps/v1", "StatefulSet", name, {"spec": spec}, annotations=annotations)


def read_pods(found: Manifest) -> Pods:
    """Reads the number of pods and the draining brokers. Entries of the annotation that are not numbers were
    not written by the operator, and are ignored."""
    text = (found["metadata"].get("annotations") or {}).get(DRAINING_ANNOTATION, "")
    return Pods(found["spec"]["replicas"], tuple(int(one) for one in text.split(",") if one.isdecimal()))


def _pod(cluster: ClusterObject) -> dict[str, Any]:
    spec = cluster.spec
    matching = {"labelSelector": {"matchLabels": selector(cluster)}}
    pod: dict[str, Any] = {
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "podAffinityTerm": {**matching, "topologyKey": "kubernetes.io/hostname"},
                    }
                ]
            }
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": spec.rack_label,
                "whenUnsatisfiable": "ScheduleAnyway",
                **matching,
            }
        ],
        "containers": [_container(cluster)],
        "volumes": [
            {"name": "settings", "configMap": {"name": settings_name(cluster)}},
            {"name": "formation", "configMap": {"name": formation_name(cluster), "optional": True}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    if spec.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in spec.image_pull_secrets]
    if spec.node_selector:
        pod["nodeSelector"] = dict(spec.node_selector)
    if spec.tolerations:
        pod["tolerations"] = list(spec.tolerations)
    if spec.priority_class:
        pod["priorityClassName"] = spec.priority_class
    return pod


def _container(cluster: ClusterObject) -> dict[str, Any]:
    spec, config = cluster.spec, f"{FOLDER}/{FILE}"
    container: dict[str, Any] = {
        "name": BROKER_CONTAINER,
        "image": spec.image,
        "command": ["tidelog-broker", "run", "--config", config],
        "env": _environment(cluster),
        "ports": [
            {"name": "clients", "containerPort": CLIENT_PORT},
            {"name": "http", "containerPort": HTTP_PORT},
            {"name": "peers", "containerPort": PEER_PORT},
            *listener_ports(cluster),
        ],
        # Long enough to recover the logs after a crash, and to find the other brokers.
        "startupProbe": _probe("/healthz", period=2, failures=900),
        "readinessProbe": _probe("/readyz", period=2, failures=3),
        "livenessProbe": _probe("/healthz", period=10, failures=6),
        "lifecycle": {
            "preStop": {
                "exec": {
                    "command": [
                        "tidelog-broker", "prepare-stop", "--config", config,
                        "--timeout-seconds", str(STOP_SECONDS),
                    ]
                }
            }
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": VOLUME, "mountPath": DATA_MOUNT},
            {"name": "settings", "mountPath": FOLDER, "readOnly": True},
            {"name": "formation", "mountPath": FORMATION_FOLDER, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }  # fmt: skip
    if spec.image_pull_policy:
        container["imagePullPolicy"] = spec.image_pull_policy
    if spec.resources:
        container["resources"] = dict(spec.resources)
    return container


def _environment(cluster: ClusterObject) -> list[dict[str, Any]]:
    me = broker_host(cluster, "$(POD_NAME)")
    pods = [f"{cluster.key.name}-{number}" for number in range(SEEDS_MAX)]
    seeds = ",".join(f"{broker_host(cluster, pod)}:{PEER_PORT}" for pod in pods)
    # A client that connects to an address that no listener advertises, such as that of a service, gets the
    # addresses of the first listener.
    internal = f"internal=0.0.0.0:{CLIENT_PORT}@{me}:{CLIENT_PORT}"
    listeners = json.dumps([internal, *listener_specs(cluster)])
    node = {"name": NODE_ADDRESS, "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
    return [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {
            "name": BROKER_ID,
            "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{BROKER_LABEL}']"}},
        },
        # A variable may refer only to variables before it in the list.
        *([node] if advertises_node(cluster) else []),
        {"name": "TIDELOG_LISTENERS", "value": listeners},
        {"name": "TIDELOG_PEER_LISTENER", "value": f"peers=0.0.0.0:{PEER_PORT}@{me}:{PEER_PORT}"},
        {"name": "TIDELOG_HTTP", "value": f"0.0.0.0:{HTTP_PORT}"},
        # Network policies keep strangers away; the pods have no TLS yet.
        {"name": "TIDELOG_INSECURE", "value": "true"},
        {"name": "TIDELOG_SEEDS", "value": seeds},
    ]


def _probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }


def _claim(cluster: ClusterObject) -> dict[str, Any]:
    """Returns the volume claim template. It can never change: the API server rejects changes."""
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": cluster.spec.storage_size}},
    }
    if cluster.spec.storage_class:
        spec["storageClassName"] = cluster.spec.storage_class
    return {"metadata": {"name": VOLUME}, "spec": spec}

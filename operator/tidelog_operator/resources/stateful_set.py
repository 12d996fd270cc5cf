"""The StatefulSet of the brokers: a pod and a volume for each."""

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
"""The first brokers, by which others find the cluster."""

STOP_SECONDS: Final = 60
"""How long a broker may take to hand over what it leads before it is stopped."""

GRACE_SECONDS: Final = STOP_SECONDS + 30

USER: Final = 65532
"""Of the broker's process; it needs no right of any other."""

DRAINING_ANNOTATION: Final = "tidelog.io/emptying"


@dataclass(frozen=True, slots=True)
class Pods:
    """The StatefulSet, as far as its number of pods is concerned."""

    count: int
    """As many as it is to have."""
    draining: tuple[int, ...] = ()
    """Brokers that the operator cordoned, so that they can go; kept with the StatefulSet."""


def stateful_set(cluster: ClusterObject, pods: Pods) -> Manifest:
    name = cluster.key.name
    spec = {
        "replicas": pods.count,
        "serviceName": brokers_service(cluster),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        # Whoever takes pods away takes no data: the operator deletes the volumes of brokers that are gone.
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
    """What is no broker in the annotation is nothing that the operator wrote, and not looked at."""
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
        # Long enough for logs to be looked through after a crash, and for others to be found.
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
    # Who comes by an address that no listener advertises, such as a service's, is sent to the first one.
    internal = f"internal=0.0.0.0:{CLIENT_PORT}@{me}:{CLIENT_PORT}"
    listeners = json.dumps([internal, *listener_specs(cluster)])
    node = {"name": NODE_ADDRESS, "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
    return [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {
            "name": BROKER_ID,
            "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{BROKER_LABEL}']"}},
        },
        # Variables can be named by those that stand behind them.
        *([node] if advertises_node(cluster) else []),
        {"name": "TIDELOG_LISTENERS", "value": listeners},
        {"name": "TIDELOG_PEER_LISTENER", "value": f"peers=0.0.0.0:{PEER_PORT}@{me}:{PEER_PORT}"},
        {"name": "TIDELOG_HTTP", "value": f"0.0.0.0:{HTTP_PORT}"},
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
    """Nothing here can ever change (the API server refuses it)."""
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": cluster.spec.storage_size}},
    }
    if cluster.spec.storage_class:
        spec["storageClassName"] = cluster.spec.storage_class
    return {"metadata": {"name": VOLUME}, "spec": spec}

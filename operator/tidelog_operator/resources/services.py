"""How brokers and clients find the brokers, and how many of them may be away by somebody's will."""

from __future__ import annotations

from tidelog_operator.model import ClusterObject, Manifest
from tidelog_operator.resources.naming import (
    CLIENT_PORT,
    HTTP_PORT,
    PEER_PORT,
    brokers_service,
    manifest,
    selector,
)

_CLIENTS = {"name": "clients", "port": CLIENT_PORT, "targetPort": CLIENT_PORT, "appProtocol": "grpc"}
_HTTP = {"name": "http", "port": HTTP_PORT, "targetPort": HTTP_PORT}
_PEERS = {"name": "peers", "port": PEER_PORT, "targetPort": PEER_PORT}


def headless_service(cluster: ClusterObject) -> Manifest:
    """A name for each broker, also for one that is not ready: it becomes ready by talking to others (K2)."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": selector(cluster),
        "ports": [_CLIENTS, _HTTP, _PEERS],
    }
    return manifest(cluster, "v1", "Service", brokers_service(cluster), {"spec": spec})


def client_service(cluster: ClusterObject) -> Manifest:
    """Some broker that is ready: where clients begin."""
    spec = {"type": "ClusterIP", "selector": selector(cluster), "ports": [_CLIENTS]}
    return manifest(cluster, "v1", "Service", cluster.key.name, {"spec": spec})


def disruption_budget(cluster: ClusterObject) -> Manifest:
    """One broker at a time; the next when that one has caught up, as readiness says."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": selector(cluster)}}
    return manifest(cluster, "policy/v1", "PodDisruptionBudget", cluster.key.name, {"spec": spec})

"""The services by which brokers and clients find the brokers, and the disruption budget."""

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
    """Returns the service that gives each broker a DNS name, before it is ready too: it becomes ready by
    contacting the others (K2)."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": selector(cluster),
        "ports": [_CLIENTS, _HTTP, _PEERS],
    }
    return manifest(cluster, "v1", "Service", brokers_service(cluster), {"spec": spec})


def client_service(cluster: ClusterObject) -> Manifest:
    """Returns the service of all ready brokers, to which clients first connect."""
    spec = {"type": "ClusterIP", "selector": selector(cluster), "ports": [_CLIENTS]}
    return manifest(cluster, "v1", "Service", cluster.key.name, {"spec": spec})


def disruption_budget(cluster: ClusterObject) -> Manifest:
    """Returns the budget: one broker may be evicted at a time, and the next one when that broker is ready,
    which means that it has caught up."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": selector(cluster)}}
    return manifest(cluster, "policy/v1", "PodDisruptionBudget", cluster.key.name, {"spec": spec})

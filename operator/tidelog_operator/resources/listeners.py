"""The objects of a Cluster's listeners: ports and advertised addresses of its brokers, and a service per
broker.

A client must reach the broker that leads a partition. So every broker has a service of its own, and
advertises the address of that service (its setting `listeners`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tidelog_operator.listeners import BROKER_FIELD, Listener, ListenerType
from tidelog_operator.model import ClusterObject, Manifest
from tidelog_operator.resources.naming import BROKER_ID, LISTENER_LABEL, manifest, selector

NODE_ADDRESS: Final = "NODE_ADDRESS"
"""The environment variable of the brokers with the address of the pod's node, where a listener advertises it.

The address is IPv4: the listener binds 0.0.0.0, like all ports of a broker. On nodes with IPv6 alone, brokers
would have to bind `::`, and write the address in brackets.
"""

POD_LABEL: Final = "statefulset.kubernetes.io/pod-name"
"""The label of a pod with its name, set by the StatefulSet."""


def listener_services(cluster: ClusterObject, count: int) -> Sequence[Manifest]:
    """Returns the services of brokers 0 to `count` - 1."""
    return [
        _service(cluster, listener, broker) for listener in cluster.spec.listeners for broker in range(count)
    ]


def must_recreate(there: Manifest, wanted: Manifest) -> bool:
    """Whether the service must be deleted first. A service that changes its type keeps ports that it no
    longer needs; and where brokers exchange ports, each port belongs to another service until that service
    releases it."""
    return _exposure(there) != _exposure(wanted)


def _exposure(service: Manifest) -> tuple[str, int | None]:
    spec = service["spec"]
    kind = spec.get("type", "")
    # A LoadBalancer service has a node port too, which Kubernetes chooses.
    port = spec["ports"][0].get("nodePort") if kind == ListenerType.NODE_PORT and spec.get("ports") else None
    return kind, port


def listener_specs(cluster: ClusterObject) -> Sequence[str]:
    """Returns the listeners as the brokers' setting has them, with references to environment variables."""
    return [
        f"{one.name}=0.0.0.0:{one.port}@{_advertised(one, f'$({BROKER_ID})')}"
        for one in cluster.spec.listeners
    ]


def listener_ports(cluster: ClusterObject) -> Sequence[Manifest]:
    """Returns the ports of a broker's container."""
    return [{"name": one.name, "containerPort": one.port} for one in cluster.spec.listeners]


def advertises_node(cluster: ClusterObject) -> bool:
    return any(not one.host for one in cluster.spec.listeners)


def _advertised(listener: Listener, broker: str) -> str:
    host = listener.host.replace(BROKER_FIELD, broker) or f"$({NODE_ADDRESS})"
    if listener.first_node_port is None:
        return f"{host}:{listener.port}"
    return f"{host}:{listener.first_node_port}+id"


def _service(cluster: ClusterObject, listener: Listener, broker: int) -> Manifest:
    port: dict[str, Any] = {
        "name": listener.name,
        "port": listener.port,
        # The name resolves per pod: during a rollout that changes the port, each broker is reached at the
        # port that it has.
        "targetPort": listener.name,
        "appProtocol": "grpc",
    }
    spec: dict[str, Any] = {
        "type": listener.type.value,
        "selector": {**selector(cluster), POD_LABEL: f"{cluster.key.name}-{broker}"},
        # The broker runs on the node whose address it advertises, and sees the addresses of its clients.
        "externalTrafficPolicy": "Local",
        # A broker that is not ready may still lead partitions.
        "publishNotReadyAddresses": True,
        "ports": [port],
    }
    if listener.first_node_port is not None:
        port["nodePort"] = listener.first_node_port + broker
    if listener.load_balancer_class:
        spec["loadBalancerClass"] = listener.load_balancer_class
    if listener.source_ranges:
        spec["loadBalancerSourceRanges"] = list(listener.source_ranges)
    number = str(broker)
    return manifest(
        cluster, "v1", "Service", f"{cluster.key.name}-{listener.name}-{broker}", {"spec": spec},
        labels={LISTENER_LABEL: listener.name},
        annotations={key: value.replace(BROKER_FIELD, number) for key, value in listener.annotations.items()},
    )  # fmt: skip

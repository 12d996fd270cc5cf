"""The listeners of a Cluster's spec, by which clients outside of Kubernetes reach its brokers.

`model` reads them with the rest of a Cluster; `resources.listeners` makes ports and services from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from tidelog_operator.field_values import choice

BROKER_FIELD: Final = "{broker}"
"""A placeholder in a host or an annotation; the broker's number replaces it."""


class ListenerType(StrEnum):
    """The type of the service that each broker has for a listener."""

    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener: one port of every broker, with one service per broker in front of it."""

    name: str
    port: int
    """The port of the container."""
    type: ListenerType
    first_node_port: int | None
    """Broker n is reached at this port + n of its node; None: through a load balancer."""
    host: str
    """The host that brokers advertise, with `BROKER_FIELD` in it; empty: the address of the pod's node."""
    annotations: Mapping[str, str]
    """Annotations of the services; values may contain `BROKER_FIELD`."""
    load_balancer_class: str
    """Empty: the default of Kubernetes."""
    source_ranges: tuple[str, ...]
    """CIDRs from which load balancers accept clients; none: from everywhere."""


def read_listener(listener: Mapping[str, Any]) -> Listener:
    """Raises `ValueError` or `KeyError` if the listener was written for a newer operator."""
    return Listener(
        name=listener["name"],
        port=listener["port"],
        type=choice(ListenerType, "listeners.type", listener["type"]),
        first_node_port=listener.get("firstNodePort"),
        host=listener.get("host", ""),
        annotations=listener.get("annotations") or {},
        load_balancer_class=listener.get("loadBalancerClass", ""),
        source_ranges=tuple(listener.get("sourceRanges") or ()),
    )

"""What a Cluster says of listeners, by which clients outside of Kubernetes reach its brokers.

`model` reads it with the rest of a Cluster; `resources.listeners` says what is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

BROKER_FIELD: Final = "{broker}"
"""In a host or an annotation: the broker's number stands there."""


class ListenerType(StrEnum):
    """Of the service that each broker has for a listener."""

    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


@dataclass(frozen=True, slots=True)
class Listener:
    """One of them: a port of every broker, and a service in front of it for each."""

    name: str
    port: int
    """Of the container."""
    type: ListenerType
    first_node_port: int | None
    """Broker n is reached at this port + n of its node; None: by a load balancer."""
    host: str
    """What brokers advertise, with `BROKER_FIELD` in it; empty: the address of the pod's node."""
    annotations: Mapping[str, str]
    """Of the services; values may have `BROKER_FIELD` in them."""
    load_balancer_class: str
    """Empty: Kubernetes' own."""
    source_ranges: tuple[str, ...]
    """CIDRs that load balancers let in; none: everybody."""


def read_listener(said: Mapping[str, Any]) -> Listener:
    """Raises `ValueError` or `KeyError` for what is written for a newer operator."""
    return Listener(
        name=said["name"],
        port=said["port"],
        type=ListenerType(said["type"]),
        first_node_port=said.get("firstNodePort"),
        host=said.get("host", ""),
        annotations=said.get("annotations") or {},
        load_balancer_class=said.get("loadBalancerClass", ""),
        source_ranges=tuple(said.get("sourceRanges") or ()),
    )

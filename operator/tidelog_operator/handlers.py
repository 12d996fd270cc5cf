"""Which objects are watched: a routing table, and the only file that knows kopf.

kopf lists and watches; what comes goes into `objects`, and `loop` does the rest. Its own handlers of changes
are not used: they act on edges, keep their progress in annotations, and write to every object that they see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

import kopf

from tidelog_operator.model import GROUP, VERSION, Manifest
from tidelog_operator.objects import Objects
from tidelog_operator.resources.naming import CLUSTER_LABEL, MANAGED_BY, MANAGED_LABEL

RETRY_SECONDS: Final = (0.2, 0.5, 1.0, 2.0)
"""Pauses when the API server does not answer; the last one again and again."""


class _ForEver:
    """Pauses without end: an API server that is away is waited for."""

    def __iter__(self) -> Iterator[float]:
        yield from RETRY_SECONDS
        while True:
            yield RETRY_SECONDS[-1]


async def watch(
    objects: Objects,
    *,
    kubeconfig: str,
    namespaces: Collection[str],
    ready: asyncio.Event,
    stop: asyncio.Event,
) -> None:
    """Feeds `objects` until `stop`. Without `namespaces`: of all. `ready` is set when watching has begun."""
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.networking.error_backoffs = _ForEver()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> Any:
        if kubeconfig:
            return kopf.login_with_kubeconfig(**kwargs)
        return kopf.login_with_service_account(**kwargs)

    def route(take: Callable[..., None]) -> Callable[..., Any]:
        async def came(event: kopf.RawEvent, **_: Any) -> None:
            manifest: Manifest = event["object"]
            take(manifest, gone=event["type"] == "DELETED")

        return came

    kopf.on.event(GROUP, VERSION, "clusters", registry=registry, id="cluster")(route(objects.cluster))
    kopf.on.event(GROUP, VERSION, "streams", registry=registry, id="stream")(route(objects.stream))
    kopf.on.event("", "v1", "nodes", registry=registry, id="node")(route(objects.node))
    watched = {
        ("", "v1", "pods"): (objects.pod, CLUSTER_LABEL),
        ("", "v1", "persistentvolumeclaims"): (objects.claim, CLUSTER_LABEL),
        ("", "v1", "services"): (objects.owned, CLUSTER_LABEL),
        ("", "v1", "configmaps"): (objects.owned, f"{MANAGED_LABEL}={MANAGED_BY}"),
        ("apps", "v1", "statefulsets"): (objects.owned, CLUSTER_LABEL),
        ("policy", "v1", "poddisruptionbudgets"): (objects.owned, CLUSTER_LABEL),
    }
    for resource, (take, label) in watched.items():
        # The API server sends these and no others.
        settings.watching.label_selectors[resource] = label
        kopf.on.event(*resource, registry=registry, id=resource[2])(route(take))

    await kopf.operator(
        registry=registry,
        settings=settings,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
        ready_flag=ready,
        stop_flag=stop,
    )

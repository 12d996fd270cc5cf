"""Which objects are watched: a routing table, and the only file that knows kopf.

kopf lists and watches; what comes goes into `objects`, and `loop` does the rest. Its own handlers of changes
are not used: they act on edges, keep their progress in annotations, and write to every object that they see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

import kopf
import structlog
from kopf._cogs.structs.references import Insights

from tidelog_operator.kubernetes.api import KUBE_FAILURES, Kube
from tidelog_operator.kubernetes.objects import Objects
from tidelog_operator.model import GROUP, VERSION, Manifest
from tidelog_operator.resources.naming import CLUSTER_LABEL, MANAGED_BY, MANAGED_LABEL

RETRY_SECONDS: Final = (0.2, 0.5, 1.0, 2.0)
"""Pauses when the API server does not answer; the last one again and again."""


CHECK_SECONDS: Final = 5.0
CHECKS_MISSED_MAX: Final = 3
"""Looks in a row that find something missing which was there before."""


class WatchLost(Exception):
    """The API server began to serve something only after kopf had looked, and kopf does not look again."""


log = structlog.get_logger(__name__)


class _ForEver:
    """Pauses without end: an API server that is away is waited for."""

    def __iter__(self) -> Iterator[float]:
        yield from RETRY_SECONDS
        while True:
            yield RETRY_SECONDS[-1]


async def watch(
    objects: Objects,
    kube: Kube,
    *,
    kubeconfig: str,
    namespaces: Collection[str],
    ready: asyncio.Event,
    stop: asyncio.Event,
) -> None:
    """Feeds `objects` until `stop`. Without `namespaces`: of all. `ready` is set when watching has begun.

    Raises `NotWatched`.
    """
    await _wait_until_served(kube)
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

    whole = {
        (GROUP, VERSION, "clusters"): objects.cluster,
        (GROUP, VERSION, "streams"): objects.stream,
        ("", "v1", "nodes"): objects.node,
    }
    for resource, take in whole.items():
        kopf.on.event(*resource, registry=registry, id=resource[2])(route(take))
    labelled = {
        ("", "v1", "pods"): (objects.pod, CLUSTER_LABEL),
        ("", "v1", "persistentvolumeclaims"): (objects.claim, CLUSTER_LABEL),
        ("", "v1", "services"): (objects.owned, CLUSTER_LABEL),
        ("", "v1", "configmaps"): (objects.owned, f"{MANAGED_LABEL}={MANAGED_BY}"),
        ("apps", "v1", "statefulsets"): (objects.owned, CLUSTER_LABEL),
        ("policy", "v1", "poddisruptionbudgets"): (objects.owned, CLUSTER_LABEL),
    }
    for resource, (take, label) in labelled.items():
        # The API server sends these and no others.
        settings.watching.label_selectors[resource] = label
        kopf.on.event(*resource, registry=registry, id=resource[2])(route(take))

    insights = Insights()
    async with asyncio.TaskGroup() as group:
        checking = group.create_task(_check(insights, [*whole, *labelled], ready))
        await kopf.operator(
            registry=registry,
            settings=settings,
            insights=insights,
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=stop,
        )
        checking.cancel()


async def _wait_until_served(kube: Kube) -> None:
    """An API server that has just started, or Tidelog's definitions that are not there, are waited for."""
    said = ""
    for pause in _ForEver():
        try:
            missing = await kube.missing_kinds()
        except KUBE_FAILURES as error:
            why = f"it does not answer: {getattr(error, 'reason', None) or error}"
        else:
            if not missing:
                return
            why = f"it does not serve {', '.join(missing)}; are Tidelog's definitions (crds/) there?"
        if why != said:
            log.warning("the API server is waited for", reason=why)
        said = why
        await asyncio.sleep(pause)


async def _check(insights: Insights, wanted: Collection[tuple[str, str, str]], ready: asyncio.Event) -> None:
    """Sets `ready` when kopf has found everything. Raises `NotWatched`: the caller starts it again.

    It goes on looking: kopf lets go what it does not find when definitions are taken away and come back.
    """
    await insights.ready_resources.wait()
    await insights.ready_namespaces.wait()
    looks = CHECKS_MISSED_MAX
    while True:
        missing = _missing(insights, wanted)
        looks = looks + 1 if missing else 0
        if looks > CHECKS_MISSED_MAX:
            raise WatchLost(f"nobody watches {', '.join(missing)}; the operator has to begin again")
        if not missing:
            ready.set()
        await asyncio.sleep(CHECK_SECONDS)


def _missing(insights: Insights, wanted: Iterable[tuple[str, str, str]]) -> list[str]:
    found = {(one.group, one.version, one.plural) for one in insights.watched_resources}
    return [
        ".".join(filter(None, (plural, group)))
        for group, version, plural in wanted
        if (group, version, plural) not in found
    ]

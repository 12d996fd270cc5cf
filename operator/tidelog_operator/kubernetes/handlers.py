"""The resources that the operator watches: a routing table, and the only module that imports kopf.

kopf lists and watches; each event goes to the cache (`objects`), and `reconcile_loop` does the rest. kopf's
own change handlers are not used: they act on single changes, keep their progress in annotations, and write to
every object that they see.

kopf has no public way to ask which resources it watches, so this module uses its private `Insights`.
`tests/operator/test_handlers.py` says what is needed of it.

kopf's function `operator` would take over the signals of the process, wait at its end for five seconds for
tasks that are not kopf's, and without a limit for its own. So this module runs kopf's tasks itself.
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
"""Pauses between attempts while the API server does not answer; the last one repeats."""


CHECK_SECONDS: Final = 5.0
"""Pause between two checks of what kopf watches."""

CHECKS_MISSED_MAX: Final = 3
"""Checks in a row that may find a watch missing which existed before."""


STOP_SECONDS_MAX: Final = 5.0
"""How long a stop waits for kopf's tasks."""


class WatchLost(Exception):
    """kopf does not watch what the operator needs. The API server may have begun to serve a resource after
    kopf had looked, and kopf does not look again."""


log = structlog.get_logger(__name__)


class _RetryPauses:
    """The pauses between attempts, without end: the operator waits for an API server as long as it takes."""

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
    take_signals: Callable[[], None],
) -> None:
    """Feeds `objects` until it is cancelled. No `namespaces` means all. `ready` is set when all watches have
    started. `take_signals` is called when kopf has installed its own handlers of signals, which stop kopf
    alone.

    Raises `WatchLost`, and the error of a task of kopf that failed.
    """
    await _wait_until_served(kube)
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.networking.error_backoffs = _RetryPauses()

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
        (GROUP, VERSION, "ingestions"): objects.ingestion,
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
        ("batch", "v1", "cronjobs"): (objects.owned, CLUSTER_LABEL),
        ("batch", "v1", "jobs"): (objects.owned, CLUSTER_LABEL),
        ("policy", "v1", "poddisruptionbudgets"): (objects.owned, CLUSTER_LABEL),
    }
    for resource, (take, label) in labelled.items():
        # The API server sends only objects with this label.
        settings.watching.label_selectors[resource] = label
        kopf.on.event(*resource, registry=registry, id=resource[2])(route(take))

    insights = Insights()
    tasks = await kopf.spawn_tasks(
        registry=registry,
        settings=settings,
        insights=insights,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
    )
    take_signals()
    checking = asyncio.create_task(
        _check(insights, [*whole, *labelled], ready), name="check of kopf's watches"
    )
    await _until_one_ends([*tasks, checking])


async def _until_one_ends(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Waits until one of the tasks ends, and ends the others. Raises its error, or `WatchLost`."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in tasks:
            one.cancel()
        _, late = await asyncio.wait(tasks, timeout=STOP_SECONDS_MAX)
        for one in late:
            log.error("a task did not end when it was cancelled", task=one.get_name(), stack=one.get_stack())
    for one in done:
        one.result()
    names = ", ".join(one.get_name() for one in done)
    raise WatchLost(f"kopf has ended its task: {names}. The operator must restart.")


async def _wait_until_served(kube: Kube) -> None:
    """Waits until the API server answers and serves all kinds, Tidelog's own included."""
    logged = ""
    for pause in _RetryPauses():
        try:
            missing = await kube.missing_kinds()
        except KUBE_FAILURES as error:
            why = f"it does not answer: {getattr(error, 'reason', None) or error}"
        else:
            if not missing:
                return
            kinds = ", ".join(missing)
            why = f"it does not serve {kinds}. Check that Tidelog's definitions (crds/) are installed."
        if why != logged:
            log.warning("waiting for the API server", reason=why)
        logged = why
        await asyncio.sleep(pause)


async def _check(insights: Insights, wanted: Collection[tuple[str, str, str]], ready: asyncio.Event) -> None:
    """Sets `ready` when kopf watches everything. Raises `WatchLost`, after which the process must restart.

    The check repeats: kopf stops a watch when a definition is deleted, even if the definition is created
    again.
    """
    await insights.ready_resources.wait()
    await insights.ready_namespaces.wait()
    misses = CHECKS_MISSED_MAX
    while True:
        missing = _missing(insights, wanted)
        misses = misses + 1 if missing else 0
        if misses > CHECKS_MISSED_MAX:
            raise WatchLost(f"kopf does not watch {', '.join(missing)}. The operator must restart.")
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

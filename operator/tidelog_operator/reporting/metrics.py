"""Prometheus metrics of the operator. Names end in their unit, counters in `_total`.

Numbers of objects and their states are computed at each scrape.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

import aiohttp
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidelog_operator.kubernetes.objects import Objects
from tidelog_operator.model import CLUSTER, INGESTION, STREAM, ObjectKey

PASS_BUCKETS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)
"""Seconds: from a reconciliation that changes nothing to one that waits for requests to time out."""

VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Metrics:
    """The metrics of one operator, in a registry of their own. Used on one event loop."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._passes = Histogram(
            "tidelog_operator_pass_seconds",
            "Duration of a pass: one reconciliation of a Cluster and its Streams.",
            ["namespace", "cluster"], buckets=PASS_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self._failed_passes = Counter(
            "tidelog_operator_failed_passes",
            "Passes that ended with an unexpected error.",
            ["namespace", "cluster"],
            registry=self.registry,
        )
        self._actions = Counter(
            "tidelog_operator_actions", "Actions that were executed.", ["kind"], registry=self.registry
        )
        self._failed_actions = Counter(
            "tidelog_operator_failed_actions",
            "Actions that brokers or the API server rejected.",
            ["kind"],
            registry=self.registry,
        )
        self._requests = Counter(
            "tidelog_operator_api_requests",
            "Requests to the API server, without watches. The code is `failed` if there was no answer.",
            ["verb", "resource", "code"],
            registry=self.registry,
        )

    def observe(self, objects: Objects, leads: Callable[[], bool], dropped_events: Callable[[], int]) -> None:
        """Adds metrics that are computed at each scrape from these sources."""
        self.registry.register(_StateCollector(objects, leads, dropped_events))

    # --- results of reconciliations, actions and requests

    def passed(self, cluster: ObjectKey, seconds: float, *, failed: bool) -> None:
        self._passes.labels(*cluster).observe(seconds)
        # Created with the first reconciliation, so that its first increase is visible.
        self._failed_passes.labels(*cluster).inc(1 if failed else 0)

    def forget(self, cluster: ObjectKey) -> None:
        """Removes the series of a Cluster that is no longer reconciled."""
        for one in (self._passes, self._failed_passes):
            # It may never have been reconciled.
            with contextlib.suppress(KeyError):
                one.remove(*cluster)

    def did(self, kind: str) -> None:
        self._actions.labels(kind).inc()

    def failed(self, kind: str) -> None:
        self._failed_actions.labels(kind).inc()

    def requests(self) -> aiohttp.TraceConfig:
        """Returns a trace for an HTTP session that counts its requests."""

        async def answered(
            session: aiohttp.ClientSession, context: object, params: aiohttp.TraceRequestEndParams
        ) -> None:
            self._requests.labels(*request_kind(params.method, params.url.path), params.response.status).inc()

        async def failed(
            session: aiohttp.ClientSession, context: object, params: aiohttp.TraceRequestExceptionParams
        ) -> None:
            self._requests.labels(*request_kind(params.method, params.url.path), "failed").inc()

        trace = aiohttp.TraceConfig()
        trace.on_request_end.append(answered)
        trace.on_request_exception.append(failed)
        return trace


def request_kind(method: str, path: str) -> tuple[str, str]:
    """Returns verb and resource as in a Role: (`patch`, `streams/status`)."""
    root, *parts = path.strip("/").split("/")
    parts = parts[1:] if root == "api" else parts[2:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    if root not in ("api", "apis") or not parts:
        return method.lower(), "other"
    resource = "/".join([parts[0], *parts[2:]])
    if method == "GET":
        return ("list" if len(parts) == 1 else "get"), resource
    return VERBS.get(method, method.lower()), resource


class _StateCollector(Collector):
    def __init__(
        self, objects: Objects, leads: Callable[[], bool], dropped_events: Callable[[], int]
    ) -> None:
        self._objects = objects
        self._leads = leads
        self._dropped_events = dropped_events

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "tidelog_operator_leads", "1 if this operator is the leader.", value=self._leads()
        )
        known = GaugeMetricFamily("tidelog_operator_objects", "Objects in the cache.", labels=["kind"])
        known.add_metric([CLUSTER], len(self._objects.clusters) + len(self._objects.unreadable_clusters))
        known.add_metric([STREAM], len(self._objects.streams))
        known.add_metric([INGESTION], len(self._objects.ingestions))
        yield known
        yield GaugeMetricFamily(
            "tidelog_operator_streams_not_ready",
            "Streams that cannot be written and read, or that do not match their specs.",
            value=_not_ready(self._objects),
        )
        yield CounterMetricFamily(
            "tidelog_operator_dropped_events",
            "Kubernetes events that were dropped because there were too many.",
            value=self._dropped_events(),
        )


def _not_ready(objects: Objects) -> int:
    ready = sum(
        any(each["type"] == "Ready" and each["status"] == "True" for each in one.status.get("conditions", ()))
        for one in objects.streams.values()
    )
    return len(objects.streams) - ready

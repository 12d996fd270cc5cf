"""Reports results of the operator's work: as events and log lines for people, and as metrics for Prometheus.

No method waits or raises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from tidelog_operator.actions import ClusterAction, StreamAction
from tidelog_operator.model import CustomResource, Manifest, ObjectKey
from tidelog_operator.reporting.event_writer import EventWriter
from tidelog_operator.reporting.events import attempt, event_of, events_of_status, failure_of
from tidelog_operator.reporting.metrics import Metrics

log = structlog.get_logger(__name__)

LOGGED_EVERY_SECONDS: Final = 60.0
"""How often a failure that repeats is logged."""

FAILURES_KNOWN_MAX: Final = 1024
"""Failures whose last log time is remembered; the most recent ones are kept."""


class Reports:
    """Sends each result to events, metrics and the log."""

    def __init__(
        self, events: EventWriter, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock`: in seconds."""
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._logged: dict[tuple[str, str, str], float] = {}
        """The last log time by object, action and reason, ordered by occurrence."""

    def did(self, one: CustomResource | None, action: StreamAction | ClusterAction) -> None:
        """Reports a successful action for this object; None: the object is gone."""
        self._metrics.did(type(action).__name__)
        event = event_of(action)
        if event is not None and one is not None:
            self._events.put(one, event)

    def failed(self, one: CustomResource | None, action: StreamAction | ClusterAction, why: str) -> None:
        """Reports a failed action for this object; None: the object is gone."""
        self._metrics.failed(type(action).__name__)
        self._log(one, attempt(action), why)
        if one is not None:
            self._events.put(one, failure_of(action, why))

    def status_failed(self, one: CustomResource, why: str) -> None:
        """Reports that the status of this object was not written."""
        self._log(one, "write its status", why)

    def _log(self, one: CustomResource | None, what: str, why: str) -> None:
        where = "" if one is None else f"{one.kind} {one.key}"
        now, failure = self._clock(), (where, what, why)
        last = self._logged.pop(failure, None)
        if last is None or now - last >= LOGGED_EVERY_SECONDS:
            log.warning("action failed; retrying", object=where, action=what, reason=why)
            last = now
        self._logged[failure] = last
        if len(self._logged) > FAILURES_KNOWN_MAX:
            del self._logged[next(iter(self._logged))]

    def status_written(self, one: CustomResource, before: Manifest, status: Manifest) -> None:
        """Reports the events of a written status; `before` is the previous one."""
        for event in events_of_status(before, status):
            self._events.put(one, event)

    @contextmanager
    def reconciliation(self, cluster: ObjectKey) -> Iterator[None]:
        """Measures one reconciliation of this Cluster."""
        began, failed = self._clock(), True
        try:
            yield
            failed = False
        finally:
            self._metrics.passed(cluster, self._clock() - began, failed=failed)

    def forget(self, cluster: ObjectKey) -> None:
        """Removes the metrics of a Cluster that is no longer reconciled."""
        self._metrics.forget(cluster)

"""What others hear of the operator's work: people by events and its log, Prometheus by numbers.

Nothing here waits or raises: what is reported has happened.
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
"""A failure that repeats."""

FAILURES_KNOWN_MAX: Final = 1024
"""Failures of which it is known when they were logged; those that came last."""


class Reports:
    """See the module."""

    def __init__(
        self, events: EventWriter, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock`: in seconds."""
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._logged: dict[tuple[str, str, str], float] = {}
        """When, by object, what was tried, and why it failed; the one that came last is the last one."""

    def did(self, one: CustomResource | None, action: StreamAction | ClusterAction) -> None:
        """For this object; None: it is gone."""
        self._metrics.did(type(action).__name__)
        event = event_of(action)
        if event is not None and one is not None:
            self._events.put(one, event)

    def failed(self, one: CustomResource | None, action: StreamAction | ClusterAction, why: str) -> None:
        self._metrics.failed(type(action).__name__)
        self._log(one, attempt(action), why)
        if one is not None:
            self._events.put(one, failure_of(action, why))

    def status_failed(self, one: CustomResource, why: str) -> None:
        """Its status was not written."""
        self._log(one, "write its status", why)

    def _log(self, one: CustomResource | None, what: str, why: str) -> None:
        where = "" if one is None else f"{one.kind} {one.key}"
        now, failure = self._clock(), (where, what, why)
        last = self._logged.pop(failure, None)
        if last is None or now - last >= LOGGED_EVERY_SECONDS:
            log.warning("it failed, and is tried again", object=where, what=what, why=why)
            last = now
        self._logged[failure] = last
        if len(self._logged) > FAILURES_KNOWN_MAX:
            del self._logged[next(iter(self._logged))]

    def told(self, one: CustomResource, before: Manifest, status: Manifest) -> None:
        """Its status, which was `before`, was written."""
        for event in events_of_status(before, status):
            self._events.put(one, event)

    @contextmanager
    def reconciliation(self, cluster: ObjectKey) -> Iterator[None]:
        began, failed = self._clock(), True
        try:
            yield
            failed = False
        finally:
            self._metrics.passed(cluster, self._clock() - began, failed=failed)

    def gone(self, cluster: ObjectKey) -> None:
        """Nobody looks at it any more."""
        self._metrics.gone(cluster)

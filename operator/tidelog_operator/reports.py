"""What others hear of the operator's work: people by events, Prometheus by numbers.

Nothing here waits or raises: what is reported has happened.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tidelog_operator.actions import ClusterAction, StreamAction
from tidelog_operator.event_writer import EventWriter
from tidelog_operator.events import event_of, events_of_status, failure_of
from tidelog_operator.metrics import Metrics
from tidelog_operator.model import Manifest, ObjectKey, Told


class Reports:
    """See the module."""

    def __init__(self, events: EventWriter, metrics: Metrics) -> None:
        self._events = events
        self._metrics = metrics

    def did(self, one: Told | None, action: StreamAction | ClusterAction) -> None:
        """For this object; None: it is gone."""
        self._metrics.did(type(action).__name__)
        event = event_of(action)
        if event is not None and one is not None:
            self._events.put(one, event)

    def failed(self, one: Told | None, action: StreamAction | ClusterAction, why: str) -> None:
        self._metrics.failed(type(action).__name__)
        if one is not None:
            self._events.put(one, failure_of(action, why))

    def told(self, one: Told, before: Manifest, status: Manifest) -> None:
        """Its status, which was `before`, was written."""
        for event in events_of_status(before, status):
            self._events.put(one, event)

    @contextmanager
    def a_pass(self, cluster: ObjectKey) -> Iterator[None]:
        began, failed = time.monotonic(), True
        try:
            yield
            failed = False
        finally:
            self._metrics.passed(cluster, time.monotonic() - began, failed=failed)

    def gone(self, cluster: ObjectKey) -> None:
        """Nobody looks at it any more."""
        self._metrics.gone(cluster)

"""Runs the reconciliations: one task per Cluster that exists or that a Stream names.

Changes come in bursts, and some can be missed. So each run reconciles the whole Cluster: soon after a change,
and every few seconds without one. After a failure the pause before the next run grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from tidelog_operator.kubernetes.api import Kube
from tidelog_operator.kubernetes.objects import Objects
from tidelog_operator.model import ObjectKey
from tidelog_operator.reconcile import Reconciler
from tidelog_operator.reconcile_ingestions import IngestionReconciler
from tidelog_operator.reporting.reports import Reports

log = structlog.get_logger(__name__)

GATHER_SECONDS: Final = 0.05
"""How long a task waits after a change for more changes of the same burst."""

PERIOD_SECONDS: Final = 2.0
"""The pause between two runs without a change."""

RETRY_SECONDS_MAX: Final = 30.0
DOUBLINGS_MAX: Final = 4


class ReconcileLoop:
    """The reconciliation tasks, on one event loop; an async context manager that ends them."""

    def __init__(self, kube: Kube, leads: Callable[[], bool], reports: Reports) -> None:
        """Nothing is read from brokers or written unless `leads()` is true."""
        self.objects = Objects(self.requeue)
        self._kube = kube
        self._leads = leads
        self._reports = reports
        self._tasks: dict[ObjectKey, asyncio.Task[None]] = {}
        self._requeued: dict[ObjectKey, asyncio.Event] = {}
        self._term = 0
        """How many times this operator has become the leader."""

    def __repr__(self) -> str:
        return f"<Loop clusters={len(self._tasks)}>"

    async def __aenter__(self) -> ReconcileLoop:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def requeue(self, cluster: ObjectKey) -> None:
        """Schedules a reconciliation of this Cluster; starts its task if there is none."""
        if cluster not in self._tasks:
            self._requeued[cluster] = asyncio.Event()
            self._tasks[cluster] = asyncio.create_task(self._run(cluster), name=f"cluster {cluster}")
        self._requeued[cluster].set()

    def started_leading(self) -> None:
        """Schedules a reconciliation of every Cluster: this operator has just become the leader."""
        self._term += 1
        for requeued in self._requeued.values():
            requeued.set()

    async def _run(self, cluster: ObjectKey) -> None:
        parts = (cluster, self.objects, self._kube, self._reports, self._leads)
        reconciler, ingestions = Reconciler(*parts), IngestionReconciler(*parts)
        requeued, failures, term = self._requeued[cluster], 0, self._term
        try:
            while self._is_needed(cluster):
                pause = min(RETRY_SECONDS_MAX, PERIOD_SECONDS * 2 ** min(failures, DOUBLINGS_MAX))
                try:
                    async with asyncio.timeout(pause):
                        await requeued.wait()
                    await asyncio.sleep(GATHER_SECONDS)
                except TimeoutError:
                    pass
                requeued.clear()
                if not self._leads():
                    continue
                if term != self._term:
                    term = self._term
                    reconciler.forget()
                    ingestions.forget()
                try:
                    with self._reports.reconciliation(cluster):
                        await reconciler.reconcile()
                        await ingestions.reconcile(reconciler.streams)
                    failures = 0
                except Exception:
                    failures += 1
                    log.exception("reconciliation failed; retrying", cluster=str(cluster), failures=failures)
        finally:
            # A change from here on starts a new task.
            if self._tasks.get(cluster) is asyncio.current_task():
                del self._tasks[cluster], self._requeued[cluster]
                self._reports.forget(cluster)
            await reconciler.close()

    def _is_needed(self, cluster: ObjectKey) -> bool:
        """Whether the Cluster exists, or a Stream or an Ingestion names it; else the task can end until the
        next change."""
        objects = self.objects
        if cluster in objects.clusters or cluster in objects.unreadable_clusters:
            return True
        streams = any(one.cluster == cluster.name for one in objects.streams_of(cluster.namespace))
        return streams or bool(objects.ingestions_of(cluster))

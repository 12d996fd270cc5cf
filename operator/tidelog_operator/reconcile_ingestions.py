"""Reconciles the Ingestions of one Cluster: observes them, plans, executes the actions, and writes the
statuses.

`reconcile_loop` calls it after `reconcile` of the same Cluster, with the streams that this one has seen.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from tidelog_operator.apply import Applier
from tidelog_operator.drivers import Drivers
from tidelog_operator.ingestions import IngestionObject, Report, Run
from tidelog_operator.kubernetes.api import Kube
from tidelog_operator.kubernetes.jobs import read_holders, read_run
from tidelog_operator.kubernetes.objects import Objects
from tidelog_operator.model import CustomResource, Manifest, ObjectKey
from tidelog_operator.plan.ingestions import (
    IngestionDecision,
    ObservedIngestion,
    Surroundings,
    plan_ingestion,
)
from tidelog_operator.plan.owned import Owned
from tidelog_operator.reporting.conditions import Status
from tidelog_operator.reporting.ingestion_status import ingestion_status, now_text
from tidelog_operator.reporting.reports import Reports
from tidelog_operator.reporting.status_writer import StatusWriter
from tidelog_operator.resources.naming import INGESTION_LABEL, ManifestId

PASSES_MAX: Final = 3
"""Passes of one reconciliation: as long as a pass changes something, the next one follows at once."""


def _now() -> datetime:
    return datetime.now(UTC)


class IngestionReconciler:
    """Reconciles the Ingestions of one Cluster."""

    def __init__(
        self,
        key: ObjectKey,
        objects: Objects,
        kube: Kube,
        reports: Reports,
        leads: Callable[[], bool],
        now: Callable[[], datetime] = _now,
    ) -> None:
        """Nothing is written unless `leads()` is true."""
        self.key = key
        self._objects = objects
        self._kube = kube
        self._reports = reports
        self._leads = leads
        self._now = now
        self._drivers = Drivers()
        self._status_writer = StatusWriter(kube, reports, leads)
        self._mutated: dict[ManifestId, str] = {}
        self._idle: tuple[int, frozenset[str] | None] | None = None
        """The versions of objects and streams at the last reconciliation that had nothing to do."""
        self._wake_at: datetime | None = None

    def forget(self) -> None:
        """Forgets everything that another operator may have changed while it was the leader."""
        self._status_writer.forget()
        self._idle, self._mutated = None, {}

    async def reconcile(self, streams: frozenset[str] | None) -> None:
        """`streams`: the names of the Cluster's streams; None: no broker answers."""
        if not self._objects.ingestions_of(self.key):
            return
        if self._drivers.due:
            await self._drivers.ask(self._objects.drivers_of(self.key))
            self._idle = None
        due = self._wake_at is not None and self._now() >= self._wake_at
        if (self._objects.version, streams) == self._idle and not due:
            return
        for _ in range(PASSES_MAX):
            state = (self._objects.version, streams)
            decisions = self._plan(streams)
            applier = Applier(self._objects, self._kube, None, self._reports, self._leads)
            await applier.ingestions(decisions)
            self._mutated |= applier.mutated
            if not applier.done:
                break
        written = await self._status_writer.write(
            [self._status(one, applier.errors.get(one.object.key, "")) for one in decisions]
        )
        self._wake_at = min((one.wake_at for one in decisions if one.wake_at is not None), default=None)
        acts = any(one.actions for one in decisions)
        self._idle = state if written and not acts else None

    def _plan(self, streams: frozenset[str] | None) -> list[IngestionDecision]:
        objects, now = self._objects, self._now()
        has_cluster = self.key in objects.clusters or self.key in objects.unreadable_clusters
        ingestions = list(objects.ingestions.values())
        around = Surroundings(ingestions, streams, has_cluster, read_holders(objects))
        return [
            plan_ingestion(one, self._observed(one), around, now) for one in objects.ingestions_of(self.key)
        ]

    def _observed(self, one: IngestionObject) -> ObservedIngestion:
        mine = {
            name: manifest
            for name, manifest in self._objects.owned_by(self.key).items()
            if (manifest["metadata"].get("labels") or {}).get(INGESTION_LABEL) == one.key.name
        }
        owned = Owned(mine, mutated=self._mutated)
        return ObservedIngestion(owned, self._runs(one, mine))

    def _runs(self, one: IngestionObject, mine: dict[tuple[str, str], Manifest]) -> list[Run]:
        """Returns the Jobs of this Ingestion; a deleted one of the same name has Jobs for a while too."""
        pods = self._objects.drivers_of(self.key)
        cron_jobs = {manifest["metadata"]["uid"] for (kind, _), manifest in mine.items() if kind == "CronJob"}
        owners = {one.uid, *cron_jobs}
        return [
            read_run(job, pods)
            for (kind, _), job in mine.items()
            if kind == "Job"
            and any(owner["uid"] in owners for owner in job["metadata"].get("ownerReferences", ()))
        ]

    def _status(self, decision: IngestionDecision, error: str) -> tuple[CustomResource, Status]:
        one = decision.object
        before = self._status_writer.current_status(one)
        report = self._report(decision.runs[-1]) if decision.runs else Report()
        return one, ingestion_status(decision, before, report, error=error, now=now_text(self._now()))

    def _report(self, run: Run) -> Report:
        if not run.pods:
            return Report()
        pod = run.pods[-1]
        return self._drivers.report_of(pod) if pod.exit_code is None else pod.last_words

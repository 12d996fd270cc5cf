"""Reconciles one Cluster and its Streams: observes them, plans, executes the actions, and writes the
statuses.

`reconcile_loop` calls it again and again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from tidelog.errors import TidelogError
from tidelog.model import id_text
from tidelog.wording import listed
from tidelog_operator.actions import (
    ClusterAction,
    ElectPreferred,
    RetainStream,
    SetLowestCount,
    StreamAction,
    Throttle,
)
from tidelog_operator.apply import Applier
from tidelog_operator.brokers import Brokers
from tidelog_operator.kubernetes.api import Kube
from tidelog_operator.kubernetes.objects import Objects
from tidelog_operator.model import CLUSTER, INGESTION, STREAM, ClusterObject, CustomResource, ObjectKey
from tidelog_operator.plan.balancing import plan_leaders
from tidelog_operator.plan.cluster import ClusterDecision, plan_cluster
from tidelog_operator.plan.owned import Owned
from tidelog_operator.plan.placement import BrokersView
from tidelog_operator.plan.streams import (
    Decision,
    plan_retained,
    plan_streams,
    plan_without_brokers,
    plan_without_cluster,
)
from tidelog_operator.plan.volumes import TIME
from tidelog_operator.reporting.cluster_status import cluster_status, unreadable_status
from tidelog_operator.reporting.conditions import Status
from tidelog_operator.reporting.reports import Reports
from tidelog_operator.reporting.status_writer import StatusWriter
from tidelog_operator.reporting.stream_status import stream_status
from tidelog_operator.resources.naming import (
    CLUSTER_LABEL,
    MANAGED_BY,
    MANAGED_LABEL,
    ManifestId,
    manifest_id,
)
from tidelog_operator.resources.stateful_set import read_pods

log = structlog.get_logger(__name__)

ELECTION_DELAY_SECONDS: Final = 10.0
"""How long a preferred leader must have been able to lead before it is elected: a broker may come and go."""

ELECTION_RETRY_SECONDS: Final = 600.0
"""After this time an election is repeated whose preferred leaders did not take leadership."""

LIST_SECONDS: Final = 300.0
"""How often the operator lists all objects of the namespace."""

LISTED: Final = (
    (CLUSTER, ""),
    (STREAM, ""),
    (INGESTION, ""),
    ("CronJob", CLUSTER_LABEL),
    ("Job", CLUSTER_LABEL),
    ("StatefulSet", CLUSTER_LABEL),
    ("Service", CLUSTER_LABEL),
    ("PodDisruptionBudget", CLUSTER_LABEL),
    ("ConfigMap", f"{MANAGED_LABEL}={MANAGED_BY}"),
    ("PersistentVolumeClaim", CLUSTER_LABEL),
    ("Pod", CLUSTER_LABEL),
)
"""Kinds to list, and the label that selects their objects."""

NO_CONTROLLER_SECONDS: Final = 10.0
"""After this time without a controller, what the brokers report counts as outdated. An election takes a
second or two."""

NO_CONTROLLER: Final = (
    "Most of the voters ({voters}) are unavailable, so the brokers that answer have no controller and "
    "may have outdated metadata. Leaders and in-sync replicas do not change until the voters are back. "
    "Check their pods."
)

ZONES_SECONDS_MAX: Final = 30.0
"""How long no replica is placed because the zones of brokers are not known yet."""

CONFLICTS_MAX: Final = 5
"""Reconciliations in a row with a version conflict, after which the status reports it."""

PASSES_MAX: Final = 5
"""Passes of one reconciliation: as long as a pass changes something, the next one follows at once."""


class Reconciler:
    """Reconciles one Cluster and its Streams."""

    def __init__(
        self, key: ObjectKey, objects: Objects, kube: Kube, reports: Reports, leads: Callable[[], bool]
    ) -> None:
        """Nothing is written unless `leads()` is true."""
        self.key = key
        self._objects = objects
        self._kube = kube
        self._reports = reports
        self._leads = leads
        self._brokers = Brokers()
        self._loop = asyncio.get_running_loop()
        self._listed_at = -LIST_SECONDS
        """The last complete list of the namespace, by the event loop's clock. Watches deliver objects one by
        one, and do not say what was deleted while they were interrupted: a deleted claim would look valid, or
        a valid one deleted."""
        self._status_writer = StatusWriter(kube, reports, leads)
        self._mutated: dict[ManifestId, str] = {}
        """Applied manifests that an admission webhook or the API server changed, with the path of the first
        difference."""
        self._idle_at: tuple[int, int] | None = None
        """The versions of objects and brokers at the last reconciliation that had nothing to do, to write, or
        to wait for."""
        self._leaders_since: float | None = None
        """The time since when a partition could be led by its preferred leader, but is not; event loop's
        clock."""
        self._no_controller_since: float | None = None
        """The time since when the brokers that answer have no controller; event loop's clock."""
        self._elected: tuple[ClusterAction, ...] = ()
        """The last election and its time; a preferred leader that does not take leadership is not elected all
        the time."""
        self._elected_at = 0.0
        self._conflicts: Counter[tuple[str, ObjectKey]] = Counter()
        """Reconciliations in a row with a version conflict, by Cluster or Stream."""
        self._began = self._loop.time()
        self.streams: frozenset[str] | None = None
        """Names of the Cluster's streams at the last reconciliation; None: no broker answered."""

    async def close(self) -> None:
        await self._brokers.close()

    def forget(self) -> None:
        """Forgets everything that another operator may have changed while it was the leader."""
        self._listed_at = -LIST_SECONDS
        self._status_writer.forget()
        self._idle_at, self._mutated = None, {}
        self._elected, self._conflicts = (), Counter()

    async def reconcile(self) -> None:
        """Reconciles once. Raises unexpected errors; rejections by brokers or the API server go into the
        statuses."""
        if self._loop.time() - self._listed_at >= LIST_SECONDS:
            await self._list()
        for _ in range(PASSES_MAX):
            view, unreachable = await self._observe()
            self.streams = frozenset(view.streams) if view is not None and _has_controller(view) else None
            state = (self._objects.version, self._brokers.version)
            if view is not None and state == self._idle_at:
                return
            planned = view if self._has_zones() else None
            decision, decisions = self._plan_cluster(planned), self._plan(planned)
            retained = self._plan_retained(planned, decisions)
            client = await self._client() if _has_controller(view) else None
            applier = Applier(self._objects, self._kube, client, self._reports, self._leads)
            cluster = self._objects.clusters.get(self.key)
            await applier.cluster(cluster, decision.actions, decision.independent)
            await applier.decisions(decisions)
            await applier.retained(cluster, retained)
            self._mutated |= applier.mutated
            self._remember_elected(applier.did)
            if applier.outdated:
                await self._list()
            if not applier.done:
                break
            self._brokers.changed()
        self._report_conflicts(applier)
        written = await self._status_writer.write([
            *self._cluster_status(*self._reportable(view, unreachable), decision, applier),
            *self._stream_statuses(*self._reportable(view, unreachable), decisions, applier.errors),
        ])  # fmt: skip
        alone = self._no_controller_since is not None
        waiting_reason = decision.lost or self._leaders_since is not None or alone or planned is not view
        acts = decision.actions or decision.independent or retained or any(one.actions for one in decisions)
        self._idle_at = state if written and not waiting_reason and not acts else None

    async def _list(self) -> None:
        """Lists all objects of the namespace. Raises `KUBE_FAILURES`; then the reconciliation ends."""
        namespace, began = self.key.namespace, self._loop.time()
        for kind, label in LISTED:
            found = await self._kube.list(kind, namespace, label)
            self._objects.listed(kind, namespace, found.items, found.version)
        self._listed_at = began

    async def _observe(self) -> tuple[BrokersView | None, str]:
        """Returns the state of the brokers, or None and why they do not answer."""
        cluster = self._objects.clusters.get(self.key)
        if cluster is None:
            unreadable = self._objects.unreadable_clusters.get(self.key)
            if unreadable is None:
                return None, f"The Cluster {self.key.name} does not exist in this namespace."
            return None, f"The Cluster {self.key.name} is invalid. {unreadable.why}"
        zones = self._objects.zones_of(self.key, cluster.spec.rack_label)
        try:
            view = await self._brokers.look(self._ips(), zones)
            there = self._owned().stateful_set(cluster)
            view = replace(view, pods=None if there is None else read_pods(there).count)
        except TidelogError as error:
            return None, f"No broker of the Cluster {self.key.name} answers: {error}"
        return self._of_this_cluster(cluster, view)

    def _of_this_cluster(self, cluster: ClusterObject, view: BrokersView) -> tuple[BrokersView | None, str]:
        """Checks that the brokers belong to this Cluster: an address may belong to a broker of another one
        now."""
        try:
            formation = self._owned().formation(cluster)
        except ValueError:
            # The plan reports this error.
            return view, ""
        found = view.cluster.cluster_id
        if formation is None or formation.cluster_id == found:
            return view, ""
        return None, (
            f"The brokers of the Cluster {self.key.name} belong to the cluster {id_text(found)}, but "
            f"{id_text(formation.cluster_id)} is expected: the volumes, or the addresses, are those of "
            "another cluster. Check which volumes the claims have."
        )

    def _ips(self) -> list[str]:
        return [pod.ip for pod in self._objects.pods_of(self.key) if pod.ip]

    def _owned(self) -> Owned:
        objects = self._objects
        said = [manifest_id(one) for one in objects.owned_by(self.key).values()]
        return Owned(
            objects.owned_by(self.key),
            objects.claims_of(self.key),
            objects.pods_of(self.key),
            {one: self._mutated[one] for one in said if one in self._mutated},
            objects.lowest_count_of(self.key),
        )

    def _has_zones(self) -> bool:
        """Replicas that are placed before the zones are known could all be in the same zone."""
        late = self._loop.time() - self._began > ZONES_SECONDS_MAX
        return late or self._objects.has_zones_of(self.key)

    async def _client(self) -> Any:
        return await self._brokers.client(self._ips())

    def _plan_cluster(self, view: BrokersView | None) -> ClusterDecision:
        cluster = self._objects.clusters.get(self.key)
        if cluster is not None:
            decision = plan_cluster(cluster, self._owned(), view, _now())
            # Brokers may reject a throttle again and again, so it comes last and stops nothing else.
            throttle = tuple(one for one in decision.actions if isinstance(one, Throttle))
            others = tuple(one for one in decision.actions if not isinstance(one, Throttle))
            return replace(decision, actions=(*others, *self._leaders(view), *throttle))
        known = self.key in self._objects.unreadable_clusters
        if known or self._objects.lowest_count_of(self.key) is None:
            return ClusterDecision()
        return ClusterDecision((SetLowestCount(self.key, None),))

    def _leaders(self, view: BrokersView | None) -> tuple[ClusterAction, ...]:
        """Plans the election of preferred leaders after they have been available for a while."""
        found = plan_leaders(view) if view is not None and _has_controller(view) else ()
        if not found:
            self._leaders_since, self._elected = None, ()
            return ()
        now = self._loop.time()
        if self._leaders_since is None:
            self._leaders_since = now
        if now - self._leaders_since < ELECTION_DELAY_SECONDS:
            return ()
        if found == self._elected and now - self._elected_at < ELECTION_RETRY_SECONDS:
            return ()
        return found

    def _remember_elected(self, done: Sequence[StreamAction | ClusterAction]) -> None:
        elected = tuple(one for one in done if isinstance(one, ElectPreferred))
        if elected:
            self._elected, self._elected_at = elected, self._loop.time()

    def _report_conflicts(self, applier: Applier) -> None:
        """Reports version conflicts that repeat. A single conflict is not reported: the operator observes
        again and plans again."""
        self._conflicts = Counter({one: self._conflicts[one] + 1 for one in applier.conflicts})
        for one, why in applier.conflicts.items():
            kind, key = one
            if self._conflicts[one] <= CONFLICTS_MAX:
                continue
            if kind == CLUSTER:
                applier.cluster_error = applier.cluster_error or why
            else:
                applier.errors.setdefault(key, why)

    def _plan(self, view: BrokersView | None) -> Sequence[Decision]:
        streams = self._objects.streams_of(self.key.namespace)
        if view is not None and _has_controller(view):
            return plan_streams(streams, self.key.name, view)
        if self.key not in self._objects.clusters and self.key not in self._objects.unreadable_clusters:
            return plan_without_cluster(streams, self.key.name)
        return plan_without_brokers(streams, self.key.name)

    def _plan_retained(
        self, view: BrokersView | None, decisions: Sequence[Decision]
    ) -> Sequence[RetainStream]:
        if view is None or not _has_controller(view):
            return ()
        streams = self._objects.streams_of(self.key.namespace)
        return plan_retained(streams, self.key.namespace, view, decisions)

    # --- statuses

    def _reportable(self, view: BrokersView | None, unreachable: str) -> tuple[BrokersView | None, str]:
        """Returns what the statuses report: not the metadata of brokers that have had no controller for
        long."""
        if _has_controller(view):
            self._no_controller_since = None
        elif view is not None:
            now = self._loop.time()
            if self._no_controller_since is None:
                self._no_controller_since = now
            if now - self._no_controller_since >= NO_CONTROLLER_SECONDS:
                voters = listed(view.cluster.voters)
                return None, NO_CONTROLLER.format(voters=voters)
        return view, unreachable

    def _cluster_status(
        self, view: BrokersView | None, unreachable: str, decision: ClusterDecision, applier: Applier
    ) -> list[tuple[CustomResource, Status]]:
        cluster = self._objects.clusters.get(self.key)
        if cluster is None:
            unreadable = self._objects.unreadable_clusters.get(self.key)
            if unreadable is None:
                return []
            return [
                (
                    unreadable,
                    unreadable_status(unreadable, self._status_writer.current_status(unreadable), _now()),
                )
            ]
        status = cluster_status(
            cluster,
            self._status_writer.current_status(cluster),
            self._owned(),
            self._objects.pods_of(self.key),
            view,
            decision,
            error=applier.cluster_error,
            independent_error=applier.independent_error,
            unreachable=unreachable,
            now=_now(),
        )
        return [(cluster, status)]

    def _stream_statuses(
        self,
        view: BrokersView | None,
        unreachable: str,
        decisions: Sequence[Decision],
        errors: Mapping[ObjectKey, str],
    ) -> Iterator[tuple[CustomResource, Status]]:
        now = _now()
        findings = {one.object.key: one.finding for one in decisions}
        for one in self._objects.streams_of(self.key.namespace):
            if one.cluster != self.key.name:
                continue
            existing = None if view is None else view.streams.get(one.stream_name)
            if existing is not None and existing.owner != one.claim:
                existing = None
            status = stream_status(
                one,
                self._status_writer.current_status(one),
                existing,
                finding=findings.get(one.key),
                error=errors.get(one.key, ""),
                unreachable=unreachable,
                now=now,
            )
            yield one, status


def _has_controller(view: BrokersView | None) -> bool:
    """Whether the broker that answered has contact with the controller. Other metadata may be outdated: it is
    reported, and not acted upon."""
    return view is not None and view.cluster.controller is not None


def _now() -> str:
    return datetime.now(UTC).strftime(TIME)

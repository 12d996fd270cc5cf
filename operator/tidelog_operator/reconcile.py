"""One Cluster and its Streams: looked at, planned for, and told; again and again, by `loop`."""

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
from tidelog_operator.model import CLUSTER, STREAM, ClusterObject, CustomResource, ObjectKey
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

log = structlog.get_logger(__name__)

ELECTION_DELAY_SECONDS: Final = 10.0
"""A broker that came back gets its leaderships after so long: it may be one that comes and goes."""

ELECTION_RETRY_SECONDS: Final = 600.0
"""A preferred leader that did not take its leaderships, because it had rather not, is asked again."""

LIST_SECONDS: Final = 300.0
"""How often the API server is asked for all objects of a namespace."""

LISTED: Final = (
    (CLUSTER, ""),
    (STREAM, ""),
    ("StatefulSet", CLUSTER_LABEL),
    ("Service", CLUSTER_LABEL),
    ("PodDisruptionBudget", CLUSTER_LABEL),
    ("ConfigMap", f"{MANAGED_LABEL}={MANAGED_BY}"),
    ("PersistentVolumeClaim", CLUSTER_LABEL),
    ("Pod", CLUSTER_LABEL),
)
"""Kinds, and the label of those that concern the operator."""

NO_CONTROLLER_SECONDS: Final = 10.0
"""Brokers that have had no controller for so long are no witnesses: what they say is of before. An election
takes a second or two."""

NO_CONTROLLER: Final = (
    "most of the brokers that vote ({voters}) are away, so those that answer have no controller and may not "
    "know what is so: leaders do not change, and copies neither are given up nor come back"
)

ZONES_SECONDS_MAX: Final = 30.0
"""How long copies are not placed because the zones of brokers have not come yet."""

CONFLICTS_MAX: Final = 5
"""Passes in a row; then it is told."""

PASSES_MAX: Final = 5
"""In a row, as long as something is done: what a change makes possible is done at once."""


class Reconciler:
    """See the module. Of one Cluster."""

    def __init__(
        self, key: ObjectKey, objects: Objects, kube: Kube, reports: Reports, leads: Callable[[], bool]
    ) -> None:
        """`leads`: only then is anything written."""
        self.key = key
        self._objects = objects
        self._kube = kube
        self._reports = reports
        self._leads = leads
        self._brokers = Brokers()
        self._loop = asyncio.get_running_loop()
        self._listed_at = -LIST_SECONDS
        """When every object of the namespace was known for sure; event loop's clock. Watches bring them one
        by one, and do not say what went while they were interrupted: a claim would look dead, or alive."""
        self._status_writer = StatusWriter(kube, reports, leads)
        self._mutated: dict[ManifestId, str] = {}
        """What the API server keeps other than it was applied, and where it differs."""
        self._idle_at: tuple[int, int] | None = None
        """Versions of objects and brokers with which there was nothing to do, to say, or to wait for."""
        self._leaders_since: float | None = None
        """Since when some partition could be led by its preferred leader, and is not; event loop's clock."""
        self._no_controller_since: float | None = None
        """Since when the brokers that answer have no controller; event loop's clock."""
        self._elected: tuple[ClusterAction, ...] = ()
        """What was done last, and when; whoever had rather not lead is not asked all the time."""
        self._elected_at = 0.0
        self._conflicts: Counter[tuple[str, ObjectKey]] = Counter()
        """Passes in a row in which somebody was faster, by Cluster or Stream."""
        self._began = self._loop.time()

    async def close(self) -> None:
        await self._brokers.close()

    def forget(self) -> None:
        """Another operator may have led meanwhile: nothing is as it was left."""
        self._listed_at = -LIST_SECONDS
        self._status_writer.forget()
        self._idle_at, self._mutated = None, {}
        self._elected, self._conflicts = (), Counter()

    async def once(self) -> None:
        """Raises what is not expected; what brokers or the API server refuse is in the status of objects."""
        if self._loop.time() - self._listed_at >= LIST_SECONDS:
            await self._list()
        for _ in range(PASSES_MAX):
            view, unreachable = await self._look()
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
        told = await self._status_writer.tell([
            *self._cluster_status(*self._reportable(view, unreachable), decision, applier),
            *self._stream_statuses(*self._reportable(view, unreachable), decisions, applier.errors),
        ])  # fmt: skip
        alone = self._no_controller_since is not None
        waiting_reason = decision.lost or self._leaders_since is not None or alone or planned is not view
        acts = decision.actions or decision.independent or retained or any(one.actions for one in decisions)
        self._idle_at = state if told and not waiting_reason and not acts else None

    async def _list(self) -> None:
        """Raises `KUBE_FAILURES`; then nothing is done."""
        namespace, began = self.key.namespace, self._loop.time()
        for kind, label in LISTED:
            found = await self._kube.list(kind, namespace, label)
            self._objects.listed(kind, namespace, found.items, found.version)
        self._listed_at = began

    async def _look(self) -> tuple[BrokersView | None, str]:
        """The brokers; None, and why they cannot be asked."""
        cluster = self._objects.clusters.get(self.key)
        if cluster is None:
            unreadable = self._objects.unreadable_clusters.get(self.key)
            if unreadable is None:
                return None, f"there is no Cluster {self.key.name!r} in this namespace"
            return None, f"of the Cluster {self.key.name!r}: {unreadable.why}"
        zones = self._objects.zones_of(self.key, cluster.spec.rack_label)
        try:
            view = await self._brokers.look(self._ips(), zones)
        except TidelogError as error:
            return None, f"no broker of the Cluster {self.key.name!r} answers: {error}"
        return self._of_this_cluster(cluster, view)

    def _of_this_cluster(self, cluster: ClusterObject, view: BrokersView) -> tuple[BrokersView | None, str]:
        """An address may have become that of another Cluster's broker."""
        try:
            formation = self._owned().formation(cluster)
        except ValueError:
            # Whoever plans says so.
            return view, ""
        found = view.cluster.cluster_id
        if formation is None or formation.cluster_id == found:
            return view, ""
        return None, (
            f"the brokers of the Cluster {self.key.name!r} answer for the cluster {id_text(found)}, "
            f"and theirs is {id_text(formation.cluster_id)}: volumes, or addresses, are another cluster's"
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
        """Copies that are placed before that may all lie in one."""
        late = self._loop.time() - self._began > ZONES_SECONDS_MAX
        return late or self._objects.has_zones_of(self.key)

    async def _client(self) -> Any:
        return await self._brokers.client(self._ips())

    def _plan_cluster(self, view: BrokersView | None) -> ClusterDecision:
        cluster = self._objects.clusters.get(self.key)
        if cluster is not None:
            decision = plan_cluster(cluster, self._owned(), view, _now())
            # Brokers may refuse a throttle again and again: it holds nothing else up.
            throttle = tuple(one for one in decision.actions if isinstance(one, Throttle))
            others = tuple(one for one in decision.actions if not isinstance(one, Throttle))
            return replace(decision, actions=(*others, *self._leaders(view), *throttle))
        known = self.key in self._objects.unreadable_clusters
        if known or self._objects.lowest_count_of(self.key) is None:
            return ClusterDecision()
        return ClusterDecision((SetLowestCount(self.key, None),))

    def _leaders(self, view: BrokersView | None) -> tuple[ClusterAction, ...]:
        """Leaders go back to the brokers that are preferred when those have been there for a while."""
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
        """Who is overtaken looks again and says nothing; for so long that is no chance any more."""
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

    # --- telling objects of themselves

    def _reportable(self, view: BrokersView | None, unreachable: str) -> tuple[BrokersView | None, str]:
        """What objects are told of: not what brokers say that have had no controller for long."""
        if _has_controller(view):
            self._no_controller_since = None
        elif view is not None:
            now = self._loop.time()
            if self._no_controller_since is None:
                self._no_controller_since = now
            if now - self._no_controller_since >= NO_CONTROLLER_SECONDS:
                voters = ", ".join(map(str, view.cluster.voters))
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
    """Who answered is in touch with the controller. What others say may be old: told, and not acted upon."""
    return view is not None and view.cluster.controller is not None


def _now() -> str:
    return datetime.now(UTC).strftime(TIME)

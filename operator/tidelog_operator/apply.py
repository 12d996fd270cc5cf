"""Executes the actions of a plan, and records which of them failed and why. No other module changes brokers,
nor any object except for statuses, events, the Lease and the definitions.

The actions for one object run in their order and stop after a failure, except those that a plan marks as
independent. Actions for different objects run at the same time. A change by another client meanwhile is an
error like any other: the next plan observes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, assert_never

import structlog

import tidelog
from tidelog.errors import InvalidRequest, StreamNotFound, TidelogError, VersionConflict
from tidelog_operator import actions as do
from tidelog_operator.kubernetes.api import KUBE_FAILURES, Kube, Outdated, reason_of
from tidelog_operator.kubernetes.objects import Objects, key_of
from tidelog_operator.model import STREAM, CustomResource, Manifest, ObjectKey, StreamClaim, StreamObject
from tidelog_operator.plan.ingestions import IngestionDecision
from tidelog_operator.plan.streams import Decision
from tidelog_operator.reporting.events import attempt
from tidelog_operator.reporting.reports import Reports
from tidelog_operator.resources.comparing import difference
from tidelog_operator.resources.counts import counts_manager, counts_map
from tidelog_operator.resources.naming import ManifestId, manifest_id

log = structlog.get_logger(__name__)

AT_ONCE_MAX: Final = 16
"""Objects whose actions run at the same time."""

MESSAGE_CHARACTERS_MAX: Final = 1000
"""Characters of an API server message that a status keeps."""


class NotOwned(Exception):
    """An object with the wanted name exists, and it does not belong to this Cluster."""


class Applier:
    """Executes the actions of one reconciliation."""

    def __init__(
        self,
        objects: Objects,
        kube: Kube,
        client: tidelog.Client | None,
        reports: Reports,
        leads: Callable[[], bool],
    ) -> None:
        """`client` None: no broker can be reached. Nothing is executed unless `leads()` is true."""
        self._leads = leads
        self._objects = objects
        self._kube = kube
        self._client = client
        self._reports = reports
        self._free = asyncio.Semaphore(AT_ONCE_MAX)
        self.errors: dict[ObjectKey, str] = {}
        """Errors by Stream or Ingestion."""
        self.cluster_error = ""
        """The error of the Cluster; empty: no error."""
        self.independent_error = ""
        """The first error of an independent action; empty: no error."""
        self.done = 0
        """The number of actions that changed something."""
        self.mutated: dict[ManifestId, str] = {}
        """Applied manifests that an admission webhook or the API server changed, with the path of the first
        difference."""
        self.outdated = False
        """An object had another version than the cache."""
        self.conflicts: dict[tuple[str, ObjectKey], str] = {}
        """Version conflicts by kind and Cluster or Stream, with the message of the brokers."""
        self.did: list[do.StreamAction | do.ClusterAction] = []

    async def cluster(
        self,
        one: CustomResource | None,
        actions: Sequence[do.ClusterAction],
        independent: Sequence[do.ClusterAction] = (),
    ) -> None:
        """`one`: the Cluster, if it exists. `independent` actions run after the others, whether those succeed
        or not, and each of them runs whether the previous one succeeds or not."""
        for action in actions:
            failed = await self._attempt(action, one)
            if failed is not None:
                self.cluster_error = failed
                break
        for action in independent:
            failed = await self._attempt(action, one)
            self.independent_error = self.independent_error or failed or ""

    async def ingestions(self, decisions: Iterable[IngestionDecision]) -> None:
        await self.decisions(decisions)

    async def decisions(self, decisions: Iterable[Decision | IngestionDecision]) -> None:
        async with asyncio.TaskGroup() as group:
            for one in decisions:
                if one.actions:
                    group.create_task(self._decision(one))

    async def retained(self, one: CustomResource | None, actions: Sequence[do.RetainStream]) -> None:
        """Runs last. No user waits for these actions; after a failure the next reconciliation tries again."""
        for action in actions:
            if await self._attempt(action, one):
                return

    async def _decision(self, decision: Decision | IngestionDecision) -> None:
        async with self._free:
            for action in decision.actions:
                failed = await self._attempt(action, decision.object)
                if failed is not None:
                    if failed:
                        self.errors[decision.object.key] = failed
                    return

    async def _attempt(
        self, action: do.StreamAction | do.ClusterAction, one: CustomResource | None
    ) -> str | None:
        """Returns None after success, else the error. An empty error: this operator is not the leader, or the
        version that the action depends on is outdated, and a watch will deliver the change."""
        if not self._leads():
            return ""
        try:
            changed = await self._execute(action, one)
        except Outdated:
            self.outdated = True
            return ""
        except VersionConflict as error:
            log.info(
                "action skipped: the version is outdated; planning again",
                action=attempt(action),
                error=str(error),
            )
            if one is not None:
                self.conflicts[one.kind, one.key] = f"Cannot {attempt(action)}: {error}"
            return ""
        except NotOwned as error:
            why = str(error)
        except TidelogError as error:
            why = str(error)
        except KUBE_FAILURES as error:
            why = (
                f"The Kubernetes API server rejected the request: {reason_of(error)[:MESSAGE_CHARACTERS_MAX]}"
            )
        else:
            self.did.append(action)
            if changed:
                self.done += 1
                log.info("action executed", action=attempt(action))
                self._reports.did(one, action)
            return None
        self._reports.failed(one, action, why)
        return why

    async def _execute(self, action: do.StreamAction | do.ClusterAction, one: CustomResource | None) -> bool:
        """Returns whether the action changed anything, as far as the answer tells."""
        match action:
            case do.AddFinalizer(kind):
                assert isinstance(one, StreamObject)
                self._objects.finalized(one, await self._kube.add_finalizer(kind, one))
            case do.RemoveFinalizer(kind):
                assert isinstance(one, StreamObject)
                self._objects.finalized(one, await self._kube.remove_finalizer(kind, one))
            case do.CreateStream(_, name, settings, owner, replicas):
                await self._brokers.create_stream(name, settings=settings, owner=owner, replicas=replicas)
            case do.AlterStream(_, name, stream_id, version, settings, owner, new_replicas, former):
                if former is not None:
                    await self._check_deleted(former)
                await self._brokers.alter_stream(
                    name,
                    settings=settings,
                    owner=owner,
                    new_replicas=new_replicas,
                    expected_version=version,
                    stream_id=stream_id,
                )
            case do.RetainStream(claim, name, stream_id, version, owner):
                await self._check_deleted(claim)
                await self._brokers.alter_stream(
                    name, owner=owner, expected_version=version, stream_id=stream_id
                )
            case do.DeleteStream(_, name, stream_id, version):
                try:
                    await self._brokers.delete_stream(name, expected_version=version, stream_id=stream_id)
                except StreamNotFound:
                    # A previous operator did this and was killed before it could record it.
                    return False
            case do.Reassign(moves):
                await self._brokers.reassign(
                    {(one.name, one.partition): one.replicas for one in moves},
                    expected={(one.name, one.partition): one.expected for one in moves},
                )
            case do.CordonBroker(broker, version):
                await self._brokers.cordon(broker, expected_version=version)
            case do.UncordonBroker(broker, version):
                await self._brokers.uncordon(broker, expected_version=version)
            case do.UnregisterBroker(broker, version):
                return await self._unregister(broker, version)
            case do.ElectPreferred(names):
                await self._brokers.elect_preferred(names)
            case do.Throttle(speed):
                await self._brokers.throttle(speed)
            case do.CreateObject(manifest):
                await self._check_owned(manifest)
                self._objects.owned(await self._kube.create(manifest), gone=False)
            case do.ApplyObject(manifest, version):
                await self._check_owned(manifest)
                found = await self._kube.apply(manifest, version)
                self._objects.owned(found, gone=False)
                where = difference(found, manifest)
                if where is not None:
                    self.mutated[manifest_id(manifest)] = where
                    log.warning(
                        "an admission webhook or the API server changed an applied object; the operator "
                        "keeps the change",
                        kind=manifest["kind"],
                        object=str(key_of(manifest)),
                        where=where,
                    )
            case do.DeleteObject(kind, key, uid):
                if await self._kube.delete(kind, key, uid):
                    self._objects.gone(kind, key, uid)
            case do.SetLowestCount(cluster, count):
                counts = counts_map(cluster, count)
                found = await self._kube.apply(counts, manager=counts_manager(cluster))
                self._objects.owned(found, gone=False)
            case _:
                assert_never(action)
        return True

    async def _unregister(self, broker: int, version: int) -> bool:
        try:
            await self._brokers.unregister_broker(broker, only_if_empty=True, expected_version=version)
        except InvalidRequest:
            # A previous operator did this and was killed before it could record it.
            found = await self._brokers.describe_cluster()
            if found.controller is None or any(one.broker_id == broker for one in found.brokers):
                raise
            return False
        return True

    async def _check_owned(self, manifest: Manifest) -> None:
        """Raises `NotOwned` if an object with this name exists and does not belong to the Cluster. The cache
        may not have the object yet."""
        kind, key = manifest["kind"], key_of(manifest)
        if self._objects.is_owned(manifest):
            return
        there = await self._kube.find(kind, key)
        if there is None:
            return
        (owner,) = manifest["metadata"]["ownerReferences"]
        if any(one["uid"] == owner["uid"] for one in there["metadata"].get("ownerReferences", ())):
            wanted, labels = manifest["metadata"]["labels"], there["metadata"].get("labels") or {}
            lost = [f"{name}={value}" for name, value in wanted.items() if labels.get(name) != value]
            if not lost:
                # It was created a moment ago: the cache does not have it yet.
                raise Outdated(str(key))
            raise NotOwned(
                f"The {kind} {key.name} has lost labels that the operator needs to find it. Set "
                f"{', '.join(lost)}."
            )
        mine = owner["kind"]
        raise NotOwned(
            f"The {kind} {key.name} already exists and does not belong to this {mine}, so the operator "
            f"does not overwrite it. Delete it, or create the {mine} with another name."
        )

    async def _check_deleted(self, claim: StreamClaim) -> None:
        """Raises `Outdated` if the object that claimed the stream still exists.

        An object exists before it claims a stream. So if the brokers know a claim and the API server, asked
        after that, does not have the object, then the object was deleted, and its uid is never used again.
        This holds also for an operator whose cache is incomplete, and when two operators act at once. A later
        claim by another object changes the version of the stream.
        """
        there = await self._kube.find(STREAM, claim.key)
        if there is not None and there["metadata"]["uid"] == claim.uid:
            raise Outdated(str(claim.key))

    @property
    def _brokers(self) -> tidelog.Client:
        assert self._client is not None, "actions for brokers are planned only when a broker answers"
        return self._client
